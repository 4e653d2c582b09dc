-- The turns that cron jobs had to themselves, and no others: they are pruned long before the
-- others. Some databases of version 3 have this index already.
CREATE INDEX IF NOT EXISTS turns_cron_ended ON turns (ended_at) WHERE source = 'cron' AND status <> 'open';
