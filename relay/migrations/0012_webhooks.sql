-- Where a tenant's events are sent to.
CREATE TABLE webhooks (
    id ID PRIMARY KEY,
    tenant_id ID NOT NULL REFERENCES tenants (id),
    url TEXT NOT NULL,
    -- Types of events, or their beginnings, as a JSON list.
    types TEXT NOT NULL,
    sealed_secret TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    -- Grows with each change: what became of an attempt counts for the webhook that it was made by alone.
    revision BIGINT NOT NULL,
    -- The number of the last event that was delivered or passed over.
    event_number BIGINT NOT NULL,
    delivered_at BIGINT,
    -- Of attempts that failed without a success after them: how many, since when by the database's clock, the last one's word.
    failures BIGINT NOT NULL,
    failing_since BIGINT,
    last_error TEXT,
    disabled_at BIGINT,
    disabled_reason TEXT
);
CREATE INDEX webhooks_of_tenant ON webhooks (tenant_id, id);
