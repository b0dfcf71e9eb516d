-- What subscribers of the event log are shown and choose by stands in the event itself: a
-- session's key and a run's tree are known also when their rows are gone.

ALTER TABLE events ADD COLUMN session_key TEXT;
ALTER TABLE events ADD COLUMN root_run BLOB;
ALTER TABLE events ADD COLUMN trace_id TEXT;

UPDATE events SET
    session_key = (SELECT key FROM sessions WHERE id = events.session_id),
    parent_run = coalesce(parent_run, (SELECT parent_run FROM runs WHERE id = events.run_id)),
    root_run = (SELECT root_run FROM runs WHERE id = events.run_id),
    trace_id = (SELECT trace_id FROM runs WHERE id = events.run_id);

-- Whoever deletes events: up to where the log is not whole any more stays known.
INSERT INTO counters (name, value) VALUES ('events_expired', 0);

CREATE TRIGGER events_expire
AFTER DELETE ON events
BEGIN
    UPDATE counters SET value = OLD.cursor
    WHERE name = 'events_expired' AND value < OLD.cursor;
END;
