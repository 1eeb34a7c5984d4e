-- Logins that a provider has vouched for and that wait for the program that began them. A row is taken once.
CREATE TABLE logins (
    code_sha256 ID PRIMARY KEY,
    -- What the program proves that it knows, as PKCE has it (S256).
    challenge TEXT NOT NULL,
    -- Who logged in: the provider, and as whom it knows the user.
    issuer TEXT NOT NULL,
    issuer_subject TEXT NOT NULL,
    login TEXT NOT NULL,
    display_name TEXT NOT NULL,
    -- The admin role that was asked for.
    admin_role TEXT,
    logged_in_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX logins_by_end ON logins (expires_at);
