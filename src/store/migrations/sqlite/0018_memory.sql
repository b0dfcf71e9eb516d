-- The long-term memory of agents: what they keep beyond a conversation.

CREATE TABLE memories (
    seq     INTEGER NOT NULL PRIMARY KEY,
    id      BLOB    NOT NULL UNIQUE,
    org     TEXT    NOT NULL,
    -- The name space: an agent, or the agents above it and itself, parted by `/`.
    space   TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    -- Hash of the body: what is known already is not kept twice.
    digest  BLOB    NOT NULL,
    source  TEXT    NOT NULL CHECK (source = 'tool' OR source = 'compaction'),
    run_id  BLOB    NOT NULL,
    kept_at INTEGER NOT NULL,
    UNIQUE (org, space, digest)
) STRICT;
CREATE INDEX memories_by_space ON memories (org, space, seq);
CREATE INDEX memories_by_org ON memories (org, seq);

-- The words by which memories are found, under their `seq`. Each word has in front of it what it
-- is looked for within, so that a search reads nothing of other tenants and name spaces. It can
-- be made anew from the memories at any time.
CREATE VIRTUAL TABLE memory_words USING fts5
    (words, content='', contentless_delete=1, tokenize='porter unicode61');
