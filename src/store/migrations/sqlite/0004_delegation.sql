-- A run says by which mode it was delegated.
ALTER TABLE runs RENAME COLUMN face TO delegation;
