-- Chat channels, conversations with the outside, knowledge, shared state and schedules.

CREATE TABLE chat_channels (
    channel    TEXT NOT NULL PRIMARY KEY,
    gated      INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE chat_members (
    channel   TEXT NOT NULL,
    agent_id  TEXT NOT NULL,
    read_seq  INTEGER NOT NULL,
    wake_id   BLOB,
    joined_at INTEGER NOT NULL,
    PRIMARY KEY (channel, agent_id)
) STRICT, WITHOUT ROWID;
-- Without the cursor, which changes with every turn: the index then need not be written.
CREATE INDEX chat_members_agent ON chat_members (agent_id, channel);

CREATE TABLE chat_posts (
    channel    TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    message_id BLOB NOT NULL,
    from_party TEXT NOT NULL,
    content    TEXT NOT NULL,
    mentions   TEXT,
    reply_to   INTEGER,
    root_id    BLOB NOT NULL,
    hop        INTEGER NOT NULL,
    ts         INTEGER NOT NULL,
    PRIMARY KEY (channel, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX chat_posts_ts ON chat_posts (ts);

CREATE TABLE conversations (
    conversation_id BLOB NOT NULL PRIMARY KEY,
    adapter         TEXT NOT NULL,
    thread          TEXT NOT NULL,
    owner           TEXT NOT NULL,
    updated_at      INTEGER NOT NULL,
    record          TEXT NOT NULL,
    UNIQUE (adapter, thread)
) STRICT, WITHOUT ROWID;
CREATE INDEX conversations_owner ON conversations (owner, updated_at);
CREATE INDEX conversations_updated ON conversations (updated_at);

CREATE TABLE conversation_entries (
    conversation_id BLOB NOT NULL,
    seq             INTEGER NOT NULL,
    turn_id         BLOB,
    delivery        TEXT NOT NULL,
    next_at         INTEGER,
    at              INTEGER NOT NULL,
    record          TEXT NOT NULL,
    PRIMARY KEY (conversation_id, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX conversation_entries_due ON conversation_entries (next_at) WHERE delivery = 'pending';
CREATE INDEX conversation_entries_turn ON conversation_entries (turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX conversation_entries_at ON conversation_entries (at);

CREATE TABLE knowledge (
    entry_id   TEXT NOT NULL PRIMARY KEY,
    deleted    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX knowledge_kept ON knowledge (entry_id) WHERE deleted = 0;

CREATE TABLE knowledge_versions (
    entry_id TEXT NOT NULL,
    version  INTEGER NOT NULL,
    record   TEXT NOT NULL,
    PRIMARY KEY (entry_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE shared_state (
    key    TEXT NOT NULL PRIMARY KEY,
    record TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE schedules (
    schedule_id BLOB NOT NULL PRIMARY KEY,
    agent_id    TEXT NOT NULL,
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    next_at     INTEGER,
    record      TEXT NOT NULL,
    UNIQUE (agent_id, kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;

CREATE TABLE schedule_runs (
    schedule_id BLOB NOT NULL,
    run         INTEGER NOT NULL,
    message_id  BLOB,
    fired_at    INTEGER NOT NULL,
    record      TEXT NOT NULL,
    PRIMARY KEY (schedule_id, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_runs_message ON schedule_runs (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX schedule_runs_fired ON schedule_runs (fired_at);

CREATE TABLE watch_snapshots (
    schedule_id BLOB NOT NULL PRIMARY KEY,
    record      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE roots (
    root_id    BLOB NOT NULL PRIMARY KEY,
    messages   INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX roots_messages ON roots (messages);
CREATE INDEX roots_updated ON roots (updated_at);
