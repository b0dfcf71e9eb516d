-- Runs that work in the session of the run above them: which entries of its transcript are theirs,
-- what they may do at most (other runs have that from their session), and how much of what they
-- say is shown while it comes.
ALTER TABLE messages ADD COLUMN child_run BLOB;
CREATE UNIQUE INDEX messages_two_sides ON messages (child_run, tool_call, kind)
    WHERE kind = 'sub_agent_user' OR kind = 'sub_agent_ai';

ALTER TABLE runs ADD COLUMN bundle TEXT;
ALTER TABLE runs ADD COLUMN stream TEXT CHECK
    (stream IS NULL OR stream = 'aggregated' OR stream = 'direct' OR stream = 'none');

-- How the last calls of an agent have ended: what the breaker looks at.
CREATE INDEX runs_ends_of_calls ON runs (org, agent, ended_at)
    WHERE face IS NOT NULL AND ended_at IS NOT NULL;
