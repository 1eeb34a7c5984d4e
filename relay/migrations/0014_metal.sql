-- A machine that is known by its BMC, beside its node. The row of a node that has not joined yet has an empty key, token and
-- serial.
CREATE TABLE metal (
    node_id ID PRIMARY KEY REFERENCES nodes (id),
    pool_id ID NOT NULL REFERENCES pools (id),
    tenant_id ID NOT NULL,
    site_id ID NOT NULL,
    state ID NOT NULL,
    -- The state that the last verb found.
    began_from ID NOT NULL,
    -- The verb's task, until the machine has reached a state that is not transient.
    task_id ID,
    step TEXT,
    attempt BIGINT NOT NULL,
    deadline BIGINT,
    waiting_for TEXT,
    -- What the step remembers: what it asked of the BMC and when, in JSON; written before it asks.
    intent TEXT,
    last_error TEXT,
    skipped TEXT NOT NULL,
    -- An end was asked for; it comes at the next step's boundary.
    aborted BIGINT NOT NULL,
    -- A retirement that goes on where the BMC can't be reached.
    forced BIGINT NOT NULL,
    -- What the machine is to be switched to, while it is in no workflow.
    wanted_power TEXT,
    address ID NOT NULL,
    protocol TEXT NOT NULL,
    cipher_suite BIGINT NOT NULL,
    -- How the BMC's certificate is judged: pin, CA, first use or not at all, in JSON.
    tls TEXT NOT NULL,
    -- User and password, sealed to this row.
    sealed_credentials TEXT,
    -- How often in a row the BMC refused them, and when they are tried again.
    refusals BIGINT NOT NULL,
    retry_at BIGINT,
    expect_serial TEXT,
    vendor TEXT,
    firmware TEXT,
    virtual_media BIGINT NOT NULL,
    identity TEXT NOT NULL,
    hardware TEXT,
    power_state TEXT NOT NULL,
    -- Raised by each worker that takes the machine; what one with another fence writes counts for nothing.
    fence BIGINT NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX metal_by_pool ON metal (pool_id, node_id);
-- A BMC takes one caller: it is one machine's.
CREATE UNIQUE INDEX metal_by_bmc ON metal (site_id, address) WHERE state <> 'retired';

-- Each transition, by the id of its event.
CREATE TABLE metal_history (
    id ID PRIMARY KEY,
    node_id ID NOT NULL REFERENCES metal (node_id),
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    verb TEXT,
    from_state TEXT,
    to_state TEXT NOT NULL,
    reason TEXT,
    task_id ID
);
CREATE INDEX metal_history_by_node ON metal_history (node_id, id);
