-- Resets and deletions of sessions that were asked for while runs were open in them. Each is
-- carried out in the transaction in which the last of these runs ends, whoever is there then
-- to hear of it.

CREATE TABLE clearings (
    session_id BLOB    NOT NULL PRIMARY KEY,
    what       TEXT    NOT NULL CHECK (what = 'reset' OR what = 'delete'),
    asked_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
