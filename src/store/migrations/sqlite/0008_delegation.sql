-- Steps whose outcome comes from elsewhere, messages between sessions, questions to people.

-- What an open step waits for (`reply`, `child`, `any_child`, `answer`) and until when.
ALTER TABLE steps ADD COLUMN waits TEXT;
ALTER TABLE steps ADD COLUMN wait_until INTEGER;

-- What is waited for by open steps only: `awaited` is a run or a question.
CREATE TABLE waits (
    awaited BLOB    NOT NULL,
    run_id  BLOB    NOT NULL,
    step    INTEGER NOT NULL,
    PRIMARY KEY (awaited, run_id, step)
) STRICT, WITHOUT ROWID;
CREATE INDEX waits_by_step ON waits (run_id, step);

-- One row for each turn that answers a message of another session, beside its run.
CREATE TABLE sends (
    run_id           BLOB    NOT NULL PRIMARY KEY,
    -- The first turn of the exchange that this one belongs to, and its place in it.
    first_run        BLOB    NOT NULL,
    turn             INTEGER NOT NULL,
    -- Whose words are answered; NULL: a client's.
    from_id          BLOB,
    from_key         TEXT,
    -- Who began the exchange, and is told of a reply that comes late; NULL: nobody.
    asker_id         BLOB,
    asker_generation INTEGER,
    -- The sessions that the message has come through, JSON.
    chain            TEXT    NOT NULL,
    -- Until when a client's call waits for the reply; NULL: nobody does.
    window_until     INTEGER,
    -- `open`: the turn has not ended; `due`: it has, and what follows is still to be done.
    state            TEXT    NOT NULL CHECK (state = 'open' OR state = 'due' OR state = 'done')
) STRICT, WITHOUT ROWID;
CREATE INDEX sends_by_exchange ON sends (first_run, turn);
CREATE INDEX sends_unfinished ON sends (asker_id) WHERE state <> 'done' AND asker_id IS NOT NULL;
CREATE INDEX sends_due ON sends (run_id) WHERE state = 'due';
CREATE INDEX sends_windows ON sends (run_id) WHERE window_until IS NOT NULL;

-- The id is that of the step that asks.
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

-- A question has one end.
CREATE TRIGGER questions_end_stays
BEFORE UPDATE ON questions
WHEN OLD.ended_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a question that is over does not change');
END;
