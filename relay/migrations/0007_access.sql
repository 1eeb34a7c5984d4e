-- Users, memberships, tokens. A user's id is also that of its own tenant.
CREATE TABLE users (
    id ID PRIMARY KEY,
    -- Who knows the user, and as whom; for a service `relay` and its id.
    issuer ID NOT NULL,
    issuer_subject ID NOT NULL,
    display_name TEXT NOT NULL,
    service BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    UNIQUE (issuer, issuer_subject)
);

-- A role in a tenant (project_id is empty) or in a project alone.
CREATE TABLE memberships (
    tenant_id ID NOT NULL REFERENCES tenants (id),
    project_id ID NOT NULL,
    user_id ID NOT NULL REFERENCES users (id),
    role TEXT NOT NULL,
    since BIGINT NOT NULL,
    added_by TEXT NOT NULL,
    PRIMARY KEY (tenant_id, project_id, user_id)
);
CREATE INDEX memberships_by_user ON memberships (user_id);

CREATE TABLE infra_grants (
    user_id ID NOT NULL REFERENCES users (id),
    site_id ID NOT NULL REFERENCES sites (id),
    role TEXT NOT NULL,
    since BIGINT NOT NULL,
    granted_by TEXT NOT NULL,
    PRIMARY KEY (user_id, site_id)
);

CREATE TABLE invites (
    id ID PRIMARY KEY,
    tenant_id ID NOT NULL REFERENCES tenants (id),
    project_id ID NOT NULL,
    role TEXT NOT NULL,
    secret_sha256 TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX invites_by_place ON invites (tenant_id, project_id, id);
CREATE INDEX invites_by_end ON invites (expires_at);

-- The keys that sign tokens; the newest signs.
CREATE TABLE signing_keys (
    id ID PRIMARY KEY,
    sealed_key TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- Tokens are JWTs from now on: the credentials before them are none.
DROP TABLE credentials;
CREATE TABLE credentials (
    id ID PRIMARY KEY,
    type TEXT NOT NULL,
    subject ID NOT NULL,
    tenant_id ID NOT NULL,
    token_sha256 TEXT NOT NULL,
    key_id ID NOT NULL,
    -- The admin role that it was given; it counts as far as the owner may have it.
    admin_role TEXT,
    -- What it holds, as rights; absent where it holds what its owner does.
    rights TEXT,
    description TEXT NOT NULL,
    labels TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    lifetime_seconds BIGINT NOT NULL,
    -- When the user logged in; of a token from a login only.
    login_at BIGINT,
    -- The token that ends when this one is first used.
    predecessor ID,
    revoked_at BIGINT
);
CREATE INDEX credentials_by_subject ON credentials (subject, id);
CREATE INDEX credentials_by_end ON credentials (expires_at);
CREATE INDEX credentials_by_key ON credentials (key_id);
CREATE INDEX credentials_by_predecessor ON credentials (predecessor);
