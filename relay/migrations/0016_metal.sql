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
    -- What the verb was asked with, in JSON.
    options TEXT NOT NULL,
    -- What the system that is deployed is to find, sealed to this row.
    sealed_user_data TEXT,
    -- Somebody's data may be on its disks: it is not available before they were erased.
    tainted BIGINT NOT NULL,
    -- A start of the agent: the path of its image and its join token, sealed to this row; the digest of the path; the token's id;
    -- and the key that the agent has joined with, whose certificates are the ones that count.
    sealed_boot TEXT,
    boot_path_sha256 ID,
    boot_token ID,
    agent_key ID,
    -- The token that the installed bcd joins by.
    install_token ID,
    -- What the agent is at, of metal_steps.
    agent_step ID,
    -- Raised by each worker that takes the machine; what one with another fence writes counts for nothing.
    fence BIGINT NOT NULL,
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE INDEX metal_by_pool ON metal (pool_id, node_id);
-- A BMC takes one caller: it is one machine's.
CREATE UNIQUE INDEX metal_by_bmc ON metal (site_id, address) WHERE state <> 'retired';
CREATE UNIQUE INDEX metal_by_boot ON metal (boot_path_sha256);

-- Each transition, by the id of its event.
CREATE TABLE metal_history (
    id ID PRIMARY KEY,
    node_id ID NOT NULL REFERENCES metal (node_id),
    -- The version that the machine had from then on: transitions of one moment have an order.
    version BIGINT NOT NULL,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    verb TEXT,
    from_state TEXT,
    to_state TEXT NOT NULL,
    reason TEXT,
    task_id ID
);
CREATE INDEX metal_history_by_node ON metal_history (node_id, version);

-- The step that a machine's agent is to do, or did last.
CREATE TABLE metal_steps (
    node_id ID PRIMARY KEY REFERENCES metal (node_id),
    id ID NOT NULL,
    kind TEXT NOT NULL,
    -- What to do, in JSON, sealed to this row: there are tokens in it.
    sealed_work TEXT NOT NULL,
    state TEXT NOT NULL,
    progress TEXT,
    result TEXT,
    error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- A token may be for one machine: for its agent, or for the bcd that is installed in it.
ALTER TABLE join_tokens ADD COLUMN purpose TEXT NOT NULL DEFAULT 'node';
ALTER TABLE join_tokens ADD COLUMN node_id ID;
