-- A turn that ended at a bound is in the log of its session.
DROP INDEX turns_session;
CREATE INDEX turns_session ON turns (agent_id, source, coalesce(record ->> '$.conversation_id', ''), ended_at)
    WHERE status IN ('finished', 'failed', 'timed_out', 'cancelled') AND record ->> '$.rounds' > 0;
