-- A node names its calls by the ids of their steps.
CREATE INDEX steps_kept ON steps (id) WHERE effect = 'kept';
