-- The cost of an operation does not grow with the age of a world: totals are stored, and every list
-- has an index in its order.

-- Whether a call counts against no budget, as a call of a script does. Of earlier calls only the
-- cost is known: those without a cost stay uncounted, as before.
ALTER TABLE usage ADD COLUMN free INTEGER NOT NULL DEFAULT 0;
UPDATE usage SET free = 1 WHERE cost = 0 AND unpriced = 0;

-- Usage overall, by day (whole days since 1970, UTC) and by root. Each total is the sum of the
-- stored usage rows. Triggers add each inserted row and subtract each pruned row, in the same
-- statement. They cost a few microseconds for each row; a separate statement would cost as much as
-- the row itself.
CREATE TABLE usage_totals (
    agent_id       TEXT NOT NULL,
    provider       TEXT NOT NULL,
    model          TEXT NOT NULL,
    calls          INTEGER NOT NULL,
    input          INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    cache_read     INTEGER NOT NULL,
    cache_write    INTEGER NOT NULL,
    cost           INTEGER NOT NULL,
    estimated      INTEGER NOT NULL,
    estimated_cost INTEGER NOT NULL,
    unpriced       INTEGER NOT NULL,
    free           INTEGER NOT NULL,
    PRIMARY KEY (agent_id, provider, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_days (
    day            INTEGER NOT NULL,
    agent_id       TEXT NOT NULL,
    provider       TEXT NOT NULL,
    model          TEXT NOT NULL,
    calls          INTEGER NOT NULL,
    input          INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    cache_read     INTEGER NOT NULL,
    cache_write    INTEGER NOT NULL,
    cost           INTEGER NOT NULL,
    estimated      INTEGER NOT NULL,
    estimated_cost INTEGER NOT NULL,
    unpriced       INTEGER NOT NULL,
    free           INTEGER NOT NULL,
    PRIMARY KEY (day, agent_id, provider, model)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_roots (
    root_id        BLOB NOT NULL,
    day            INTEGER NOT NULL,
    agent_id       TEXT NOT NULL,
    provider       TEXT NOT NULL,
    model          TEXT NOT NULL,
    calls          INTEGER NOT NULL,
    input          INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    cache_read     INTEGER NOT NULL,
    cache_write    INTEGER NOT NULL,
    cost           INTEGER NOT NULL,
    estimated      INTEGER NOT NULL,
    estimated_cost INTEGER NOT NULL,
    unpriced       INTEGER NOT NULL,
    free           INTEGER NOT NULL,
    PRIMARY KEY (root_id, day, agent_id, provider, model)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_roots SELECT root_id, (at - (at % 86400000 + 86400000) % 86400000) / 86400000, agent_id, provider, model,
    count(*), sum(input), sum(output), sum(cache_read), sum(cache_write), sum(cost), sum(estimated),
    sum(iif(estimated, cost, 0)), sum(iif(unpriced, input + output, 0)),
    sum(iif(free, input + output, 0)) FROM usage GROUP BY 1, 2, 3, 4, 5;
INSERT INTO usage_days SELECT day, agent_id, provider, model, sum(calls), sum(input), sum(output), sum(cache_read),
    sum(cache_write), sum(cost), sum(estimated), sum(estimated_cost), sum(unpriced), sum(free)
    FROM usage_roots GROUP BY 1, 2, 3, 4;
INSERT INTO usage_totals SELECT agent_id, provider, model, sum(calls), sum(input), sum(output), sum(cache_read),
    sum(cache_write), sum(cost), sum(estimated), sum(estimated_cost), sum(unpriced), sum(free)
    FROM usage_days GROUP BY 1, 2, 3;

-- A sum stops at the largest integer, as in the memory backend. Otherwise SQLite would turn it into
-- a floating-point number and refuse the row.
CREATE TRIGGER usage_added AFTER INSERT ON usage BEGIN
    INSERT INTO usage_totals VALUES (new.agent_id, new.provider, new.model, 1, new.input, new.output, new.cache_read,
        new.cache_write, new.cost, new.estimated, iif(new.estimated, new.cost, 0),
        iif(new.unpriced, min(9223372036854775807, new.input + new.output), 0),
        iif(new.free, min(9223372036854775807, new.input + new.output), 0))
    ON CONFLICT (agent_id, provider, model) DO UPDATE SET calls = calls + 1,
        input = min(9223372036854775807, input + excluded.input),
        output = min(9223372036854775807, output + excluded.output),
        cache_read = min(9223372036854775807, cache_read + excluded.cache_read),
        cache_write = min(9223372036854775807, cache_write + excluded.cache_write),
        cost = min(9223372036854775807, cost + excluded.cost),
        estimated = estimated + excluded.estimated,
        estimated_cost = min(9223372036854775807, estimated_cost + excluded.estimated_cost),
        unpriced = min(9223372036854775807, unpriced + excluded.unpriced),
        free = min(9223372036854775807, free + excluded.free);
    INSERT INTO usage_days VALUES ((new.at - (new.at % 86400000 + 86400000) % 86400000) / 86400000, new.agent_id,
        new.provider, new.model, 1, new.input, new.output, new.cache_read, new.cache_write, new.cost, new.estimated,
        iif(new.estimated, new.cost, 0), iif(new.unpriced, min(9223372036854775807, new.input + new.output), 0),
        iif(new.free, min(9223372036854775807, new.input + new.output), 0))
    ON CONFLICT (day, agent_id, provider, model) DO UPDATE SET calls = calls + 1,
        input = min(9223372036854775807, input + excluded.input),
        output = min(9223372036854775807, output + excluded.output),
        cache_read = min(9223372036854775807, cache_read + excluded.cache_read),
        cache_write = min(9223372036854775807, cache_write + excluded.cache_write),
        cost = min(9223372036854775807, cost + excluded.cost),
        estimated = estimated + excluded.estimated,
        estimated_cost = min(9223372036854775807, estimated_cost + excluded.estimated_cost),
        unpriced = min(9223372036854775807, unpriced + excluded.unpriced),
        free = min(9223372036854775807, free + excluded.free);
    INSERT INTO usage_roots VALUES (new.root_id, (new.at - (new.at % 86400000 + 86400000) % 86400000) / 86400000,
        new.agent_id, new.provider, new.model, 1, new.input, new.output, new.cache_read, new.cache_write, new.cost,
        new.estimated, iif(new.estimated, new.cost, 0),
        iif(new.unpriced, min(9223372036854775807, new.input + new.output), 0),
        iif(new.free, min(9223372036854775807, new.input + new.output), 0))
    ON CONFLICT (root_id, day, agent_id, provider, model) DO UPDATE SET calls = calls + 1,
        input = min(9223372036854775807, input + excluded.input),
        output = min(9223372036854775807, output + excluded.output),
        cache_read = min(9223372036854775807, cache_read + excluded.cache_read),
        cache_write = min(9223372036854775807, cache_write + excluded.cache_write),
        cost = min(9223372036854775807, cost + excluded.cost),
        estimated = estimated + excluded.estimated,
        estimated_cost = min(9223372036854775807, estimated_cost + excluded.estimated_cost),
        unpriced = min(9223372036854775807, unpriced + excluded.unpriced),
        free = min(9223372036854775807, free + excluded.free);
END;

CREATE TRIGGER usage_pruned AFTER DELETE ON usage BEGIN
    UPDATE usage_totals SET calls = calls - 1, input = max(0, input - old.input), output = max(0, output - old.output),
        cache_read = max(0, cache_read - old.cache_read), cache_write = max(0, cache_write - old.cache_write),
        cost = max(0, cost - old.cost), estimated = max(0, estimated - old.estimated),
        estimated_cost = max(0, estimated_cost - iif(old.estimated, old.cost, 0)),
        unpriced = max(0, unpriced - iif(old.unpriced, old.input + old.output, 0)),
        free = max(0, free - iif(old.free, old.input + old.output, 0))
    WHERE agent_id = old.agent_id AND provider = old.provider AND model = old.model;
    DELETE FROM usage_totals
    WHERE agent_id = old.agent_id AND provider = old.provider AND model = old.model AND calls < 1;
    UPDATE usage_days SET calls = calls - 1, input = max(0, input - old.input), output = max(0, output - old.output),
        cache_read = max(0, cache_read - old.cache_read), cache_write = max(0, cache_write - old.cache_write),
        cost = max(0, cost - old.cost), estimated = max(0, estimated - old.estimated),
        estimated_cost = max(0, estimated_cost - iif(old.estimated, old.cost, 0)),
        unpriced = max(0, unpriced - iif(old.unpriced, old.input + old.output, 0)),
        free = max(0, free - iif(old.free, old.input + old.output, 0))
    WHERE day = (old.at - (old.at % 86400000 + 86400000) % 86400000) / 86400000 AND agent_id = old.agent_id
        AND provider = old.provider AND model = old.model;
    DELETE FROM usage_days
    WHERE day = (old.at - (old.at % 86400000 + 86400000) % 86400000) / 86400000 AND agent_id = old.agent_id
        AND provider = old.provider AND model = old.model AND calls < 1;
    UPDATE usage_roots SET calls = calls - 1, input = max(0, input - old.input), output = max(0, output - old.output),
        cache_read = max(0, cache_read - old.cache_read), cache_write = max(0, cache_write - old.cache_write),
        cost = max(0, cost - old.cost), estimated = max(0, estimated - old.estimated),
        estimated_cost = max(0, estimated_cost - iif(old.estimated, old.cost, 0)),
        unpriced = max(0, unpriced - iif(old.unpriced, old.input + old.output, 0)),
        free = max(0, free - iif(old.free, old.input + old.output, 0))
    WHERE root_id = old.root_id AND day = (old.at - (old.at % 86400000 + 86400000) % 86400000) / 86400000
        AND agent_id = old.agent_id AND provider = old.provider AND model = old.model;
    DELETE FROM usage_roots
    WHERE root_id = old.root_id AND day = (old.at - (old.at % 86400000 + 86400000) % 86400000) / 86400000
        AND agent_id = old.agent_id AND provider = old.provider AND model = old.model AND calls < 1;
END;

-- The totals by root replace this index.
DROP INDEX usage_root;

-- Turns by status. Each time an agent wakes, its last finished turns are read.
CREATE INDEX turns_said ON turns (agent_id, source, started_at) WHERE status = 'finished';
CREATE INDEX turns_status ON turns (status, started_at) WHERE status <> 'open';
CREATE INDEX turns_unfinished ON turns (agent_id, status, started_at) WHERE status <> 'open' AND status <> 'finished';

-- The turns of a root: those charged to it, and those that took its mail. Triggers update this
-- table. A turn that gave back the mail of a root stays listed until it is pruned, so readers check
-- its record.
CREATE TABLE turn_roots (
    root_id BLOB NOT NULL,
    turn_id BLOB NOT NULL,
    PRIMARY KEY (root_id, turn_id)
) STRICT, WITHOUT ROWID;
INSERT INTO turn_roots
    SELECT unhex(replace(record ->> '$.root_id', '-', '')), turn_id FROM turns WHERE json_valid(record)
    UNION SELECT unhex(replace(value, '-', '')), turn_id FROM turns, json_each(record, '$.other_roots')
        WHERE json_valid(record);
CREATE TRIGGER turns_added AFTER INSERT ON turns BEGIN
    INSERT OR IGNORE INTO turn_roots VALUES (unhex(replace(new.record ->> '$.root_id', '-', '')), new.turn_id);
    -- Most turns have one root, and no record is read twice for the others.
    INSERT OR IGNORE INTO turn_roots
        SELECT unhex(replace(value, '-', '')), new.turn_id
        FROM json_each(iif(instr(new.record, '"other_roots":'), new.record, '{}'), '$.other_roots');
END;
CREATE TRIGGER turns_pruned AFTER DELETE ON turns WHEN json_valid(old.record) BEGIN
    DELETE FROM turn_roots
    WHERE root_id = unhex(replace(old.record ->> '$.root_id', '-', '')) AND turn_id = old.turn_id;
    DELETE FROM turn_roots
    WHERE root_id IN (SELECT unhex(replace(value, '-', '')) FROM json_each(old.record, '$.other_roots'))
        AND turn_id = old.turn_id;
END;

-- The steps that begin a turn. The hashes they name are in their rows; pruning reads only the
-- oldest of them.
DROP INDEX journal_briefed;
CREATE INDEX journal_briefed ON journal (seq) WHERE system_hash IS NOT NULL;

-- Most events belong to a turn, an ask or a root. A blob of 16 bytes replaces a text of 36.
ALTER TABLE events ADD COLUMN correlation BLOB;

-- Calls of one tool, and calls that did not succeed.
CREATE INDEX ledger_tool ON ledger (tool, started_at);
CREATE INDEX ledger_agent_tool ON ledger (agent_id, tool, started_at);
CREATE INDEX ledger_agent_status ON ledger (agent_id, status, started_at) WHERE status <> 'ok';
CREATE INDEX ledger_status ON ledger (status, started_at) WHERE status <> 'ok';

-- Tasks by status, in the order of lists, and the roots that tasks belong to.
CREATE INDEX tasks_status ON tasks (status, priority DESC, created_at, task_id);
CREATE INDEX tasks_owner_status ON tasks (owner, status, priority DESC, created_at, task_id);
CREATE INDEX tasks_root ON tasks (json_extract(record, '$.root_id'));

CREATE INDEX dead_letters_status ON dead_letters (status, created_at);
CREATE INDEX dead_letters_agent_status ON dead_letters (agent_id, status, created_at);
CREATE INDEX dead_letters_resolved ON dead_letters (resolved_at) WHERE status <> 'held';

-- Living agents without tombstones, and tombstones without living agents.
CREATE INDEX agents_living ON agents (agent_id) WHERE deleted_at IS NULL;
CREATE INDEX agents_gone ON agents (deleted_at) WHERE deleted_at IS NOT NULL;

-- Accounts of roots by the time of their last charge: there may be one for each root, and pruning
-- reads the oldest.
CREATE INDEX budgets_roots ON budgets (json_extract(record, '$.updated_at')) WHERE scope > 'root:' AND scope < 'root;';

CREATE INDEX knowledge_gone ON knowledge (updated_at) WHERE deleted = 1;
CREATE INDEX jobs_started ON jobs (started_at);
