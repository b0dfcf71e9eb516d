-- The skills of folders in which runs work, and what runs pin of them.

-- The version of what can be used in a folder; it rises when the hash becomes another, also by a
-- change that was made while the daemon was down, and never goes back.
CREATE TABLE skill_sets (
    org        TEXT    NOT NULL,
    workspace  TEXT    NOT NULL,
    hash       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (org, workspace)
) STRICT, WITHOUT ROWID;

-- Which bodies a pinned set of skills names: they stay for as long as it does.
CREATE TABLE skill_bodies (
    pinned TEXT NOT NULL,
    body   TEXT NOT NULL,
    PRIMARY KEY (pinned, body)
) STRICT, WITHOUT ROWID;
CREATE INDEX skill_bodies_by_body ON skill_bodies (body);

ALTER TABLE runs ADD COLUMN pin_skills TEXT;
ALTER TABLE runs ADD COLUMN skills_version INTEGER;
