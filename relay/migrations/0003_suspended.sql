-- What a banned node held when it was banned: exactly that comes back with an unban.
CREATE TABLE suspended_identities (
    node_id ID NOT NULL REFERENCES nodes (id),
    kind ID NOT NULL,
    value ID NOT NULL,
    PRIMARY KEY (node_id, kind, value)
);
INSERT INTO suspended_identities (node_id, kind, value)
    SELECT b.node_id, b.kind, b.value FROM bans b JOIN nodes n ON n.id = b.node_id
    WHERE n.state = 'banned' AND b.kind IN ('key', 'ekSha256');
