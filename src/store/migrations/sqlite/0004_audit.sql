-- Who changed what: one row for each call that changes something, in the transaction of what it
-- changed. Numbers come from the store's counter, so that they rise and have gaps.
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
