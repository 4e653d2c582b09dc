//! The tools for tasks. They check which changes an agent may make;
//! `ghost_operations` does the rest.

use ghost_domain::schedule::words::instant;
use ghost_domain::{Code, Task, TaskEvent, TaskId, TaskStatus};
use ghost_operations::tasks::{self as rules, NewTask, TaskChange};
use ghost_store::tables::TaskFilter;

use super::common::*;

/// The default and the largest number of tasks in a list.
const LIMIT_DEFAULT: u32 = 50;
const LIMIT_MAX: u32 = 500;
/// The largest number of characters of a text in a list.
const BRIEF_CHARS: usize = 300;
/// The largest history in a result, in bytes.
const HISTORY_BYTES: usize = 32 * 1024;

params! {
    pub(super) struct CreateParams {
        /// The title, on one line.
        title: String,
        /// Everything that the owner needs to know.
        description: Option<String>,
        /// The agent that is to do the task; you if absent.
        owner: Option<String>,
        /// The priority: higher is sooner; 0 if absent.
        priority: Option<i32>,
        /// The time at which it should be done, such as 2026-11-30T18:00:00Z.
        due_at: Option<String>,
        /// task_ids of tasks that must be done first.
        #[serde(default)]
        depends_on: Vec<TaskId>,
        /// task_id of the task that this one is a part of.
        parent_id: Option<TaskId>,
    }

    pub(super) struct ListParams {
        /// Only tasks of this owner.
        owner: Option<String>,
        /// Only tasks with this status.
        status: Option<TaskStatus>,
        /// Only parts of this task.
        parent_id: Option<TaskId>,
        /// The largest number of tasks, up to 500.
        limit: Option<u32>,
    }

    pub(super) struct GetParams {
        /// The id of the task.
        task_id: TaskId,
    }

    pub(super) struct UpdateParams {
        /// The id of the task.
        task_id: TaskId,
        /// The new status of the task.
        status: Option<TaskStatus>,
        /// The agent that is to do the task from now on.
        owner: Option<String>,
        /// The reason, or the progress.
        note: Option<String>,
        /// The outcome, such as the path of a file.
        result: Option<String>,
        /// task_ids of all tasks that must be done first.
        depends_on: Option<Vec<TaskId>>,
        /// Reopen a task that has ended; needs a note.
        #[serde(default)]
        reopen: bool,
    }
}

/// A task in the form that results show. With `brief`, long texts are shortened.
fn task_json(task: &Task, brief: bool) -> Value {
    let shortened = |text: &str| if brief { clip(text, BRIEF_CHARS) } else { text.to_owned() };
    let depends_on = (!task.depends_on.is_empty()).then_some(&task.depends_on);
    without_nulls(json!({
        "task_id": task.task_id, "title": task.title, "description": shortened(&task.description), "owner": task.owner,
        "creator": task.creator, "status": task.status, "priority": task.priority, "depends_on": depends_on,
        "parent_id": task.parent_id, "due_at": task.due_at.map(|at| at.rfc3339()),
        "result": task.result.as_deref().map(shortened), "created_at": task.created_at.rfc3339(),
        "updated_at": task.updated_at.rfc3339(),
    }))
}

/// A task that the caller has just created or changed: without its description, which the caller knows or can read.
fn changed_json(task: &Task) -> Value {
    let mut content = task_json(task, true);
    if let Some(members) = content.as_object_mut() {
        for known in ["description", "creator", "created_at", "updated_at"] {
            members.remove(known);
        }
    }
    content
}

fn event_json(event: &TaskEvent) -> Value {
    without_nulls(json!({
        "at": event.at.rfc3339(), "by": event.by, "status": event.status, "owner": event.owner, "note": event.note,
    }))
}

pub(super) fn create(call: &CallContext, params: CreateParams, w: &mut Tx) -> Result<Output> {
    let owner = match &params.owner {
        Some(name) => agent_id(w, name)?,
        None => call.caller.agent_id.clone(),
    };
    let new = NewTask {
        title: params.title,
        description: params.description.unwrap_or_default(),
        owner,
        priority: params.priority.unwrap_or(0),
        depends_on: params.depends_on,
        parent_id: params.parent_id,
        due_at: params.due_at.as_deref().map(|text| instant("due_at", text)).transpose()?,
        chain: call.chain(),
    };
    let task = rules::create(w, &call.party(), new)?;
    Ok(changed_json(&task).into())
}

pub(super) async fn list(call: &CallContext, params: ListParams) -> Result<Output> {
    let ListParams { owner, status, parent_id, limit } = params;
    let limit = within("limit", limit, LIMIT_DEFAULT, LIMIT_MAX, "narrow the list by owner or status instead")?;
    let mut tasks = call
        .services
        .read(move |r| {
            let owner = owner.map(|name| agent_id(r, &name)).transpose()?;
            // Read one task more than the limit, to know whether there are more.
            let filter = TaskFilter { owner, status, parent_id, limit: limit + 1, ..TaskFilter::default() };
            Ok::<_, Refusal>(r.task_list(&filter)?)
        })
        .await?;
    let more = tasks.len() > limit as usize;
    tasks.truncate(limit as usize);
    let (rows, all) = fitting(tasks.iter().map(|task| task_json(task, true)), LIST_BYTES);
    Ok(Output::cut(Value::Array(rows), more || !all))
}

pub(super) async fn get(call: &CallContext, params: GetParams) -> Result<Output> {
    let found = call.services.read(move |r| rules::get_with_history(r, params.task_id)).await?;
    let mut content = task_json(&found.task, false);
    // The newest changes matter most, so a long history loses its beginning.
    let (mut history, all) = fitting(found.history.iter().rev().map(event_json), HISTORY_BYTES);
    history.reverse();
    let notes = history
        .iter()
        .filter(|event| event.get("note").is_some())
        .map(|event| json!({ "at": event["at"], "by": event["by"], "note": event["note"] }));
    content["notes"] = Value::Array(notes.collect());
    content["history"] = Value::Array(history);
    Ok(Output::cut(content, !all))
}

pub(super) fn update(call: &CallContext, params: UpdateParams, w: &mut Tx) -> Result<Output> {
    if !call.caller.manages_tasks {
        check_own(call, &rules::get(w, params.task_id)?, &params)?;
    }
    let owner = params.owner.map(|name| agent_id(w, &name)).transpose()?;
    let change = TaskChange {
        status: params.status,
        owner,
        note: params.note,
        result: params.result,
        depends_on: params.depends_on,
        reopen: params.reopen,
    };
    let task = rules::update(w, &call.party(), params.task_id, change, call.chain())?;
    Ok(changed_json(&task).into())
}

/// Checks a change by an agent without the privilege: it may change status, note and result of its
/// own tasks, if the world allows that.
fn check_own(call: &CallContext, task: &Task, params: &UpdateParams) -> Result<()> {
    let own = &call.caller.agent_id;
    let denied = |what: String, hint: &str| Err(Refusal::new(Code::AccessDenied, what).hint(hint));
    if task.owner != *own {
        return denied(
            format!("task {} is the work of {}; {own} may change only its own tasks", task.task_id, task.owner),
            "send its owner or its creator a message instead",
        );
    }
    if !(call.caller.updates_own_tasks && call.services.plan().owner_may_update_tasks) {
        return denied(
            format!("{own} may not change tasks in this world, not even its own"),
            "report the progress to the task's creator",
        );
    }
    if params.depends_on.is_some() {
        return denied(
            format!("{own} may not change what a task waits for"),
            "ask the task's creator, and say why in a note",
        );
    }
    if params.owner.as_ref().is_some_and(|owner| owner != own.as_str()) {
        return denied(
            format!("{own} may not give a task to someone else"),
            "ask the task's creator to reassign it, and say why in a note",
        );
    }
    Ok(())
}
