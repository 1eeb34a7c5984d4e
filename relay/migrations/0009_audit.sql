-- Who did what, and who was refused what: written with the change, sealed into batches later. The batch is absent until then.
CREATE TABLE audit (
    id ID PRIMARY KEY,
    occurred_at BIGINT NOT NULL,
    subject ID NOT NULL,
    token_id TEXT,
    created_by TEXT,
    tenant_id ID NOT NULL,
    action TEXT NOT NULL,
    method TEXT NOT NULL,
    resource TEXT NOT NULL,
    decision TEXT NOT NULL,
    code TEXT NOT NULL,
    client_address TEXT NOT NULL,
    request_id TEXT NOT NULL,
    left_out BIGINT NOT NULL,
    batch BIGINT
);
CREATE INDEX audit_by_tenant ON audit (tenant_id, id);
CREATE INDEX audit_by_subject ON audit (subject, id);
CREATE INDEX audit_by_batch ON audit (batch, id);

-- The chain: the ids of a batch's records, in order, each with its link. Where it begins and ends is in `meta`, signed.
CREATE TABLE audit_batches (
    number BIGINT PRIMARY KEY,
    key_id TEXT NOT NULL,
    entries TEXT NOT NULL,
    sealed_at BIGINT NOT NULL
);
