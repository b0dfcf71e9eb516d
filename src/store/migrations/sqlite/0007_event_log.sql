-- What subscribers of the event log are shown and choose by stands in the event itself: a
-- session's key and a run's tree are known also when their rows are gone.

ALTER TABLE events ADD COLUMN session_key TEXT;
ALTER TABLE events ADD COLUMN root_run BLOB;
ALTER TABLE events ADD COLUMN trace_id TEXT;

UPDATE events SET
    session_key = (SELECT key FROM sessions WHERE id = events.session_id),
    root_run = (SELECT root_run FROM runs WHERE id = events.run_id),
    trace_id = (SELECT trace_id FROM runs WHERE id = events.run_id);

-- Up to where the log is not whole any more; one row. Whoever deletes events need not think
-- of it.
CREATE TABLE events_expired (
    up_to INTEGER NOT NULL
) STRICT;

INSERT INTO events_expired (up_to) VALUES (0);

CREATE TRIGGER events_expire
AFTER DELETE ON events
BEGIN
    UPDATE events_expired SET up_to = OLD.cursor WHERE up_to < OLD.cursor;
END;
