-- How many rows the limits count. A command must not count them.
INSERT INTO counters (name, value) SELECT name, value FROM (
    SELECT 'agents_dynamic' AS name, count(*) AS value FROM agents WHERE kind = 'dynamic' AND deleted_at IS NULL
    UNION ALL SELECT 'chat_channels', count(*) FROM chat_channels
    UNION ALL SELECT 'conversations', count(*) FROM conversations
    UNION ALL SELECT 'knowledge', count(*) FROM knowledge WHERE deleted = 0
    UNION ALL SELECT 'state_keys', count(*) FROM shared_state
    UNION ALL SELECT 'approvals_pending', count(*) FROM approvals WHERE status = 'pending'
    UNION ALL SELECT 'asks_open', count(*) FROM asks WHERE status = 'open'
    UNION ALL SELECT 'tasks_open', count(*) FROM tasks WHERE ended = 0
    UNION ALL SELECT 'schedules', count(*) FROM schedules
    UNION ALL SELECT 'schedules/' || agent_id || '/' || kind, count(*) FROM schedules GROUP BY agent_id, kind
    UNION ALL SELECT 'dead_letters_held', count(*) FROM dead_letters WHERE status = 'held'
    UNION ALL SELECT 'dead_letters_held/' || agent_id, count(*) FROM dead_letters WHERE status = 'held' GROUP BY agent_id
    UNION ALL SELECT 'droids_live', count(*) FROM droids WHERE ended_at IS NULL
    UNION ALL SELECT 'droids_live/' || parent_id, count(*) FROM droids WHERE ended_at IS NULL GROUP BY parent_id
) AS counted WHERE value > 0 ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- A broadcast to an archetype must not read the records of all agents.
ALTER TABLE agents ADD COLUMN archetype TEXT NOT NULL DEFAULT '';
UPDATE agents SET archetype = coalesce(record ->> '$.archetype', '') WHERE json_valid(record);
