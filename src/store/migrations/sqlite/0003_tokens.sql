-- Access tokens of users. The texts of the tokens are not stored.

CREATE TABLE tokens (
    id               BLOB    NOT NULL PRIMARY KEY,
    org              TEXT    NOT NULL,
    user             TEXT    NOT NULL,
    label            TEXT,
    -- BLAKE3 of the text, hexadecimal.
    hash             TEXT    NOT NULL,
    -- Names with commas.
    scopes           TEXT    NOT NULL,
    calls_per_minute INTEGER,
    connections      INTEGER,
    open_runs        INTEGER,
    created_by       TEXT    NOT NULL,
    created_at       INTEGER NOT NULL,
    expires_at       INTEGER,
    revoked_at       INTEGER,
    -- Written at most once a minute.
    used_at          INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX tokens_by_org ON tokens (org, id);
