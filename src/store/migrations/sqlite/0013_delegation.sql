-- A run that carries out one call of a tool of the run above it (`parent_run`): which tool, the
-- step there that waits for it, and the model's name for the call.
ALTER TABLE runs ADD COLUMN face TEXT CHECK
    (face IS NULL OR face = 'task' OR face = 'subagent' OR face = 'call' OR face = 'plan');
ALTER TABLE runs ADD COLUMN for_step INTEGER;
ALTER TABLE runs ADD COLUMN for_call TEXT;

CREATE INDEX runs_delegated ON runs (parent_run, for_step) WHERE face IS NOT NULL;
