-- Events get their number after the commit, one transaction of numbering at a time, so that whoever has read up to a
-- number has missed none before it.
ALTER TABLE events ADD COLUMN number BIGINT;
CREATE UNIQUE INDEX events_by_number ON events (number);
CREATE INDEX events_of_tenant_by_number ON events (tenant_id, number);
CREATE INDEX events_without_number ON events (occurred_at, id) WHERE number IS NULL;
CREATE INDEX events_by_time ON events (occurred_at);
INSERT INTO meta (name, value) VALUES ('last_event_number', '0');
