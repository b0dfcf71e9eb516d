-- Calls of tools that need a person's leave, decisions that are remembered, and what spawned
-- runs may do at most.

-- The id is that of the step that is the call.
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
    -- Which rule asks, and what of the tool a remembered decision covers ('': every call).
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

-- An approval has one end.
CREATE TRIGGER approvals_end_stays
BEFORE UPDATE ON approvals
WHEN OLD.ended_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'an approval that is over does not change');
END;

-- Decisions that count for calls like the one that they were made for. They outlive the run;
-- those of a session go with it.
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

-- What the runs of a spawned session may do at most, JSON: copied from what spawned it, and
-- never changed.
CREATE TABLE bundles (
    session_id BLOB NOT NULL PRIMARY KEY,
    body       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Results of tools that were too long to be shown whole, in parts; they go with their run.
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
    -- Bytes before it.
    place  INTEGER NOT NULL,
    body   TEXT    NOT NULL,
    PRIMARY KEY (run_id, step, place)
) STRICT, WITHOUT ROWID;

-- The list of what a run has to do is its latest call of that tool.
CREATE INDEX steps_todo ON steps (run_id, seq) WHERE tool = 'todo';
