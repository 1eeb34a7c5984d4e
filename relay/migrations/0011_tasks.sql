-- Programs that work for the installation, one row each, kept while they ping.
CREATE TABLE components (
    type ID NOT NULL,
    identifier ID NOT NULL,
    version TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    interval_seconds BIGINT NOT NULL,
    subject ID NOT NULL,
    -- The token of the last ping, and when that token ends. The relay pings without one.
    token_id ID,
    token_expires_at BIGINT,
    created_at BIGINT NOT NULL,
    pinged_at BIGINT NOT NULL,
    PRIMARY KEY (type, identifier)
);
CREATE INDEX components_by_ping ON components (pinged_at);
CREATE INDEX components_by_subject ON components (subject);

-- What is to be done outside of the transaction that asked for it. All times are by the database's clock.
CREATE TABLE tasks (
    id ID PRIMARY KEY,
    queue ID NOT NULL,
    type ID NOT NULL,
    state ID NOT NULL,
    -- Tried once only, whatever comes of it.
    once BIGINT NOT NULL,
    -- Of tasks that have not ended, one alone has this key; absent where it may be asked for many times.
    task_key ID,
    payload TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    last_error TEXT,
    -- When a worker may take it: its next attempt, or the end of the lease of the worker that is at it. Absent once it ended.
    due_at BIGINT,
    -- When it is too late to begin.
    deadline BIGINT,
    -- Who is at it, or was. The fence grows with each that took it.
    holder TEXT NOT NULL,
    fence BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE UNIQUE INDEX tasks_by_open_key ON tasks (task_key) WHERE due_at IS NOT NULL;
CREATE INDEX tasks_by_due ON tasks (type, due_at);
CREATE INDEX tasks_by_state ON tasks (state, id);
CREATE INDEX tasks_by_count ON tasks (queue, state, created_at);
CREATE INDEX tasks_by_end ON tasks (state, ended_at);

-- The revocation list of each issuing CA as it was published last, DER in base64. It is derived from the nodes.
CREATE TABLE crls (
    issuer ID PRIMARY KEY,
    number BIGINT NOT NULL,
    der TEXT NOT NULL,
    made_at BIGINT NOT NULL
);
