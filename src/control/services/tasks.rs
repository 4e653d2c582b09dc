//! The `Tasks` service: the task board.

use ghost_domain::TaskId;
use ghost_operations::OperationContext;
use ghost_operations::mail::Chain;
use ghost_operations::tasks::{self as rules, NewTask, TaskChange};
use ghost_proto::v1;

use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;
use crate::queries::TaskText;

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

pub(crate) async fn list(cx: Query, request: v1::ListTasksRequest) -> Result<v1::ListTasksResponse> {
    let owner = queries::agent_in_filter(&cx.world, "owner", request.owner.as_deref()).await?;
    let status = input::parsed_if("status", request.status.as_deref())?;
    let cursor = input::unseal("tasks", &request.cursor)?;
    let page = queries::task_page(&cx.world, owner, status, cursor, input::page(request.limit)).await?;
    let (tasks, next_cursor) = page.sealed("tasks", |task| convert::task(task, &cx.world.ctx().redactor));
    Ok(v1::ListTasksResponse { tasks, next_cursor, truncated: false })
}

pub(crate) async fn get(cx: Query, request: v1::GetTaskRequest) -> Result<v1::GetTaskResponse> {
    let found = queries::task(&cx.world, input::parsed("task_id", &request.task_id)?).await?;
    let redactor = &cx.world.ctx().redactor;
    Ok(v1::GetTaskResponse {
        task: Some(convert::task(&found.task, redactor)),
        history: found.history.iter().map(|event| convert::task_event(event, redactor)).collect(),
        history_truncated: found.history_truncated,
    })
}

pub(crate) async fn create(cx: Mutation, request: v1::CreateTaskRequest) -> Result<v1::Task> {
    let new = new_task(cx.world.ctx(), &request)?;
    let task = cx.once(move |w, by| rules::create(w, by, new)).await?;
    Ok(convert::task(&task, &cx.world.ctx().redactor))
}

pub(crate) async fn update(cx: Mutation, request: v1::UpdateTaskRequest) -> Result<v1::Task> {
    let (task_id, text, change) = change(cx.world.ctx(), &request)?;
    let task = cx.once(move |w, by| queries::edit_task(w, by, task_id, text, change)).await?;
    Ok(convert::task(&task, &cx.world.ctx().redactor))
}
