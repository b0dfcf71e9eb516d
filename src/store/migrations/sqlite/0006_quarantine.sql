-- Rows that could not be read, as they were. `row` is JSON of every column, its bytes in
-- hexadecimal, so that nothing of them is lost.
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
    -- The place of a run that is being mended, for the time of that transaction.
    mending INTEGER
) STRICT;
CREATE INDEX quarantine_by_key ON quarantine (source, key);
CREATE INDEX quarantine_mending ON quarantine (mending) WHERE mending IS NOT NULL;

-- Terminal stays terminal, except for what cannot be read of a run whose row lies in quarantine.
DROP TRIGGER runs_terminal_stays;
CREATE TRIGGER runs_terminal_stays
BEFORE UPDATE OF state, ended_at, result, error_kind ON runs
WHEN OLD.ended_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM quarantine WHERE mending = OLD.seq)
BEGIN
    SELECT RAISE(ABORT, 'a terminal run does not change');
END;
