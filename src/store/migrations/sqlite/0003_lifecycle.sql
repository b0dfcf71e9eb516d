-- What ends, changes and removes sessions and runs: steering, cancels with a reason, forks,
-- deletions bit by bit, the archive and retention.

-- What is said to a run in the middle of its turn. It enters the transcript with the intent of
-- the run's next model call; `message_seq` is its place there.
CREATE TABLE steers (
    run_id      BLOB    NOT NULL REFERENCES runs (id),
    seq         INTEGER NOT NULL,
    message_id  BLOB    NOT NULL,
    text        TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    message_seq INTEGER,
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;

ALTER TABLE runs ADD COLUMN cancel_reason TEXT;
-- The cancel was asked for something above this run: its end wakes nobody.
ALTER TABLE runs ADD COLUMN cancel_inherited INTEGER NOT NULL DEFAULT 0;

-- A forked session begins with another one's transcript of this generation up to this message.
-- Nothing is copied: its own messages go on counting from there.
ALTER TABLE sessions ADD COLUMN fork_of BLOB;
ALTER TABLE sessions ADD COLUMN fork_generation INTEGER;
ALTER TABLE sessions ADD COLUMN fork_seq INTEGER;

-- How far the runs of a deleted session are cleared of their journals.
ALTER TABLE purges ADD COLUMN run_seq INTEGER NOT NULL DEFAULT 0;

-- Archived sessions are left out of lists: whatever walks these does not meet them.
DROP INDEX sessions_unarchived;
DROP INDEX sessions_main;
-- With the parent as a column of its own the engine prefers it for lists of roots.
CREATE INDEX sessions_main ON sessions (org, parent_id, seq)
    WHERE parent_id IS NULL AND archived_at IS NULL;
CREATE INDEX sessions_shown ON sessions (org, seq) WHERE archived_at IS NULL;
CREATE INDEX outbox_held ON outbox (target_session) WHERE state = 'undelivered';

-- Runs that retention has removed: whoever still asks for one is told so.
CREATE TABLE expired (
    run_id     BLOB    NOT NULL PRIMARY KEY,
    org        TEXT    NOT NULL,
    removed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The key of a run is found with the run.
CREATE INDEX idempotency_by_run ON idempotency (run_id);

-- When a run last pinned the body, to the hour.
ALTER TABLE blobs ADD COLUMN used_at INTEGER NOT NULL DEFAULT 0;
UPDATE blobs SET used_at = coalesce((SELECT max(created_at) FROM runs), 0);
