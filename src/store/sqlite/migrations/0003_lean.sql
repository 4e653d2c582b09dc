-- Fewer rows and fewer pages for every turn.

-- What pruning asks of prompt parts. By seq, so that it only grows at its end: an index by hash touched a page of its own for
-- every turn.
DROP INDEX journal_system;
DROP INDEX journal_briefing;
CREATE INDEX journal_briefed ON journal (seq, system_hash, briefing_hash) WHERE system_hash IS NOT NULL;
-- Sums of usage are asked for by people, who can wait; every model call paid for this one.
DROP INDEX usage_agent;

-- What is held for a model call stands in the record of its turn now. No call outlives the daemon that made it: what was
-- held counts as spent.
UPDATE budgets SET record = json_set(record,
    '$.spent_tokens', json_extract(record, '$.spent_tokens') + json_extract(record, '$.reserved_tokens'),
    '$.spent_money', json_extract(record, '$.spent_money') + json_extract(record, '$.reserved_money'),
    '$.reserved_tokens', 0, '$.reserved_money', 0)
    WHERE json_extract(record, '$.reserved_tokens') <> 0 OR json_extract(record, '$.reserved_money') <> 0;
DROP TABLE reservations;

-- Values are kept as the text that was given, with all the digits of a number. Joining makes the JSON plain text.
UPDATE shared_state SET record = json_set(record, '$.value', (record -> '$.value') || '');
