-- What was done, and what it took and cost: sums by the hour, written where a run ends and where
-- a model has answered. They outlive runs and sessions.

CREATE TABLE usage_runs (
    org     TEXT    NOT NULL,
    -- Hours since 1970.
    hour    INTEGER NOT NULL,
    user    TEXT    NOT NULL,
    agent   TEXT    NOT NULL,
    model   TEXT    NOT NULL,
    outcome TEXT    NOT NULL CHECK (outcome = 'ok' OR outcome = 'failed' OR outcome = 'cancelled'),
    -- Which lengths of time, from accepted to ended, are counted here: eight parts of each power
    -- of two, milliseconds.
    bucket  INTEGER NOT NULL,
    runs    INTEGER NOT NULL,
    PRIMARY KEY (org, hour, user, agent, model, outcome, bucket)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_models (
    org           TEXT    NOT NULL,
    hour          INTEGER NOT NULL,
    user          TEXT    NOT NULL,
    agent         TEXT    NOT NULL,
    -- The one that has answered.
    model         TEXT    NOT NULL,
    calls         INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost_micros   INTEGER NOT NULL,
    PRIMARY KEY (org, hour, user, agent, model)
) STRICT, WITHOUT ROWID;

-- Which thresholds somebody was told of, for which hour.
CREATE TABLE usage_alerts (
    org  TEXT    NOT NULL,
    what TEXT    NOT NULL,
    hour INTEGER NOT NULL,
    PRIMARY KEY (org, what, hour)
) STRICT, WITHOUT ROWID;

-- Sessions and trees have no sums of their own: theirs are made from the runs that ended in the
-- time that is asked for.
CREATE INDEX runs_by_end ON runs (org, ended_at) WHERE ended_at IS NOT NULL;

-- What there is from before.
INSERT INTO usage_runs (org, hour, user, agent, model, outcome, bucket, runs)
WITH RECURSIVE
    power (e) AS (SELECT 4 UNION ALL SELECT e + 1 FROM power WHERE e < 60),
    ended AS (
        SELECT org, ended_at / 3600000 AS hour, user, agent, model,
            CASE state WHEN 'ok' THEN 'ok' WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END
                AS outcome,
            max(ended_at - created_at, 0) AS ms
        FROM runs WHERE ended_at IS NOT NULL
    )
SELECT org, hour, user, agent, model, outcome,
    CASE WHEN ms < 16 THEN ms ELSE 16 + (e - 4) * 8 + ((ms >> (e - 3)) & 7) END AS bucket,
    count(*)
FROM ended LEFT JOIN power ON ms >= (1 << e) AND ms < (2 << e)
GROUP BY org, hour, user, agent, model, outcome, bucket;

INSERT INTO usage_models
    (org, hour, user, agent, model, calls, input_tokens, output_tokens, cost_micros)
SELECT org, coalesce(ended_at, last_activity_at) / 3600000 AS hour, user, agent, model,
    sum(model_calls), sum(input_tokens), sum(output_tokens), sum(cost_micros)
FROM runs WHERE model_calls > 0
GROUP BY org, hour, user, agent, model;
