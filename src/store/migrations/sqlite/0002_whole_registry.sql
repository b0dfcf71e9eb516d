-- Sessions can be deleted while the rows of their runs stay; announces can be steered, held and
-- dismissed; sends are runs of their own kind.
-- Checks and foreign keys of a table cannot be altered, so these four are made anew. Nothing
-- of them is lost.

CREATE TABLE new_sessions (
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
    -- `run`: for one task; `session`: stays open for more.
    mode       TEXT    NOT NULL CHECK (mode = 'run' OR mode = 'session'),
    -- What becomes of it once all is told.
    cleanup    TEXT    NOT NULL CHECK (cleanup = 'keep' OR cleanup = 'delete'),
    archived_at INTEGER,
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
INSERT INTO new_sessions (
    seq, id, org, key, generation, owner, agent, parent_id, parent_key, root_id, depth,
    label, title, model, cwd, messages, model_calls, input_tokens, output_tokens,
    created_at, updated_at, ver, mode, cleanup)
SELECT
    seq, id, org, key, generation, owner, agent, parent_id, parent_key, root_id, depth,
    label, title, model, cwd, messages, model_calls, input_tokens, output_tokens,
    created_at, updated_at, ver, CASE WHEN parent_id IS NULL THEN 'session' ELSE 'run' END,
    'keep'
FROM sessions;
DROP TABLE sessions;
ALTER TABLE new_sessions RENAME TO sessions;
CREATE INDEX sessions_by_parent ON sessions (parent_id, seq) WHERE parent_id IS NOT NULL;
CREATE INDEX sessions_by_label ON sessions (org, label, seq) WHERE label IS NOT NULL;
CREATE INDEX sessions_main ON sessions (org, seq) WHERE parent_id IS NULL;
-- What the sweep looks at: children that are neither archived nor gone.
CREATE INDEX sessions_unarchived ON sessions (seq)
    WHERE parent_id IS NOT NULL AND archived_at IS NULL;

-- Deleted sessions whose transcripts and journals are still being taken away, bit by bit.
CREATE TABLE purges (
    session_id BLOB    NOT NULL PRIMARY KEY,
    deleted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE new_messages (
    session_id   BLOB    NOT NULL,
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
INSERT INTO new_messages (
    session_id, seq, generation, id, at, role, kind, origin, run_id, content, tool_call,
    announce_id, silent, metadata)
SELECT
    session_id, seq, generation, id, at, role, kind, origin, run_id, content, tool_call,
    announce_id, silent, metadata
FROM messages;
DROP TABLE messages;
ALTER TABLE new_messages RENAME TO messages;
-- A run's end is told once, whatever the code above believes.
CREATE UNIQUE INDEX messages_one_announce ON messages (announce_id) WHERE announce_id IS NOT NULL;

CREATE TABLE new_runs (
    seq                  INTEGER NOT NULL PRIMARY KEY,
    id                   BLOB    NOT NULL UNIQUE,
    org                  TEXT    NOT NULL,
    user                 TEXT    NOT NULL,
    session_id           BLOB    NOT NULL,
    session_key          TEXT    NOT NULL,
    generation           INTEGER NOT NULL,
    requester_id         BLOB,
    requester_key        TEXT,
    requester_generation INTEGER,
    parent_run           BLOB,
    root_run             BLOB    NOT NULL,
    root_session         BLOB    NOT NULL,
    origin               TEXT    NOT NULL CHECK
        (origin = 'spawn' OR origin = 'turn' OR origin = 'wake' OR origin = 'send'),
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
    -- The run that this one does again.
    retry_of             BLOB,
    created_at           INTEGER NOT NULL,
    started_at           INTEGER,
    ended_at             INTEGER,
    last_activity_at     INTEGER NOT NULL,
    ver                  INTEGER NOT NULL,
    CHECK ((ended_at IS NULL) =
        (state = 'queued' OR state = 'running' OR state = 'paused' OR state = 'settling')),
    CHECK ((pause IS NOT NULL) = (state = 'paused'))
) STRICT;
INSERT INTO new_runs (
    seq, id, org, user, session_id, session_key, generation, requester_id, requester_key,
    requester_generation, parent_run, root_run, root_session, origin, agent, label, title,
    model, lane, depth, cwd, state, pause, cancel_by, cancel_at, error_kind, error_message,
    result, limit_ms, used_ms, counting_since, recoveries, not_before, announce, loops,
    tool_calls, steps, model_calls, input_tokens, output_tokens, meta, pin_agent, pin_tools,
    warnings, trace_id, input, created_at, started_at, ended_at, last_activity_at, ver)
SELECT
    seq, id, org, user, session_id, session_key, generation, requester_id, requester_key,
    requester_generation, parent_run, root_run, root_session, origin, agent, label, title,
    model, lane, depth, cwd, state, pause, cancel_by, cancel_at, error_kind, error_message,
    result, limit_ms, used_ms, counting_since, recoveries, not_before, announce, loops,
    tool_calls, steps, model_calls, input_tokens, output_tokens, meta, pin_agent, pin_tools,
    warnings, trace_id, input, created_at, started_at, ended_at, last_activity_at, ver
FROM runs;
DROP TABLE runs;
ALTER TABLE new_runs RENAME TO runs;
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

CREATE TABLE new_outbox (
    seq               INTEGER NOT NULL PRIMARY KEY,
    run_id            BLOB    NOT NULL UNIQUE REFERENCES runs (id),
    announce_id       BLOB    NOT NULL UNIQUE,
    org               TEXT    NOT NULL,
    target_session    BLOB    NOT NULL,
    target_generation INTEGER NOT NULL,
    policy            TEXT    NOT NULL CHECK (policy = 'wake' OR policy = 'inbox' OR policy = 'steer'),
    state             TEXT    NOT NULL CHECK
        (state = 'pending' OR state = 'delivered' OR state = 'undelivered' OR state = 'dismissed'),
    message_seq       INTEGER,
    -- Delivered as a tool's outcome (`tool`) instead of as an announce; why it is held.
    via               TEXT,
    held              TEXT,
    created_at        INTEGER NOT NULL,
    delivered_at      INTEGER,
    acked_at          INTEGER,
    CHECK ((state = 'delivered') = (message_seq IS NOT NULL))
) STRICT;
INSERT INTO new_outbox (
    seq, run_id, announce_id, org, target_session, target_generation, policy, state,
    message_seq, created_at, delivered_at, acked_at)
SELECT
    seq, run_id, announce_id, org, target_session, target_generation, policy, state,
    message_seq, created_at, delivered_at, acked_at
FROM outbox;
DROP TABLE outbox;
ALTER TABLE new_outbox RENAME TO outbox;
CREATE INDEX outbox_by_target ON outbox (target_session, seq);
CREATE INDEX outbox_pending ON outbox (target_session, seq) WHERE state = 'pending';
CREATE INDEX outbox_undelivered ON outbox (seq) WHERE state = 'undelivered';
CREATE INDEX outbox_unacked ON outbox (target_session)
    WHERE policy = 'inbox' AND acked_at IS NULL;
