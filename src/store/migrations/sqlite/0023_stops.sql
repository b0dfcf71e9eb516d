-- Sessions whose work was cancelled: until new work begins there, ends wake no agent.
CREATE TABLE stops (
    session_id BLOB    NOT NULL PRIMARY KEY,
    -- 1: a person asked for it, and no agent may begin work there.
    by_person  INTEGER NOT NULL CHECK (by_person = 0 OR by_person = 1),
    at         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE runs ADD COLUMN cancel_person INTEGER NOT NULL DEFAULT 0;

-- The last reading of this process's steady clock that was stored, milliseconds.
ALTER TABLE boots ADD COLUMN alive_ms INTEGER NOT NULL DEFAULT 0;
