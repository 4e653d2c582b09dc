-- Turns that cron jobs had to themselves are pruned long before the others; no other turn is in it. Some databases of
-- version 3 have it already.
CREATE INDEX IF NOT EXISTS turns_cron_ended ON turns (ended_at) WHERE source = 'cron' AND status <> 'open';
