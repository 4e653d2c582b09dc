-- Each turn writes fewer rows and fewer pages.

-- For pruning prompt parts. In order of seq, so that the index only grows at its end. An index by
-- hash changed a separate page for every turn.
DROP INDEX journal_system;
DROP INDEX journal_briefing;
CREATE INDEX journal_briefed ON journal (seq, system_hash, briefing_hash) WHERE system_hash IS NOT NULL;
-- Only people read sums of usage, and they can wait. Every model call paid for this index.
DROP INDEX usage_agent;

-- The reservation of a running model call is now stored in the record of its turn. No call outlives
-- its daemon, so old reservations count as spent.
UPDATE budgets SET record = json_set(record,
    '$.spent_tokens', json_extract(record, '$.spent_tokens') + json_extract(record, '$.reserved_tokens'),
    '$.spent_money', json_extract(record, '$.spent_money') + json_extract(record, '$.reserved_money'),
    '$.reserved_tokens', 0, '$.reserved_money', 0)
    WHERE json_extract(record, '$.reserved_tokens') <> 0 OR json_extract(record, '$.reserved_money') <> 0;
DROP TABLE reservations;

-- Values are stored as the given text, with all digits of a number. The concatenation turns the
-- JSON into plain text.
UPDATE shared_state SET record = json_set(record, '$.value', (record -> '$.value') || '');
