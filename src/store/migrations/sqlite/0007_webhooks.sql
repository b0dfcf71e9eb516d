-- Webhooks: how far each has delivered the event log.

CREATE TABLE webhooks (
    -- Of its table in the settings.
    name         TEXT    NOT NULL PRIMARY KEY,
    -- JSON: which events it delivers.
    selection    TEXT    NOT NULL,
    -- Keyed digest of its table.
    digest       TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    -- Cursor up to which the log was read.
    read_to      INTEGER NOT NULL,
    -- JSON: the cursors up to there that are not finished, with their attempts.
    open         TEXT    NOT NULL,
    delivered    INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    given_up     INTEGER NOT NULL,
    missed       INTEGER NOT NULL,
    delivered_at INTEGER,
    failed_at    INTEGER,
    failure      TEXT,
    stopped_at   INTEGER,
    removed_at   INTEGER
) STRICT, WITHOUT ROWID;

-- Events that were given up after their last attempt.
CREATE TABLE dead_letters (
    webhook     TEXT    NOT NULL,
    cursor      INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    session_key TEXT,
    run_id      BLOB,
    attempts    INTEGER NOT NULL,
    failure     TEXT    NOT NULL,
    died_at     INTEGER NOT NULL,
    -- Number of the request to deliver it again that it waits for.
    replay      INTEGER,
    -- The message: the event itself may be gone.
    body        TEXT    NOT NULL,
    PRIMARY KEY (webhook, cursor)
) STRICT, WITHOUT ROWID;
