-- Attestation: what a machine has proved, what a pool knows of machines, and the joins that wait for a person.

-- Only an endorsement key that was proved is written here.
ALTER TABLE nodes ADD COLUMN ek_sha256 ID;
ALTER TABLE nodes ADD COLUMN ek_manufacturer TEXT;
-- A JSON list of the boot ids before the present one, the latest first.
ALTER TABLE nodes ADD COLUMN earlier_boot_ids TEXT;
CREATE INDEX nodes_by_ek ON nodes (pool_id, ek_sha256);

-- What is odd about a node: told to people, never a reason to stop it.
CREATE TABLE node_conditions (
    node_id ID NOT NULL REFERENCES nodes (id),
    type ID NOT NULL,
    message TEXT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (node_id, type)
);

-- A join that a person decides. Everything up to remote_address is frozen; content_sha256 is over identity and
-- pool. One for each token, request and content: only a join writes here, and it holds the token's lock.
CREATE TABLE join_requests (
    id ID PRIMARY KEY,
    token_id ID NOT NULL REFERENCES join_tokens (id),
    csr_sha256 ID NOT NULL,
    content_sha256 TEXT NOT NULL,
    pool_id ID NOT NULL REFERENCES pools (id),
    tenant_id ID NOT NULL,
    reasons TEXT NOT NULL,
    identity TEXT NOT NULL,
    ek_sha256 ID,
    ek_manufacturer TEXT,
    remote_address TEXT NOT NULL,
    state ID NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    decided_at BIGINT,
    decided_by TEXT,
    note TEXT
);
CREATE INDEX join_requests_by_join ON join_requests (token_id, csr_sha256);
CREATE INDEX join_requests_by_pool ON join_requests (pool_id, state, id);
CREATE INDEX join_requests_by_end ON join_requests (state, expires_at);

-- What the machines of a tenant say they are, so that a person sees who else says the same. The holder is a node or a
-- join request.
CREATE TABLE identifiers (
    tenant_id ID NOT NULL,
    kind ID NOT NULL,
    value ID NOT NULL,
    holder ID NOT NULL,
    PRIMARY KEY (tenant_id, kind, value, holder)
);
CREATE INDEX identifiers_by_holder ON identifiers (holder);

-- The machines that the attestor `discovery` knows. All identifiers of an entry must match; the anchor is one of them,
-- by which a machine's entries are found.
CREATE TABLE inventory (
    pool_id ID NOT NULL REFERENCES pools (id),
    entry_id ID NOT NULL,
    product_uuid TEXT,
    serial TEXT,
    mac TEXT,
    gpu_uuid TEXT,
    ek_sha256 TEXT,
    anchor_kind ID NOT NULL,
    anchor_value ID NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (pool_id, entry_id)
);
CREATE INDEX inventory_by_anchor ON inventory (pool_id, anchor_kind, anchor_value);

-- Endorsement keys that a pool admits.
CREATE TABLE endorsement_keys (
    pool_id ID NOT NULL REFERENCES pools (id),
    ek_sha256 ID NOT NULL,
    note TEXT,
    added_at BIGINT NOT NULL,
    added_by TEXT NOT NULL,
    PRIMARY KEY (pool_id, ek_sha256)
);

-- CAs whose endorsement keys are those of genuine TPMs: a PEM bundle each.
CREATE TABLE endorsement_authorities (
    id ID PRIMARY KEY,
    pool_id ID NOT NULL REFERENCES pools (id),
    certificates TEXT NOT NULL,
    added_at BIGINT NOT NULL,
    added_by TEXT NOT NULL
);
CREATE INDEX endorsement_authorities_by_pool ON endorsement_authorities (pool_id, id);
