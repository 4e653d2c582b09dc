//! The `Tasks` service: the task board.

use ghost_domain::{Party, Task, TaskId, Timestamp};
use ghost_operations::mail::Chain;
use ghost_operations::tasks::{self as rules, NewTask, TaskChange};
use ghost_operations::{OperationContext, Tx};
use ghost_proto::v1;
use ghost_store::tables::TaskFilter;

use crate::convert;
use crate::convert::input::{self, Position};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// Largest length of a title, in characters.
const TITLE_MAX: usize = 200;
/// Largest number of dependencies of one task.
const DEPENDS_MAX: usize = 64;

fn new_task(ctx: &OperationContext, request: &v1::CreateTaskRequest) -> Result<NewTask> {
    Ok(NewTask {
        title: input::line("title", &request.title, TITLE_MAX)?,
        description: input::prose_or_none("description", &request.description, ctx.limits().message_bytes)?,
        owner: input::parsed("owner", &request.owner)?,
        priority: request.priority,
        depends_on: input::parsed_all("depends_on", &request.depends_on, DEPENDS_MAX)?,
        parent_id: input::parsed_if("parent_id", request.parent_id.as_deref())?,
        due_at: input::instant("due_at_ms", request.due_at_ms)?,
        chain: Chain::root(ctx),
    })
}

fn change(ctx: &OperationContext, request: &v1::UpdateTaskRequest) -> Result<(TaskId, TaskText, TaskChange)> {
    let limit = ctx.limits().message_bytes;
    let prose = |field: &str, text: Option<&str>| text.map(|text| input::prose_or_none(field, text, limit)).transpose();
    let text = TaskText {
        title: input::line_if("title", request.title.as_deref(), TITLE_MAX)?,
        description: prose("description", request.description.as_deref())?,
        priority: request.priority,
        due_at: input::instant("due_at_ms", request.due_at_ms)?,
    };
    let change = TaskChange {
        status: input::parsed_if("status", request.status.as_deref())?,
        owner: input::parsed_if("owner", request.owner.as_deref())?,
        note: prose("note", request.note.as_deref())?,
        result: prose("result", request.result.as_deref())?,
        depends_on: request
            .depends_on
            .as_ref()
            .map(|list| input::parsed_all("depends_on", &list.task_ids, DEPENDS_MAX))
            .transpose()?,
        reopen: request.reopen,
    };
    Ok((input::parsed("task_id", &request.task_id)?, text, change))
}

/// The fields of a task that an operator may change. `None` leaves a field as it is.
struct TaskText {
    /// Title, one line.
    title: Option<String>,
    /// Full text of the task.
    description: Option<String>,
    /// A higher number comes first.
    priority: Option<i32>,
    /// Due time.
    due_at: Option<Timestamp>,
}

/// Changes the fields and the state of a task, with one entry in its history for both.
fn edit(w: &mut Tx, by: &Party, task_id: TaskId, text: TaskText, mut change: TaskChange) -> Result<Task> {
    let mut task = rules::get(w, task_id)?;
    let mut rewritten = Vec::new();
    if let Some(title) = text.title {
        task.title = title;
        rewritten.push("title");
    }
    if let Some(description) = text.description {
        task.description = description;
        rewritten.push("description");
    }
    if let Some(priority) = text.priority {
        task.priority = priority;
        rewritten.push("priority");
    }
    if let Some(due_at) = text.due_at {
        task.due_at = Some(due_at);
        rewritten.push("due time");
    }
    let chain = Chain::of_task(&task);
    if !rewritten.is_empty() {
        w.task_put(&task)?;
        if change.note.is_none() {
            change.note = Some(format!("changed: {}", rewritten.join(", ")));
        }
    }
    rules::update(w, by, task_id, change, chain)
}

pub(crate) async fn list(cx: Query, request: v1::ListTasksRequest) -> Result<v1::ListTasksResponse> {
    let owner = queries::agent_in_filter(&cx.world, "owner", request.owner.as_deref()).await?;
    let status = input::parsed_if("status", request.status.as_deref())?;
    let cursor = input::unseal("tasks", &request.cursor)?;
    let after = match cursor.split_once('/') {
        None if cursor.is_empty() => None,
        Some((priority, position)) => {
            let priority: i32 = priority.parse().map_err(|_| input::bad_cursor(cursor))?;
            let position = input::position(position)?.ok_or_else(|| input::bad_cursor(cursor))?;
            Some((priority, position.at, TaskId(position.id)))
        }
        None => return Err(input::bad_cursor(cursor)),
    };
    let filter = TaskFilter { owner, status, after, ..TaskFilter::default() };
    let position = |row: &Task| Position { at: row.created_at, id: row.task_id.0 };
    let position = |row: &Task| format!("{}/{}", row.priority, position(row).cursor());
    let page = queries::page(
        &cx.world,
        request.limit,
        move |r, most| r.task_list(&TaskFilter { limit: most, ..filter }),
        position,
    )
    .await?;
    let (tasks, next_cursor) = page.sealed("tasks", |task| convert::task(task, cx.redactor()));
    Ok(v1::ListTasksResponse { tasks, next_cursor, truncated: false })
}

pub(crate) async fn get(cx: Query, request: v1::GetTaskRequest) -> Result<v1::GetTaskResponse> {
    let task_id = input::parsed("task_id", &request.task_id)?;
    let found = cx.world.store().read(move |r| rules::get_with_history(r, task_id)).await?;
    let redactor = cx.redactor();
    Ok(v1::GetTaskResponse {
        task: Some(convert::task(&found.task, redactor)),
        history: found.history.iter().map(|event| convert::task_event(event, redactor)).collect(),
        history_truncated: found.history_truncated,
    })
}

pub(crate) async fn create(cx: Mutation, request: v1::CreateTaskRequest) -> Result<v1::Task> {
    let new = new_task(cx.world.ctx(), &request)?;
    let task = cx.once(move |w, by| rules::create(w, by, new)).await?;
    Ok(convert::task(&task, cx.redactor()))
}

pub(crate) async fn update(cx: Mutation, request: v1::UpdateTaskRequest) -> Result<v1::Task> {
    let (task_id, text, change) = change(cx.world.ctx(), &request)?;
    let task = cx.once(move |w, by| edit(w, by, task_id, text, change)).await?;
    Ok(convert::task(&task, cx.redactor()))
}
