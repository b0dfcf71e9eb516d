-- The schema of a store. Ids are UUIDs as 16 bytes, times are milliseconds since 1970, `seq` orders
-- the rows of a table and is never used again. `org` and `root` columns stand on the rows of
-- tenants, so that a query names them.

-- What is known of the store as a whole: its id and the like.
CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The last number given out. Events and rows that have a `seq` share one counter.
CREATE TABLE counters (
    name  TEXT    NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value) VALUES ('seq', 0);

-- Processes that have opened the store.
CREATE TABLE boots (
    seq        INTEGER NOT NULL PRIMARY KEY,
    id         BLOB    NOT NULL,
    pid        INTEGER NOT NULL,
    version    TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    -- NULL: it runs, or was killed.
    ended_at   INTEGER,
    alive_ms   INTEGER NOT NULL DEFAULT 0
) STRICT;

-- ------------------------------------------------------------------------------- sessions

CREATE TABLE sessions (
    seq             INTEGER NOT NULL PRIMARY KEY,
    id              BLOB    NOT NULL UNIQUE,
    org             TEXT    NOT NULL,
    key             TEXT    NOT NULL,
    -- Raised by each reset; messages of earlier generations are history only.
    generation      INTEGER NOT NULL,
    owner           TEXT    NOT NULL CHECK (owner IN ('agent', 'client')),
    agent           TEXT    NOT NULL,
    parent_id       BLOB,
    parent_key      TEXT,
    root_id         BLOB    NOT NULL,
    depth           INTEGER NOT NULL,
    fork_of         BLOB,
    fork_generation INTEGER,
    fork_seq        INTEGER,
    label           TEXT,
    title           TEXT,
    model           TEXT,
    thinking        TEXT,
    cwd             TEXT,
    -- `run`: for one task; `session`: stays open for more.
    mode            TEXT    NOT NULL CHECK (mode = 'run' OR mode = 'session'),
    -- Whether it is deleted once everything in it was delivered.
    cleanup         TEXT    NOT NULL CHECK (cleanup = 'keep' OR cleanup = 'delete'),
    archived_at     INTEGER,
    -- Summed with each message and answer: showing a session never adds up its history.
    messages        INTEGER NOT NULL,
    model_calls     INTEGER NOT NULL DEFAULT 0,
    input_tokens    INTEGER NOT NULL DEFAULT 0,
    output_tokens   INTEGER NOT NULL DEFAULT 0,
    cost_micros     INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    ver             INTEGER NOT NULL,
    UNIQUE (org, key)
) STRICT;

CREATE INDEX sessions_by_parent ON sessions (parent_id, seq) WHERE parent_id IS NOT NULL;
CREATE INDEX sessions_by_label ON sessions (org, label, seq) WHERE label IS NOT NULL;
-- Lists leave out archived sessions: root sessions and children have an index each, so that a
-- session is in one of them.
CREATE INDEX sessions_main ON sessions (org, seq) WHERE parent_id IS NULL AND archived_at IS NULL;
CREATE INDEX sessions_children ON sessions (org, seq)
    WHERE parent_id IS NOT NULL AND archived_at IS NULL;

-- Deleted sessions whose rows are still being removed.
CREATE TABLE purges (
    session_id BLOB    NOT NULL PRIMARY KEY,
    deleted_at INTEGER NOT NULL,
    run_seq    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Resets and deletions that wait for the last open run of their session.
CREATE TABLE clearings (
    session_id BLOB    NOT NULL PRIMARY KEY,
    what       TEXT    NOT NULL CHECK (what = 'reset' OR what = 'delete'),
    asked_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Sessions whose work was cancelled: until a new turn of a person, agents may not begin work there.
CREATE TABLE stops (
    session_id BLOB    NOT NULL PRIMARY KEY,
    -- 1: a person asked for it, and no agent may begin work there.
    by_person  INTEGER NOT NULL CHECK (by_person = 0 OR by_person = 1),
    at         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What the runs of a session may do at most, decided when it was spawned.
CREATE TABLE bundles (
    session_id BLOB NOT NULL PRIMARY KEY,
    body       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE messages (
    session_id  BLOB    NOT NULL,
    seq         INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    id          BLOB    NOT NULL,
    at          INTEGER NOT NULL,
    role        TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    origin      TEXT    NOT NULL,
    run_id      BLOB,
    content     TEXT    NOT NULL,
    tool_call   TEXT,
    child_run   BLOB,
    announce_id BLOB,
    silent      INTEGER NOT NULL,
    metadata    TEXT,
    PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;

-- An announce is delivered once.
CREATE UNIQUE INDEX messages_one_announce ON messages (announce_id) WHERE announce_id IS NOT NULL;
-- Each side of a called agent's exchange is recorded once.
CREATE UNIQUE INDEX messages_two_sides ON messages (child_run, tool_call, kind)
    WHERE kind = 'sub_agent_user' OR kind = 'sub_agent_ai';

-- ----------------------------------------------------------------------------------- runs

CREATE TABLE runs (
    seq                  INTEGER NOT NULL PRIMARY KEY,
    id                   BLOB    NOT NULL UNIQUE,
    org                  TEXT    NOT NULL,
    user                 TEXT    NOT NULL,
    -- Where it works, and whose request it is.
    session_id           BLOB    NOT NULL,
    session_key          TEXT    NOT NULL,
    generation           INTEGER NOT NULL,
    requester_id         BLOB,
    requester_key        TEXT,
    requester_generation INTEGER,
    parent_run           BLOB,
    root_run             BLOB    NOT NULL,
    root_session         BLOB    NOT NULL,
    depth                INTEGER NOT NULL,
    origin               TEXT    NOT NULL CHECK
        (origin = 'spawn' OR origin = 'turn' OR origin = 'wake' OR origin = 'send'),
    -- How it was delegated, and by which step and tool call of its parent run.
    face                 TEXT CHECK
        (face IS NULL OR face = 'task' OR face = 'subagent' OR face = 'call' OR face = 'plan'),
    for_step             INTEGER,
    for_call             TEXT,
    stream               TEXT CHECK
        (stream IS NULL OR stream = 'aggregated' OR stream = 'direct' OR stream = 'none'),
    -- The run that this one retries.
    retry_of             BLOB,
    trace_id             TEXT    NOT NULL,
    -- What is to be done, by whom, and with what.
    input                TEXT,
    label                TEXT,
    title                TEXT    NOT NULL,
    meta                 TEXT,
    agent                TEXT    NOT NULL,
    agent_name           TEXT,
    model                TEXT    NOT NULL,
    thinking             TEXT,
    cwd                  TEXT,
    env                  TEXT,
    pin_agent            TEXT    NOT NULL,
    pin_tools            TEXT    NOT NULL,
    pin_skills           TEXT,
    skills_version       INTEGER,
    bundle               TEXT,
    lane                 TEXT    NOT NULL,
    limit_ms             INTEGER,
    budget               TEXT,
    announce             TEXT    NOT NULL,
    on_uncertain         TEXT    NOT NULL DEFAULT 'report' CHECK
        (on_uncertain = 'report' OR on_uncertain = 'review' OR on_uncertain = 'retry'),
    -- Where it is.
    state                TEXT    NOT NULL CHECK
        (state = 'queued' OR state = 'running' OR state = 'paused' OR state = 'settling' OR
         state = 'ok' OR state = 'error' OR state = 'timeout' OR state = 'cancelled' OR
         state = 'interrupted'),
    pause                TEXT,
    not_before           INTEGER,
    recoveries           INTEGER NOT NULL,
    -- Running time: what was used before `counting_since`, NULL while it does not run.
    used_ms              INTEGER NOT NULL,
    counting_since       INTEGER,
    cancel_by            TEXT,
    cancel_at            INTEGER,
    cancel_reason        TEXT,
    cancel_inherited     INTEGER NOT NULL DEFAULT 0,
    cancel_person        INTEGER NOT NULL DEFAULT 0,
    error_kind           TEXT,
    error_message        TEXT,
    result               TEXT,
    warnings             TEXT    NOT NULL,
    -- What it has used; `spent_*` counts its finished children, too.
    loops                INTEGER NOT NULL,
    steps                INTEGER NOT NULL,
    tool_calls           INTEGER NOT NULL,
    model_calls          INTEGER NOT NULL,
    input_tokens         INTEGER NOT NULL,
    output_tokens        INTEGER NOT NULL,
    cost_micros          INTEGER NOT NULL DEFAULT 0,
    spent_tokens         INTEGER NOT NULL DEFAULT 0,
    spent_micros         INTEGER NOT NULL DEFAULT 0,
    created_at           INTEGER NOT NULL,
    started_at           INTEGER,
    ended_at             INTEGER,
    last_activity_at     INTEGER NOT NULL,
    ver                  INTEGER NOT NULL,
    CHECK ((ended_at IS NULL) =
        (state = 'queued' OR state = 'running' OR state = 'paused' OR state = 'settling')),
    CHECK ((pause IS NOT NULL) = (state = 'paused'))
) STRICT;

-- Every spawn writes a page for each index that its row is in: one that is not asked often, or
-- only of few rows, is not worth it.
CREATE INDEX runs_by_session ON runs (session_id, seq);
CREATE INDEX runs_by_requester ON runs (requester_id, seq) WHERE requester_id IS NOT NULL;
CREATE INDEX runs_by_label ON runs (org, label, seq) WHERE label IS NOT NULL;
CREATE INDEX runs_by_root ON runs (root_run, seq) WHERE root_run <> id;
CREATE INDEX runs_delegated ON runs (parent_run, for_step) WHERE face IS NOT NULL;
-- Open runs: all of them, those of a session, those of a requester.
CREATE INDEX runs_live ON runs (seq) WHERE ended_at IS NULL;
CREATE INDEX runs_live_by_session ON runs (session_id) WHERE ended_at IS NULL;
CREATE INDEX runs_live_by_requester ON runs (requester_id)
    WHERE ended_at IS NULL AND requester_id IS NOT NULL;
-- A session does one turn at a time, and is woken once however many announces wait.
CREATE UNIQUE INDEX runs_one_turn ON runs (session_id) WHERE state = 'running';
CREATE UNIQUE INDEX runs_one_wake ON runs (session_id) WHERE state = 'queued' AND origin = 'wake';
-- Ended runs: for retention, and for the failure rate of an agent that is called.
CREATE INDEX runs_by_end ON runs (org, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX runs_ends_of_calls ON runs (org, agent, ended_at)
    WHERE face IS NOT NULL AND ended_at IS NOT NULL;

CREATE TRIGGER runs_terminal_stays
BEFORE UPDATE OF state, ended_at, result, error_kind ON runs
WHEN OLD.ended_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM quarantine WHERE mending = OLD.seq)
BEGIN
    SELECT RAISE(ABORT, 'a terminal run does not change');
END;

-- Scalar fields of `runs.meta`, for finding runs by them.
CREATE TABLE run_meta (
    org   TEXT    NOT NULL,
    name  TEXT    NOT NULL,
    value TEXT    NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (org, name, value, seq)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER runs_meta_added
AFTER INSERT ON runs
WHEN NEW.meta IS NOT NULL AND json_valid(NEW.meta) AND json_type(NEW.meta) = 'object'
BEGIN
    INSERT OR IGNORE INTO run_meta (org, name, value, seq)
    SELECT NEW.org, field.key,
        CASE field.type WHEN 'text' THEN 't' || field.value WHEN 'integer' THEN 'i' || field.value
            ELSE field.type END,
        NEW.seq
    FROM json_each(NEW.meta) AS field
    WHERE field.type IN ('text', 'integer', 'true', 'false');
END;

CREATE TRIGGER runs_meta_gone
AFTER DELETE ON runs
WHEN OLD.meta IS NOT NULL AND json_valid(OLD.meta) AND json_type(OLD.meta) = 'object'
BEGIN
    DELETE FROM run_meta WHERE org = OLD.org AND seq = OLD.seq AND name IN
        (SELECT field.key FROM json_each(OLD.meta) AS field)
        AND value IN (SELECT CASE field.type WHEN 'text' THEN 't' || field.value
            WHEN 'integer' THEN 'i' || field.value ELSE field.type END
            FROM json_each(OLD.meta) AS field);
END;

-- Runs that retention has removed: their ids are never taken again.
CREATE TABLE expired (
    run_id     BLOB    NOT NULL PRIMARY KEY,
    org        TEXT    NOT NULL,
    removed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The journal: intent, effect, outcome.
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
    -- The runs that it waits for, and until when.
    waits          TEXT,
    wait_until     INTEGER,
    used           TEXT,
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    PRIMARY KEY (run_id, seq),
    CHECK ((ended_at IS NULL) = (state IN ('intended', 'started')))
) STRICT, WITHOUT ROWID;

CREATE INDEX steps_todo ON steps (run_id, seq) WHERE tool = 'todo';

CREATE TRIGGER steps_outcome_stays
BEFORE UPDATE ON steps
WHEN OLD.ended_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a step with an outcome does not change');
END;

-- Which step of which run waits for the end of which run.
CREATE TABLE waits (
    awaited BLOB    NOT NULL,
    run_id  BLOB    NOT NULL,
    step    INTEGER NOT NULL,
    PRIMARY KEY (awaited, run_id, step)
) STRICT, WITHOUT ROWID;

CREATE INDEX waits_by_step ON waits (run_id, step);

-- Texts for a run that works; `message_seq` once they are in its transcript.
CREATE TABLE steers (
    run_id      BLOB    NOT NULL REFERENCES runs (id),
    seq         INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    text        TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    message_seq INTEGER,
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;

-- Results that are too long for the transcript, in parts.
CREATE TABLE outputs (
    run_id     BLOB    NOT NULL,
    step       INTEGER NOT NULL,
    session_id BLOB    NOT NULL,
    tool_call  TEXT    NOT NULL,
    -- How long the result was, and how much of it is kept.
    bytes      INTEGER NOT NULL,
    kept       INTEGER NOT NULL,
    kept_at    INTEGER NOT NULL,
    PRIMARY KEY (run_id, step)
) STRICT, WITHOUT ROWID;

CREATE INDEX outputs_by_call ON outputs (session_id, tool_call);

CREATE TABLE output_parts (
    run_id BLOB    NOT NULL,
    step   INTEGER NOT NULL,
    -- Offset in bytes.
    place  INTEGER NOT NULL,
    body   TEXT    NOT NULL,
    PRIMARY KEY (run_id, step, place)
) STRICT, WITHOUT ROWID;

-- The environment overlay of open runs.
CREATE TABLE run_values (
    run_id    BLOB    NOT NULL,
    name      TEXT    NOT NULL,
    -- 1: it is masked wherever the run writes it.
    secret    INTEGER NOT NULL CHECK (secret = 0 OR secret = 1),
    -- `env:NAME`, `file:/PATH` or `cred:NAME`.
    reference TEXT,
    sealed    BLOB,
    -- Why there is no value; the run is paused for it.
    lacking   TEXT,
    PRIMARY KEY (run_id, name),
    CHECK (reference IS NULL OR sealed IS NULL)
) STRICT, WITHOUT ROWID;

-- Runs whose programs may carry their overlay now.
CREATE TABLE applied_environments (
    run_id BLOB NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Texts that many rows share, by their hash.
CREATE TABLE blobs (
    hash    TEXT    NOT NULL PRIMARY KEY,
    body    TEXT    NOT NULL,
    used_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- ------------------------------------------------------------------- calls and deliveries

CREATE TABLE idempotency (
    scope      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    -- Of the parameters: the same key with others is a conflict.
    digest     BLOB    NOT NULL,
    run_id     BLOB    NOT NULL,
    answer     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_by_run ON idempotency (run_id);

-- Ends of runs, for the sessions that asked for them.
CREATE TABLE outbox (
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

CREATE INDEX outbox_by_target ON outbox (target_session, seq);
CREATE INDEX outbox_pending ON outbox (target_session, seq) WHERE state = 'pending';
CREATE INDEX outbox_undelivered ON outbox (seq) WHERE state = 'undelivered';
CREATE INDEX outbox_held ON outbox (target_session) WHERE state = 'undelivered';
CREATE INDEX outbox_unacked ON outbox (target_session)
    WHERE policy = 'inbox' AND acked_at IS NULL;

-- Messages from session to session, and the bounded exchange of replies.
CREATE TABLE sends (
    run_id           BLOB    NOT NULL PRIMARY KEY,
    -- The first turn of the exchange that this one belongs to, and its place in it.
    first_run        BLOB    NOT NULL,
    turn             INTEGER NOT NULL,
    -- The session whose message is answered; NULL: a client's.
    from_id          BLOB,
    from_key         TEXT,
    -- The session that began the exchange and receives a late reply, if there is one.
    asker_id         BLOB,
    asker_generation INTEGER,
    -- The sessions that the message has come through, JSON.
    chain            TEXT    NOT NULL,
    -- Until when the call of a client waits for the reply; NULL: none waits.
    window_until     INTEGER,
    -- `open`: the turn has not ended; `due`: it has, and what follows is still to be done.
    state            TEXT    NOT NULL CHECK (state = 'open' OR state = 'due' OR state = 'done')
) STRICT, WITHOUT ROWID;

CREATE INDEX sends_by_exchange ON sends (first_run, turn);
CREATE INDEX sends_unfinished ON sends (asker_id) WHERE state <> 'done' AND asker_id IS NOT NULL;
CREATE INDEX sends_due ON sends (run_id) WHERE state = 'due';
CREATE INDEX sends_windows ON sends (run_id) WHERE window_until IS NOT NULL;

-- The event log. Cursors come from the counter and are never used again.
CREATE TABLE events (
    cursor      INTEGER NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    org         TEXT    NOT NULL,
    session_id  BLOB,
    session_key TEXT,
    run_id      BLOB,
    parent_run  BLOB,
    root_run    BLOB,
    trace_id    TEXT,
    data        TEXT    NOT NULL
) STRICT;

CREATE TABLE events_expired (
    up_to INTEGER NOT NULL
) STRICT;

INSERT INTO events_expired (up_to) VALUES (0);

CREATE TRIGGER events_expire
AFTER DELETE ON events
BEGIN
    UPDATE events_expired SET up_to = OLD.cursor WHERE up_to < OLD.cursor;
END;

CREATE TABLE audit (
    seq       INTEGER NOT NULL PRIMARY KEY,
    at        INTEGER NOT NULL,
    org       TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    method    TEXT    NOT NULL,
    -- The run, session or other thing that it was about.
    object    TEXT,
    -- `ok`, or the kind of the refusal.
    outcome   TEXT    NOT NULL
) STRICT;

-- --------------------------------------------------------------------------------- people

CREATE TABLE questions (
    id           BLOB    NOT NULL PRIMARY KEY,
    seq          INTEGER NOT NULL UNIQUE,
    org          TEXT    NOT NULL,
    run_id       BLOB    NOT NULL,
    step         INTEGER NOT NULL,
    session_id   BLOB    NOT NULL,
    root_session BLOB    NOT NULL,
    text         TEXT    NOT NULL,
    choices      TEXT    NOT NULL,
    asked_at     INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    state        TEXT    NOT NULL CHECK
        (state = 'open' OR state = 'answered' OR state = 'expired' OR state = 'closed'),
    answer       TEXT,
    answered_by  TEXT,
    ended_at     INTEGER,
    CHECK ((ended_at IS NULL) = (state = 'open')),
    CHECK ((answer IS NOT NULL) = (state = 'answered'))
) STRICT, WITHOUT ROWID;

CREATE INDEX questions_by_run ON questions (run_id, step);
CREATE INDEX questions_open ON questions (root_session, seq) WHERE state = 'open';
CREATE INDEX questions_by_root ON questions (root_session, seq);
CREATE INDEX questions_by_session ON questions (session_id, seq);

CREATE TRIGGER questions_end_stays
BEFORE UPDATE ON questions
WHEN OLD.ended_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a question that is over does not change');
END;

CREATE TABLE approvals (
    id           BLOB    NOT NULL PRIMARY KEY,
    seq          INTEGER NOT NULL UNIQUE,
    org          TEXT    NOT NULL,
    run_id       BLOB    NOT NULL,
    step         INTEGER NOT NULL,
    session_id   BLOB    NOT NULL,
    root_session BLOB    NOT NULL,
    agent        TEXT    NOT NULL,
    tool         TEXT    NOT NULL,
    arguments    TEXT    NOT NULL,
    -- The rule that asks, and what of the tool a remembered decision covers ('': every call).
    why          TEXT    NOT NULL,
    covers       TEXT    NOT NULL,
    asked_at     INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    state        TEXT    NOT NULL CHECK (state = 'open' OR state = 'allowed' OR state = 'denied'
                                         OR state = 'expired' OR state = 'closed'),
    resolved_by  TEXT,
    remember     TEXT,
    ended_at     INTEGER,
    CHECK ((ended_at IS NULL) = (state = 'open')),
    CHECK ((resolved_by IS NOT NULL) = (state = 'allowed' OR state = 'denied')),
    CHECK (remember IS NULL OR remember = 'session' OR remember = 'agent')
) STRICT, WITHOUT ROWID;

CREATE INDEX approvals_by_run ON approvals (run_id, step);
CREATE INDEX approvals_open ON approvals (root_session, seq) WHERE state = 'open';
CREATE INDEX approvals_by_root ON approvals (root_session, seq);
CREATE INDEX approvals_by_session ON approvals (session_id, seq);

CREATE TRIGGER approvals_end_stays
BEFORE UPDATE ON approvals
WHEN OLD.ended_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'an approval that is over does not change');
END;

-- Decisions on calls that count for later calls, too.
CREATE TABLE remembered (
    id         BLOB    NOT NULL PRIMARY KEY,
    seq        INTEGER NOT NULL UNIQUE,
    org        TEXT    NOT NULL,
    scope      TEXT    NOT NULL CHECK (scope = 'session' OR scope = 'agent'),
    session_id BLOB    NOT NULL,
    agent      TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    covers     TEXT    NOT NULL,
    choice     TEXT    NOT NULL CHECK (choice = 'allow' OR choice = 'deny'),
    decided_by TEXT    NOT NULL,
    decided_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX remembered_by_tool ON remembered (org, tool, covers);
CREATE INDEX remembered_by_session ON remembered (session_id);

-- --------------------------------------------------------------------------- definitions

CREATE TABLE agents (
    org        TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    -- The definition as its client gave it, and its format.
    format     TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;

-- The last set of agents that was announced by an event.
CREATE TABLE agent_sets (
    org        TEXT    NOT NULL PRIMARY KEY,
    agents     TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE trusted_projects (
    org        TEXT    NOT NULL,
    folder     TEXT    NOT NULL,
    hash       TEXT    NOT NULL,
    user       TEXT    NOT NULL,
    trusted_at INTEGER NOT NULL,
    PRIMARY KEY (org, folder)
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_servers (
    name   TEXT NOT NULL PRIMARY KEY,
    -- Of how it is started or reached: the tools of another server of that name do not count.
    digest TEXT NOT NULL,
    tools  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE skill_sets (
    org        TEXT    NOT NULL,
    workspace  TEXT    NOT NULL,
    hash       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (org, workspace)
) STRICT, WITHOUT ROWID;

-- Which pinned snapshots of skills use which texts.
CREATE TABLE skill_bodies (
    pinned TEXT NOT NULL,
    body   TEXT NOT NULL,
    PRIMARY KEY (pinned, body)
) STRICT, WITHOUT ROWID;

CREATE INDEX skill_bodies_by_body ON skill_bodies (body);

-- -------------------------------------------------------------------------- memory, usage

CREATE TABLE memories (
    seq     INTEGER NOT NULL PRIMARY KEY,
    id      BLOB    NOT NULL UNIQUE,
    org     TEXT    NOT NULL,
    -- The name space: an agent, or its ancestors and itself, separated by `/`.
    space   TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    -- Hash of the body, so that the same memory is kept once.
    digest  BLOB    NOT NULL,
    source  TEXT    NOT NULL CHECK (source = 'tool' OR source = 'compaction'),
    run_id  BLOB    NOT NULL,
    kept_at INTEGER NOT NULL,
    UNIQUE (org, space, digest)
) STRICT;

CREATE INDEX memories_by_space ON memories (org, space, seq);
CREATE INDEX memories_by_org ON memories (org, seq);

CREATE VIRTUAL TABLE memory_words USING fts5
    (words, content='', contentless_delete=1, tokenize='porter unicode61');

CREATE TABLE usage_runs (
    org     TEXT    NOT NULL,
    -- Hours since 1970.
    hour    INTEGER NOT NULL,
    user    TEXT    NOT NULL,
    agent   TEXT    NOT NULL,
    model   TEXT    NOT NULL,
    outcome TEXT    NOT NULL CHECK (outcome = 'ok' OR outcome = 'failed' OR outcome = 'cancelled'),
    -- A range of durations from accepted to ended, in milliseconds: eight ranges for each power
    -- of two.
    bucket  INTEGER NOT NULL,
    runs    INTEGER NOT NULL,
    PRIMARY KEY (org, hour, user, agent, model, outcome, bucket)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_models (
    org           TEXT    NOT NULL,
    hour          INTEGER NOT NULL,
    user          TEXT    NOT NULL,
    agent         TEXT    NOT NULL,
    -- The model that has answered.
    model         TEXT    NOT NULL,
    calls         INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_micros   INTEGER NOT NULL,
    PRIMARY KEY (org, hour, user, agent, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_alerts (
    org  TEXT    NOT NULL,
    what TEXT    NOT NULL,
    hour INTEGER NOT NULL,
    PRIMARY KEY (org, what, hour)
) STRICT, WITHOUT ROWID;

-- --------------------------------------------------------------------------------- damage

-- Rows that could not be read.
CREATE TABLE quarantine (
    seq     INTEGER NOT NULL PRIMARY KEY,
    source  TEXT    NOT NULL,
    key     TEXT    NOT NULL,
    row     TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    -- `mended`: what could be read of it stays in its table; `moved`: only here;
    -- `kept`: in both, unreadable.
    fate    TEXT    NOT NULL CHECK (fate = 'mended' OR fate = 'moved' OR fate = 'kept'),
    at      INTEGER NOT NULL,
    -- The place of a run that is being repaired, for the time of that transaction.
    mending INTEGER
) STRICT;

CREATE INDEX quarantine_by_key ON quarantine (source, key);
CREATE INDEX quarantine_mending ON quarantine (mending) WHERE mending IS NOT NULL;
