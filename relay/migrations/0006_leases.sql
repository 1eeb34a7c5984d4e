-- Who does what only one relay of a store may do at a time. `until` is by the database's clock, and `fence` grows with every
-- holder, so that a former one is known.
CREATE TABLE leases (
    name ID PRIMARY KEY,
    holder TEXT NOT NULL,
    fence BIGINT NOT NULL,
    until BIGINT NOT NULL
);
