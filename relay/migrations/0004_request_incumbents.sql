-- A JSON list of the nodes that a join request's reasons are about, frozen like them.
ALTER TABLE join_requests ADD COLUMN incumbents TEXT;
