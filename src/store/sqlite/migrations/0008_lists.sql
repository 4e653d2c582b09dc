-- Lists are read page by page, each page from an index.

-- Parts of a task, in the order of lists.
DROP INDEX tasks_parent;
CREATE INDEX tasks_parent ON tasks (parent_id, priority DESC, created_at, task_id) WHERE parent_id IS NOT NULL;

-- The job of a task.
CREATE INDEX jobs_task ON jobs (json_extract(record, '$.task_id'));
