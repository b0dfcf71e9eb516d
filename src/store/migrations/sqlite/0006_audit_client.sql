-- The address of the client, of a call over TCP.
ALTER TABLE audit ADD COLUMN client TEXT;
