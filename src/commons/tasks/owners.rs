//! Open tasks and those who own them: what becomes of the tasks of an agent that is deleted, who tells its successor, and what a
//! job waits for whose owners do no work.
//!
//! Must never: end a task. Whoever wanted it says what is to become of it.

use std::collections::BTreeMap;

use ghost_domain::event::EventKind;
use ghost_domain::text::clip;
use ghost_domain::{AgentId, AgentStatus, Desired, Kind, Party, RootId, Task, TaskId, TaskStatus};
use ghost_store::tables::TaskFilter;
use ghost_store::{Reads, Writes};

use super::telling::{assign, bounded, keep, try_to_tell};
use crate::chain::Chain;
use crate::mail::Draft;
use crate::{Cx, Result};

/// Tasks of one owner, or of one root, that are looked at.
const TASKS_MAX: u32 = 1_000;

/// Tasks that are named one by one.
const NAMED: usize = 20;

/// Statuses of tasks that have not ended.
const OPEN: [TaskStatus; 3] = [TaskStatus::Pending, TaskStatus::InProgress, TaskStatus::Blocked];

/// Says of the open tasks of an agent that is being deleted that nobody does them: in their history, and to whoever created
/// them, once for each chain of work. They stay open, for another owner or for a successor of the same id. Gives them.
pub async fn left_behind(w: &mut dyn Writes, cx: &Cx, owner: &AgentId) -> Result<Vec<TaskId>> {
    let mut creators: BTreeMap<(AgentId, RootId), Vec<Task>> = BTreeMap::new();
    let mut left = Vec::new();
    for mut task in open_of(w, owner).await? {
        task.updated_at = cx.now();
        let note = format!("its owner {owner} was deleted");
        keep(w, cx, &Party::System, &task, Some(&note), EventKind::TaskUpdated).await?;
        left.push(task.task_id);
        if let Some(creator) = task.creator.agent().filter(|creator| *creator != owner) {
            creators.entry((creator.clone(), task.root_id)).or_default().push(task);
        }
    }
    for ((creator, root_id), tasks) in creators {
        let count = tasks.len();
        let mut body = format!(
            "{owner} was deleted. Nobody does these tasks, which you gave it, until you give them to another agent; you can \
             also cancel them. An agent that is created with the id {owner} is told of them.\n"
        );
        for task in tasks.iter().take(NAMED) {
            body.push_str(&format!("\ntask_id: {}\nstatus: {}\ntitle: {}\n", task.task_id, task.status, task.title));
        }
        if count > NAMED {
            body.push_str(&format!("\n{} more are on the board.\n", count - NAMED));
        }
        let subject = format!("{owner} was deleted with {} of yours", tasks_of(count));
        let chain = Chain { root_id, hop: 0 };
        let draft = Draft {
            subject: Some(clip(&subject, 200)),
            ..Draft::new(&creator, Party::System, Kind::Task, bounded(cx, body), chain)
        };
        try_to_tell(w, cx, draft).await?;
    }
    Ok(left)
}

/// Tells a new agent of the tasks that its id has owned since an earlier agent bore it, where they can be worked on.
pub async fn handed_on(w: &mut dyn Writes, cx: &Cx, owner: &AgentId) -> Result<()> {
    for task in open_of(w, owner).await? {
        if task.status != TaskStatus::Blocked {
            assign(w, cx, &Party::System, &task, Chain { root_id: task.root_id, hop: 0 }).await?;
        }
    }
    Ok(())
}

/// What of a root's work is still open although nothing is at work, in words: how many tasks, and which of their owners cannot
/// work, and why. Nothing if no task is open.
pub async fn held_up(r: &mut dyn Reads, root_id: RootId) -> Result<Option<String>> {
    let mut open = 0_usize;
    let mut idle: BTreeMap<String, Vec<TaskId>> = BTreeMap::new();
    for status in OPEN {
        let filter = TaskFilter { status: Some(status), limit: TASKS_MAX, ..TaskFilter::default() };
        for task in r.task_list(&filter).await?.into_iter().filter(|task| task.root_id == root_id) {
            open += 1;
            let why = match r.agent_get(&task.owner).await?.filter(|agent| !agent.is_deleted()) {
                None => "is deleted",
                Some(agent) if agent.status == AgentStatus::Failed => "has failed",
                Some(agent) if agent.desired == Desired::Stopped => "is stopped",
                Some(_) => continue,
            };
            idle.entry(format!("{} {why}", task.owner)).or_default().push(task.task_id);
        }
    }
    if open == 0 {
        return Ok(None);
    }
    let owners = idle.iter().map(|(owner, tasks)| {
        let first: Vec<String> = tasks.iter().take(4).map(ToString::to_string).collect();
        let more = if tasks.len() > first.len() { ", ..." } else { "" };
        format!("{owner} and owns {} ({}{more})", tasks_of(tasks.len()), first.join(", "))
    });
    let owners: Vec<String> = owners.collect();
    let are = if open == 1 { "is" } else { "are" };
    Ok(Some(match owners.is_empty() {
        true => format!("{} {are} open", tasks_of(open)),
        false => format!("{} {are} open: {}", tasks_of(open), owners.join("; ")),
    }))
}

fn tasks_of(count: usize) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") }
}

async fn open_of(r: &mut dyn Reads, owner: &AgentId) -> Result<Vec<Task>> {
    let mut open = Vec::new();
    for status in OPEN {
        let filter =
            TaskFilter { owner: Some(owner.clone()), status: Some(status), limit: TASKS_MAX, ..TaskFilter::default() };
        open.extend(r.task_list(&filter).await?);
    }
    Ok(open)
}
