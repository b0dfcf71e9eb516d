-- MCP servers that a client has given to a session.

CREATE TABLE session_servers (
    session_id BLOB    NOT NULL,
    -- The name by which its tools begin.
    name       TEXT    NOT NULL,
    -- The name that the client gave it.
    given      TEXT    NOT NULL,
    transport  TEXT    NOT NULL,
    -- Keyed digest of how it is started or reached.
    digest     TEXT    NOT NULL,
    -- JSON, encrypted: how it is started or reached.
    sealed     BLOB    NOT NULL,
    -- JSON: its tools as it last listed them; null before the first time.
    tools      TEXT,
    -- Why it did not list its tools when it was last asked.
    problem    TEXT,
    set_at     INTEGER NOT NULL,
    PRIMARY KEY (session_id, name)
) STRICT, WITHOUT ROWID;
