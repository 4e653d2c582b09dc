-- Where the log of a session starts, if not at its first turn. The conversation is empty for the agent's own work.
CREATE TABLE sessions (
    agent_id TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    ended_at INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (agent_id, conversation_id)
) WITHOUT ROWID;
CREATE INDEX sessions_ended ON sessions (ended_at);

-- The log of a session: its turns in the order in which they ended.
DROP INDEX turns_said;
CREATE INDEX turns_session ON turns (agent_id, source, coalesce(record ->> '$.conversation_id', ''), ended_at)
    WHERE status IN ('finished', 'failed', 'cancelled');
