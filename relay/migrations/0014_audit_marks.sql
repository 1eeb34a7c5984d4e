-- Each record has the relay's mark from the beginning: an HMAC by a key that the database does not have.
ALTER TABLE audit ADD COLUMN mark TEXT;
