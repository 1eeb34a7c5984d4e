-- The first token of a chain of refreshes: what limits the calls of all of them, and counts as one token.
ALTER TABLE credentials ADD COLUMN chain ID NOT NULL DEFAULT '';
UPDATE credentials SET chain = COALESCE(predecessor, id);
CREATE INDEX credentials_by_chain ON credentials (chain);
-- Until when a token whose successor is in use still counts for the requests of its browser that were under way.
ALTER TABLE credentials ADD COLUMN lingers_until BIGINT;
