-- What becomes of a run's effect that must not be repeated and may have happened.
ALTER TABLE runs ADD COLUMN on_uncertain TEXT NOT NULL DEFAULT 'report' CHECK
    (on_uncertain = 'report' OR on_uncertain = 'review' OR on_uncertain = 'retry');

-- Runs by the fields of their meta, for the lists that ask for them: texts (with a leading
-- `t`), whole numbers (`i`), `true` and `false`. Kept by the triggers alone.
CREATE TABLE run_meta (
    org   TEXT    NOT NULL,
    name  TEXT    NOT NULL,
    value TEXT    NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (org, name, value, seq)
) STRICT, WITHOUT ROWID;

INSERT OR IGNORE INTO run_meta (org, name, value, seq)
SELECT runs.org, field.key,
    CASE field.type WHEN 'text' THEN 't' || field.value WHEN 'integer' THEN 'i' || field.value
        ELSE field.type END,
    runs.seq
FROM runs, json_each(runs.meta) AS field
WHERE runs.meta IS NOT NULL AND json_valid(runs.meta) AND json_type(runs.meta) = 'object'
    AND field.type IN ('text', 'integer', 'true', 'false');

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
