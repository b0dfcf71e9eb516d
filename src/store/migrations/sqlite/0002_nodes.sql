-- Paired nodes: other machines on which this gateway runs programs and reads files.

CREATE TABLE nodes (
    id          BLOB    NOT NULL PRIMARY KEY,
    org         TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    -- Ed25519, hexadecimal.
    public_key  TEXT    NOT NULL,
    -- BLAKE3 of the token, hexadecimal; NULL until the node has received one.
    token_hash  TEXT,
    -- Number of pairings.
    generation  INTEGER NOT NULL,
    -- The next five are JSON.
    machine     TEXT    NOT NULL,
    offered     TEXT    NOT NULL,
    approved    TEXT    NOT NULL,
    denied      TEXT    NOT NULL,
    programs    TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    approved_by TEXT    NOT NULL,
    seen_at     INTEGER,
    -- A removed node stays, so that it can be told why it is refused.
    removed_at  INTEGER,
    ver         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX nodes_by_name ON nodes (org, name) WHERE removed_at IS NULL;
CREATE UNIQUE INDEX nodes_by_key ON nodes (public_key) WHERE removed_at IS NULL;

-- Invitations by setup code.
CREATE TABLE invites (
    -- BLAKE3 of the code, hexadecimal.
    code_hash  TEXT    NOT NULL PRIMARY KEY,
    org        TEXT    NOT NULL,
    name       TEXT,
    -- JSON.
    limits     TEXT    NOT NULL,
    created_by TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER,
    node       BLOB
) STRICT, WITHOUT ROWID;
