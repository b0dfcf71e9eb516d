-- Sessions, runs, their journal, their announces and the event log.
-- Times are milliseconds since 1970 UTC, ids are 16-byte UUIDs, `seq` numbers come from the
-- one stored counter and give every list its order.
-- Checks compare word by word: an IN list of more than two makes SQLite build a table for it
-- at every write.

CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE counters (
    name  TEXT    NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value) VALUES ('seq', 0);

-- One row for each life of the daemon; `ended_at` is set by a clean stop only.
CREATE TABLE boots (
    seq        INTEGER NOT NULL PRIMARY KEY,
    id         BLOB    NOT NULL,
    pid        INTEGER NOT NULL,
    version    TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER
) STRICT;

CREATE TABLE sessions (
    seq        INTEGER NOT NULL PRIMARY KEY,
    id         BLOB    NOT NULL UNIQUE,
    org        TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    owner      TEXT    NOT NULL CHECK (owner IN ('agent', 'client')),
    agent      TEXT    NOT NULL,
    parent_id  BLOB,
    parent_key TEXT,
    root_id    BLOB    NOT NULL,
    depth      INTEGER NOT NULL,
    label      TEXT,
    title      TEXT,
    model      TEXT,
    cwd        TEXT,
    messages   INTEGER NOT NULL,
    -- Summed at each answer, so that showing a session never adds up its history.
    model_calls   INTEGER NOT NULL DEFAULT 0,
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ver        INTEGER NOT NULL,
    UNIQUE (org, key)
) STRICT;

CREATE INDEX sessions_by_parent ON sessions (parent_id, seq) WHERE parent_id IS NOT NULL;
CREATE INDEX sessions_by_label ON sessions (org, label, seq) WHERE label IS NOT NULL;
CREATE INDEX sessions_main ON sessions (org, seq) WHERE parent_id IS NULL;

CREATE TABLE messages (
    session_id   BLOB    NOT NULL REFERENCES sessions (id),
    seq          INTEGER NOT NULL,
    generation   INTEGER NOT NULL,
    id           BLOB    NOT NULL,
    at           INTEGER NOT NULL,
    role         TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    origin       TEXT    NOT NULL,
    run_id       BLOB,
    content      TEXT    NOT NULL,
    tool_call    TEXT,
    announce_id  BLOB,
    silent       INTEGER NOT NULL,
    metadata     TEXT,
    PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;

-- A run's end is told once, whatever the code above believes.
CREATE UNIQUE INDEX messages_one_announce ON messages (announce_id) WHERE announce_id IS NOT NULL;

CREATE TABLE runs (
    seq                  INTEGER NOT NULL PRIMARY KEY,
    id                   BLOB    NOT NULL UNIQUE,
    org                  TEXT    NOT NULL,
    user                 TEXT    NOT NULL,
    session_id           BLOB    NOT NULL REFERENCES sessions (id),
    session_key          TEXT    NOT NULL,
    generation           INTEGER NOT NULL,
    requester_id         BLOB,
    requester_key        TEXT,
    requester_generation INTEGER,
    parent_run           BLOB,
    root_run             BLOB    NOT NULL,
    root_session         BLOB    NOT NULL,
    origin               TEXT    NOT NULL CHECK
        (origin = 'spawn' OR origin = 'turn' OR origin = 'wake'),
    agent                TEXT    NOT NULL,
    label                TEXT,
    title                TEXT    NOT NULL,
    model                TEXT    NOT NULL,
    lane                 TEXT    NOT NULL,
    depth                INTEGER NOT NULL,
    cwd                  TEXT,
    state                TEXT    NOT NULL CHECK
        (state = 'queued' OR state = 'running' OR state = 'paused' OR state = 'settling' OR
         state = 'ok' OR state = 'error' OR state = 'timeout' OR state = 'cancelled' OR
         state = 'interrupted'),
    pause                TEXT,
    cancel_by            TEXT,
    cancel_at            INTEGER,
    error_kind           TEXT,
    error_message        TEXT,
    result               TEXT,
    limit_ms             INTEGER,
    used_ms              INTEGER NOT NULL,
    counting_since       INTEGER,
    recoveries           INTEGER NOT NULL,
    not_before           INTEGER,
    announce             TEXT    NOT NULL,
    loops                INTEGER NOT NULL,
    tool_calls           INTEGER NOT NULL,
    steps                INTEGER NOT NULL,
    model_calls          INTEGER NOT NULL,
    input_tokens         INTEGER NOT NULL,
    output_tokens        INTEGER NOT NULL,
    meta                 TEXT,
    pin_agent            TEXT    NOT NULL,
    pin_tools            TEXT    NOT NULL,
    warnings             TEXT    NOT NULL,
    trace_id             TEXT    NOT NULL,
    input                TEXT,
    created_at           INTEGER NOT NULL,
    started_at           INTEGER,
    ended_at             INTEGER,
    last_activity_at     INTEGER NOT NULL,
    ver                  INTEGER NOT NULL,
    CHECK ((ended_at IS NULL) =
        (state = 'queued' OR state = 'running' OR state = 'paused' OR state = 'settling')),
    CHECK ((pause IS NOT NULL) = (state = 'paused'))
) STRICT;

CREATE INDEX runs_by_session ON runs (session_id, seq);
CREATE INDEX runs_by_requester ON runs (requester_id, seq) WHERE requester_id IS NOT NULL;
CREATE INDEX runs_by_label ON runs (org, label, seq) WHERE label IS NOT NULL;
CREATE INDEX runs_by_root ON runs (root_run, seq) WHERE root_run <> id;
CREATE INDEX runs_live ON runs (seq) WHERE ended_at IS NULL;
CREATE INDEX runs_live_by_requester ON runs (requester_id)
    WHERE ended_at IS NULL AND requester_id IS NOT NULL;
CREATE INDEX runs_live_by_session ON runs (session_id) WHERE ended_at IS NULL;
-- A session has one turn at a time, and one waiting wake run at most.
CREATE UNIQUE INDEX runs_one_turn ON runs (session_id) WHERE state = 'running';
CREATE UNIQUE INDEX runs_one_wake ON runs (session_id) WHERE state = 'queued' AND origin = 'wake';

-- Terminal stays terminal.
CREATE TRIGGER runs_terminal_stays
BEFORE UPDATE OF state, ended_at, result, error_kind ON runs
WHEN OLD.ended_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a terminal run does not change');
END;

CREATE TABLE steps (
    run_id         BLOB    NOT NULL REFERENCES runs (id),
    seq            INTEGER NOT NULL,
    id             BLOB    NOT NULL,
    kind           TEXT    NOT NULL,
    tool           TEXT,
    tool_call      TEXT,
    asked_by       BLOB,
    effect         TEXT    NOT NULL,
    state          TEXT    NOT NULL CHECK
        (state = 'intended' OR state = 'started' OR state = 'done' OR state = 'failed' OR
         state = 'uncertain'),
    input          TEXT    NOT NULL,
    seen_up_to     INTEGER,
    message_seq    INTEGER,
    params_summary TEXT,
    result_summary TEXT,
    error          TEXT,
    attempts       INTEGER NOT NULL,
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    PRIMARY KEY (run_id, seq),
    CHECK ((ended_at IS NULL) = (state IN ('intended', 'started')))
) STRICT, WITHOUT ROWID;

-- A step has one outcome.
CREATE TRIGGER steps_outcome_stays
BEFORE UPDATE ON steps
WHEN OLD.ended_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a step with an outcome does not change');
END;

CREATE TABLE outbox (
    seq               INTEGER NOT NULL PRIMARY KEY,
    run_id            BLOB    NOT NULL UNIQUE REFERENCES runs (id),
    announce_id       BLOB    NOT NULL UNIQUE,
    org               TEXT    NOT NULL,
    target_session    BLOB    NOT NULL,
    target_generation INTEGER NOT NULL,
    policy            TEXT    NOT NULL CHECK (policy IN ('wake', 'inbox')),
    state             TEXT    NOT NULL CHECK
        (state = 'pending' OR state = 'delivered' OR state = 'undelivered'),
    message_seq       INTEGER,
    created_at        INTEGER NOT NULL,
    delivered_at      INTEGER,
    acked_at          INTEGER,
    CHECK ((state = 'delivered') = (message_seq IS NOT NULL))
) STRICT;

CREATE INDEX outbox_by_target ON outbox (target_session, seq);
CREATE INDEX outbox_pending ON outbox (target_session, seq) WHERE state = 'pending';
CREATE INDEX outbox_undelivered ON outbox (seq) WHERE state = 'undelivered';
CREATE INDEX outbox_unacked ON outbox (target_session)
    WHERE policy = 'inbox' AND acked_at IS NULL;

CREATE TABLE events (
    cursor        INTEGER NOT NULL PRIMARY KEY,
    at            INTEGER NOT NULL,
    kind          TEXT    NOT NULL,
    org           TEXT    NOT NULL,
    session_id    BLOB,
    run_id        BLOB,
    parent_run    BLOB,
    data          TEXT    NOT NULL
) STRICT;

CREATE TABLE idempotency (
    scope      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    digest     BLOB    NOT NULL,
    run_id     BLOB    NOT NULL,
    answer     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

-- Bodies that runs pin, by the hash of their content.
CREATE TABLE blobs (
    hash TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
