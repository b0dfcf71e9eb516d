-- What people called the agent of a run that carries out a call, when the call was made.

ALTER TABLE runs ADD COLUMN agent_name TEXT;
