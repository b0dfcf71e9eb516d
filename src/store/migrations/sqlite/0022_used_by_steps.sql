-- What a step used of a model, and of which one: JSON.

ALTER TABLE steps ADD COLUMN used TEXT;
