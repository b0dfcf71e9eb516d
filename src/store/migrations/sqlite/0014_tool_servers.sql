-- What each server of tools offered when it last started, so that a restart of the daemon takes
-- no tool away from anybody.

CREATE TABLE tool_servers (
    name   TEXT NOT NULL PRIMARY KEY,
    -- Of how it is started or reached: what another server of that name offered says nothing.
    digest TEXT NOT NULL,
    tools  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
