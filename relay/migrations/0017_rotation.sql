-- A BMC's password that is exchanged for one that the relay draws. The new one is sealed here before the BMC hears of it, and stays
-- beside the one that holds until it was seen to let somebody in: one of the two does, whenever a relay is killed.
ALTER TABLE metal ADD COLUMN rotates BIGINT NOT NULL DEFAULT 0;
ALTER TABLE metal ADD COLUMN sealed_candidate TEXT;
