-- What a run may use, and what runs and sessions have cost: millionths of the currency in which
-- the prices are.

ALTER TABLE runs ADD COLUMN budget TEXT;
ALTER TABLE runs ADD COLUMN cost_micros INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN cost_micros INTEGER NOT NULL DEFAULT 0;
