-- Logins of programs whose person confirms them on another device (RFC 8628), until the provider says yes or no.
CREATE TABLE device_logins (
    handle_sha256 ID PRIMARY KEY,
    -- What the program proves that it knows, as PKCE has it (S256).
    challenge TEXT NOT NULL,
    -- What the provider gives a token for; sealed.
    device_code TEXT NOT NULL,
    nonce TEXT NOT NULL,
    begun_at BIGINT NOT NULL,
    -- How often the provider may be asked, and from when on it may be asked again.
    interval_seconds BIGINT NOT NULL,
    ask_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX device_logins_by_end ON device_logins (expires_at);
