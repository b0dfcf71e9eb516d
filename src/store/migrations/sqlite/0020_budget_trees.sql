-- What a run that has a budget and all runs below it have used.

ALTER TABLE runs ADD COLUMN spent_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN spent_micros INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET spent_tokens = input_tokens + output_tokens, spent_micros = cost_micros
    WHERE budget IS NOT NULL;
