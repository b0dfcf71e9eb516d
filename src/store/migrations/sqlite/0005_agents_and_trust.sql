-- Agents that clients have defined, what is known of the whole set of agents, projects that
-- were trusted, and the thinking level of sessions and runs.

CREATE TABLE agents (
    org        TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    -- The definition as its client gave it, and how it is written.
    format     TEXT    NOT NULL,
    body       TEXT    NOT NULL,
    revision   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (org, name)
) STRICT, WITHOUT ROWID;

-- What the event log last said of the agents of a tenant: `agents` maps each name to the hash
-- of its definition, so that a change is told once, also one made while the daemon was down.
CREATE TABLE agent_sets (
    org        TEXT    NOT NULL PRIMARY KEY,
    agents     TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- `hash` is of what the trust covers: changed content is not trusted any more.
CREATE TABLE trusted_projects (
    org        TEXT    NOT NULL,
    folder     TEXT    NOT NULL,
    hash       TEXT    NOT NULL,
    user       TEXT    NOT NULL,
    trusted_at INTEGER NOT NULL,
    PRIMARY KEY (org, folder)
) STRICT, WITHOUT ROWID;

ALTER TABLE sessions ADD COLUMN thinking TEXT;
ALTER TABLE runs ADD COLUMN thinking TEXT;
