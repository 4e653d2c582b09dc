-- What a statement or an index reads of a record has a column, as in PostgreSQL. What triggers did, statements do.
--
-- Measured on two slow processors, for 1,000,000 turns with as many tool calls and accounts of roots, and 250,000 tasks:
-- one minute, and 1.8 GB of free space for the log of the transaction, which goes when the database is closed. That was
-- 29 % of a database of 6.5 GB with journals, mail and events, and 81 % of one that had nothing but the changed tables.
-- The start therefore asks for as much free space as the database is large (`ROOM` in `schema.rs`).
--
-- A record that is no JSON keeps the defaults: nothing can be read of it, here or later.

-- The roots of a turn, the first apart from the others, which are 16 bytes each. `standing` says how a parked turn waits.
-- An index reads none of these four, so that a write of an open turn changes no index.
ALTER TABLE turns ADD COLUMN root_id BLOB NOT NULL DEFAULT x'';
ALTER TABLE turns ADD COLUMN other_roots BLOB NOT NULL DEFAULT x'';
ALTER TABLE turns ADD COLUMN standing TEXT;
ALTER TABLE turns ADD COLUMN log_from INTEGER;
-- The conversation is empty for the agent's own work. `in_log`: whether the turn is in the log of its session.
ALTER TABLE turns ADD COLUMN conversation_id BLOB NOT NULL DEFAULT x'';
ALTER TABLE turns ADD COLUMN in_log INTEGER NOT NULL DEFAULT 0;
DROP INDEX turns_session;
UPDATE turns SET
    root_id = coalesce(unhex(replace(record ->> '$.root_id', '-', '')), x''),
    other_roots = coalesce(unhex((SELECT group_concat(replace(value, '-', ''), '') FROM json_each(record, '$.other_roots'))), x''),
    standing = CASE WHEN record ->> '$.parked' IS NOT NULL THEN coalesce(record ->> '$.parked.standing', 'in_line') END,
    log_from = record ->> '$.log_from',
    conversation_id = coalesce(unhex(replace(record ->> '$.conversation_id', '-', '')), x''),
    in_log = status IN ('finished', 'failed', 'timed_out', 'cancelled') AND coalesce(record ->> '$.rounds', 0) > 0
    WHERE json_valid(record);
CREATE INDEX turns_session ON turns (agent_id, source, conversation_id, ended_at) WHERE in_log = 1;

-- The turns of a root, exactly: a turn that gave back the mail of a root is no longer listed.
DROP TRIGGER turns_added;
DROP TRIGGER turns_pruned;
DELETE FROM turn_roots;
INSERT INTO turn_roots (root_id, turn_id)
    SELECT root_id, turn_id FROM turns WHERE json_valid(record)
    UNION SELECT unhex(replace(value, '-', '')), turn_id FROM turns, json_each(record, '$.other_roots')
        WHERE length(other_roots) > 0 ORDER BY 1, 2;

-- The totals of usage have all rows up to this one. Those after it are few, and are added together.
DROP TRIGGER usage_added;
DROP TRIGGER usage_pruned;
INSERT INTO counters (name, value) SELECT 'usage_totals', coalesce(max(seq), 0) FROM usage;

ALTER TABLE ledger ADD COLUMN duration_ms INTEGER;
ALTER TABLE ledger ADD COLUMN bytes_in INTEGER;
ALTER TABLE ledger ADD COLUMN bytes_out INTEGER;
ALTER TABLE ledger ADD COLUMN tokens INTEGER;
-- A count that is larger than SQLite's largest integer is stored as that, as everywhere.
UPDATE ledger SET
    duration_ms = min(9223372036854775807, record ->> '$.duration_ms'),
    bytes_in = min(9223372036854775807, record ->> '$.bytes_in'),
    bytes_out = min(9223372036854775807, record ->> '$.bytes_out'),
    tokens = min(9223372036854775807, record ->> '$.tokens')
    WHERE json_valid(record);

-- The root of a root's account; NULL for others. `reserved`: whether the account holds a reservation.
ALTER TABLE budgets ADD COLUMN root_id BLOB;
ALTER TABLE budgets ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;
ALTER TABLE budgets ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
DROP INDEX budgets_roots;
UPDATE budgets SET
    root_id = CASE WHEN scope > 'root:' AND scope < 'root;' THEN unhex(replace(substr(scope, 6), '-', '')) END,
    reserved = record ->> '$.reserved_tokens' <> 0 OR record ->> '$.reserved_money' <> 0,
    updated_at = record ->> '$.updated_at'
    WHERE json_valid(record);
CREATE INDEX budgets_roots ON budgets (updated_at) WHERE root_id IS NOT NULL;

ALTER TABLE tasks ADD COLUMN root_id BLOB NOT NULL DEFAULT x'';
DROP INDEX tasks_root;
UPDATE tasks SET root_id = coalesce(unhex(replace(record ->> '$.root_id', '-', '')), x'') WHERE json_valid(record);
CREATE INDEX tasks_root ON tasks (root_id);

ALTER TABLE jobs ADD COLUMN task_id BLOB;
ALTER TABLE jobs ADD COLUMN root_id BLOB NOT NULL DEFAULT x'';
ALTER TABLE jobs ADD COLUMN finished_at INTEGER;
DROP INDEX jobs_task;
UPDATE jobs SET
    task_id = unhex(replace(record ->> '$.task_id', '-', '')),
    root_id = coalesce(unhex(replace(record ->> '$.root_id', '-', '')), x''),
    finished_at = record ->> '$.finished_at'
    WHERE json_valid(record);
CREATE INDEX jobs_task ON jobs (task_id);

ALTER TABLE schedules ADD COLUMN root_id BLOB NOT NULL DEFAULT x'';
UPDATE schedules SET root_id = coalesce(unhex(replace(record ->> '$.root_id', '-', '')), x'') WHERE json_valid(record);

ALTER TABLE agents ADD COLUMN owner TEXT;
UPDATE agents SET owner = record ->> '$.owner' WHERE json_valid(record);

ALTER TABLE knowledge ADD COLUMN creator TEXT NOT NULL DEFAULT '';
UPDATE knowledge SET creator = record ->> '$.creator' WHERE json_valid(record);

ALTER TABLE conversation_entries ADD COLUMN message_id BLOB NOT NULL DEFAULT x'';
UPDATE conversation_entries SET message_id = coalesce(unhex(replace(record ->> '$.message_id', '-', '')), x'')
    WHERE json_valid(record);
