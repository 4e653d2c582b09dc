-- A turn that no model has answered is not in the log of its session. An outage can leave thousands of them.
DROP INDEX turns_session;
CREATE INDEX turns_session ON turns (agent_id, source, coalesce(record ->> '$.conversation_id', ''), ended_at)
    WHERE status IN ('finished', 'failed', 'cancelled') AND record ->> '$.rounds' > 0;
