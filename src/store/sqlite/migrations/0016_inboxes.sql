-- How many messages wait in each inbox. A send to a full inbox must not count them.
CREATE TABLE inboxes (
    agent_id TEXT PRIMARY KEY NOT NULL,
    pending  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO inboxes (agent_id, pending) SELECT to_agent, count(*) FROM messages WHERE state = 'pending' GROUP BY to_agent;
