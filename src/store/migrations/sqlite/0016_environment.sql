-- What runs have in their environment beside what every program gets.

-- The names and who has set each, JSON; they stay with the run.
ALTER TABLE runs ADD COLUMN env TEXT;

-- What the names stand for. A value that somebody gave is sealed, and goes with the end of its
-- run; where a value is read from stays, so that the run can be done again.
CREATE TABLE run_values (
    run_id    BLOB    NOT NULL,
    name      TEXT    NOT NULL,
    -- It is taken out of whatever the run says.
    secret    INTEGER NOT NULL CHECK (secret = 0 OR secret = 1),
    -- `env:NAME`, `file:/PATH` or `cred:NAME`.
    reference TEXT,
    sealed    BLOB,
    -- Why there is no value, where the run holds still for it.
    lacking   TEXT,
    PRIMARY KEY (run_id, name),
    CHECK (reference IS NULL OR sealed IS NULL)
) STRICT, WITHOUT ROWID;

-- Runs whose environment programs may carry: from their start until they have ended and none of
-- their processes is left.
CREATE TABLE applied_environments (
    run_id BLOB NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
