-- The first schema. Times are BIGINT milliseconds since 1970; flags are BIGINT 0 or 1; documents are JSON in TEXT.
-- A column of type ID is TEXT, ordered by bytes on both databases.

-- What the installation as a whole must remember: trust domain, provider tenant, key-check value.
CREATE TABLE meta (
    name ID PRIMARY KEY,
    value TEXT NOT NULL
);

-- A deleted tenant keeps its row, and so do sites and pools: events, certificates and each other still name them,
-- so their ids are never used again.
CREATE TABLE tenants (
    id ID PRIMARY KEY,
    display_name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    deleted_at BIGINT
);

CREATE TABLE projects (
    tenant_id ID NOT NULL REFERENCES tenants (id),
    id ID NOT NULL,
    display_name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE sites (
    id ID PRIMARY KEY,
    owner_tenant_id ID NOT NULL REFERENCES tenants (id),
    custom BIGINT NOT NULL,
    bmc_networks TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    deleted_at BIGINT
);
CREATE INDEX sites_by_owner ON sites (owner_tenant_id);

CREATE TABLE pools (
    id ID PRIMARY KEY,
    uid ID NOT NULL UNIQUE,
    tenant_id ID NOT NULL REFERENCES tenants (id),
    project_id ID NOT NULL,
    site_id ID NOT NULL REFERENCES sites (id),
    agent TEXT NOT NULL,
    policy TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    deleted_at BIGINT
);
CREATE INDEX pools_by_tenant ON pools (tenant_id, id);
CREATE INDEX pools_by_site ON pools (site_id);

-- Credentials of people and services. The secret itself is nowhere.
CREATE TABLE credentials (
    id ID PRIMARY KEY,
    subject TEXT NOT NULL,
    tenant_id ID NOT NULL,
    secret_sha256 TEXT NOT NULL,
    grants TEXT NOT NULL,
    description TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT
);
CREATE INDEX credentials_by_end ON credentials (expires_at);

-- Answers to idempotent creations, by caller and key; never a secret.
CREATE TABLE idempotent_answers (
    subject ID NOT NULL,
    method ID NOT NULL,
    idempotency_key ID NOT NULL,
    content_sha256 TEXT NOT NULL,
    answer TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (subject, method, idempotency_key)
);
CREATE INDEX idempotent_answers_by_age ON idempotent_answers (created_at);

CREATE TABLE join_tokens (
    id ID PRIMARY KEY,
    tenant_id ID NOT NULL,
    pool_id ID NOT NULL REFERENCES pools (id),
    secret_sha256 TEXT NOT NULL,
    max_uses BIGINT NOT NULL,
    uses BIGINT NOT NULL,
    pending BIGINT NOT NULL,
    expect TEXT,
    allow_reclaim BIGINT NOT NULL,
    hosted TEXT,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT,
    last_used_at BIGINT
);
CREATE INDEX join_tokens_by_pool ON join_tokens (pool_id, id);

-- A node. Three serials are known of it: the one in use, the one before it, and the one issued and not yet used.
CREATE TABLE nodes (
    id ID PRIMARY KEY,
    pool_id ID NOT NULL REFERENCES pools (id),
    tenant_id ID NOT NULL,
    site_id ID NOT NULL,
    state TEXT NOT NULL,
    generation BIGINT NOT NULL,
    trust TEXT NOT NULL,
    hosted TEXT,
    identity TEXT NOT NULL,
    seen_identity TEXT,
    key_sha256 ID NOT NULL,
    token_id ID NOT NULL,
    remote_address TEXT NOT NULL,
    kubernetes_node_name TEXT,
    agent_version TEXT NOT NULL,
    boot_id TEXT,
    current_serial ID NOT NULL,
    previous_serial ID,
    next_serial ID,
    created_at BIGINT NOT NULL,
    joined_at BIGINT NOT NULL,
    last_heartbeat_at BIGINT,
    ban_reason TEXT,
    ended_at BIGINT
);
CREATE INDEX nodes_by_pool ON nodes (pool_id, id);
CREATE INDEX nodes_by_key ON nodes (key_sha256);

-- Which live node holds an identity at a site. What must be unique is a primary key: an absent row can't be locked.
CREATE TABLE identities (
    site_id ID NOT NULL,
    kind ID NOT NULL,
    value ID NOT NULL,
    node_id ID NOT NULL REFERENCES nodes (id),
    PRIMARY KEY (site_id, kind, value)
);
CREATE INDEX identities_by_node ON identities (node_id);

-- What a ban covers beside the node itself.
CREATE TABLE bans (
    site_id ID NOT NULL,
    kind ID NOT NULL,
    value ID NOT NULL,
    node_id ID NOT NULL REFERENCES nodes (id),
    PRIMARY KEY (site_id, kind, value, node_id)
);
CREATE INDEX bans_by_node ON bans (node_id);

-- Every certificate of a node that has not long expired.
CREATE TABLE certificates (
    serial ID PRIMARY KEY,
    node_id ID NOT NULL REFERENCES nodes (id),
    generation BIGINT NOT NULL,
    issuer ID NOT NULL,
    certificate TEXT NOT NULL,
    chain TEXT NOT NULL,
    csr_sha256 TEXT NOT NULL,
    key_sha256 TEXT NOT NULL,
    trust TEXT NOT NULL,
    not_before BIGINT NOT NULL,
    not_after BIGINT NOT NULL,
    first_used_at BIGINT
);
CREATE INDEX certificates_by_node ON certificates (node_id);
CREATE INDEX certificates_by_end ON certificates (not_after);

-- Which join a token was used for: (token, digest of the request's signed part) names a join.
CREATE TABLE joins (
    token_id ID NOT NULL REFERENCES join_tokens (id),
    csr_sha256 ID NOT NULL,
    node_id ID NOT NULL REFERENCES nodes (id),
    serial ID NOT NULL,
    generation BIGINT NOT NULL,
    remote_address TEXT NOT NULL,
    joined_at BIGINT NOT NULL,
    PRIMARY KEY (token_id, csr_sha256)
);
CREATE INDEX joins_by_node ON joins (node_id);

CREATE TABLE secrets (
    pool_id ID NOT NULL REFERENCES pools (id),
    name ID NOT NULL,
    sealed TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (pool_id, name)
);

-- Roots and issuing CAs. The private key is sealed; an offline root of your own has none here.
CREATE TABLE authorities (
    id ID PRIMARY KEY,
    domain TEXT NOT NULL,
    name TEXT NOT NULL,
    certificate TEXT NOT NULL,
    sealed_key TEXT,
    state TEXT NOT NULL,
    not_before BIGINT NOT NULL,
    not_after BIGINT NOT NULL
);

-- CloudEvents, written with the change they tell of.
CREATE TABLE events (
    id ID PRIMARY KEY,
    type TEXT NOT NULL,
    tenant_id ID NOT NULL,
    subject TEXT NOT NULL,
    actor TEXT NOT NULL,
    request_id TEXT NOT NULL,
    data TEXT NOT NULL,
    occurred_at BIGINT NOT NULL
);
CREATE INDEX events_by_tenant ON events (tenant_id, id);
