//! Open tasks and those who own them: what becomes of the tasks of an agent that is deleted, who tells its successor, and what a
//! job waits for whose owners do no work.
//!
//! Must never: end a task, or leave one out because there are many: whoever wanted it says what is to become of it. How many
//! there can be is bounded by `limits.tasks_open_max`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ghost_domain::event::EventKind;
use ghost_domain::text::clip;
use ghost_domain::{AgentId, Code, Kind, Party, RootId, Task, TaskId, TaskStatus, Timestamp};
use ghost_store::{Reads, Writes};

use super::open::Open;
use super::telling::{assign, bounded, keep, try_to_tell};
use crate::agent_lookup::Idle;
use crate::chain::Chain;
use crate::mail::NewMessage;
use crate::{Result, RuleContext, agent_lookup};

/// Tasks that are named one by one in a letter.
const NAMED: usize = 20;

/// Tasks that are given one by one in one step, with all that they say; of more their owners get lists. Each may be as large as
/// a message, and all of it is one transaction.
const GIVEN: usize = 200;

/// What a list says of a task. Whole ones may be large, and there may be many.
struct Entry {
    task_id: TaskId,
    root_id: RootId,
    status: TaskStatus,
    title: String,
    rank: (Reverse<i32>, Timestamp, TaskId),
}

impl Entry {
    fn of(task: &Task) -> Self {
        Self {
            task_id: task.task_id,
            root_id: task.root_id,
            status: task.status,
            title: task.title.clone(),
            rank: (Reverse(task.priority), task.created_at, task.task_id),
        }
    }
}

/// Says of the open tasks of an agent that is being deleted that nobody does them: in their history, and to whoever created
/// them, once for each chain of work. They stay open, for another owner or for a successor of the same id. Gives them.
pub async fn left_behind(w: &mut dyn Writes, ctx: &RuleContext, owner: &AgentId) -> Result<Vec<TaskId>> {
    let mut creators: BTreeMap<(AgentId, RootId), Vec<Entry>> = BTreeMap::new();
    let mut left = Vec::new();
    let mut open = Open::of(owner);
    while let Some(page) = open.page(w).await? {
        for mut task in page {
            task.updated_at = ctx.now();
            let note = format!("its owner {owner} was deleted");
            keep(w, ctx, &Party::System, &task, Some(&note), EventKind::TaskUpdated).await?;
            left.push(task.task_id);
            if let Some(creator) = task.creator.agent().filter(|creator| *creator != owner) {
                creators.entry((creator.clone(), task.root_id)).or_default().push(Entry::of(&task));
            }
        }
    }
    for ((creator, root_id), mut tasks) in creators {
        let what = format!(
            "{owner} was deleted. Nobody does these tasks, which you gave it, until you give them to another agent; you can \
             also cancel them. An agent that is created with the id {owner} is told of them.\n"
        );
        let subject = format!("{owner} was deleted with {} of yours", tasks_of(tasks.len()));
        let chain = Chain { root_id, hop: 0 };
        let new_message = NewMessage {
            subject: Some(clip(&subject, 200)),
            ..NewMessage::new(&creator, Party::System, Kind::Task, bounded(ctx, what + &list(&mut tasks)), chain)
        };
        try_to_tell(w, ctx, new_message).await?;
    }
    Ok(left)
}

/// Tells a new agent of the tasks that its id has owned since an earlier agent bore it, where they can be worked on: of those
/// that come first one by one, as if each was given to it now, of the rest in a list for each chain of work.
pub async fn handed_on(w: &mut dyn Writes, ctx: &RuleContext, owner: &AgentId) -> Result<()> {
    let mut ready = Vec::new();
    let mut open = Open::of(owner);
    while let Some(page) = open.page(w).await? {
        ready.extend(page.iter().filter(|task| task.status != TaskStatus::Blocked).map(Entry::of));
    }
    give(w, ctx, owner, ready, GIVEN, "An earlier agent of your id owned these tasks, too; they are yours now.").await
}

/// Tells the owners of a root's open tasks of them again: of those that come first one by one, an even share for each owner, of
/// the rest in a list. For work that came to a stand: mail that a failed turn had taken is not tried again by itself. Says of how
/// many tasks.
pub async fn remind(w: &mut dyn Writes, ctx: &RuleContext, root_id: RootId, except: &AgentId) -> Result<usize> {
    let mut due: BTreeMap<AgentId, Vec<Entry>> = BTreeMap::new();
    let mut open = Open::all();
    while let Some(page) = open.page(w).await? {
        let wanted = page.iter().filter(|task| task.status != TaskStatus::Blocked && task.root_id == root_id);
        for task in wanted.filter(|task| task.owner != *except) {
            due.entry(task.owner.clone()).or_default().push(Entry::of(task));
        }
    }
    let whole = (GIVEN / due.len().max(1)).max(1);
    let mut told = 0;
    for (owner, tasks) in due {
        let count = tasks.len();
        match give(w, ctx, &owner, tasks, whole, "These tasks are yours, too, and wait for you.").await {
            Ok(()) => told += count,
            // The owner is deleted. Its tasks wait for another, which must not keep the rest from going on.
            Err(refusal) if refusal.code == Code::NotFound => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(told)
}

/// Tells an agent of tasks that it owns: of the first `whole` one by one, as if each was given to it now, of the rest, after
/// `rest_are`, in a list for each chain of work.
async fn give(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    owner: &AgentId,
    mut tasks: Vec<Entry>,
    whole: usize,
    rest_are: &str,
) -> Result<()> {
    tasks.sort_unstable_by_key(|entry| entry.rank);
    let rest = tasks.split_off(tasks.len().min(whole));
    for entry in tasks {
        if let Some(task) = w.task_get(entry.task_id).await? {
            assign(w, ctx, &Party::System, &task, Chain { root_id: task.root_id, hop: 0 }).await?;
        }
    }
    let mut roots: BTreeMap<RootId, Vec<Entry>> = BTreeMap::new();
    for entry in rest {
        roots.entry(entry.root_id).or_default().push(entry);
    }
    for (root_id, mut tasks) in roots {
        let what = format!("{rest_are} The board shows them whole, with all that you own.\n{}", list(&mut tasks));
        let subject = format!("{} more for you", tasks_of(tasks.len()));
        let chain = Chain { root_id, hop: 0 };
        let new_message = NewMessage {
            subject: Some(subject),
            ..NewMessage::new(owner, Party::System, Kind::Task, bounded(ctx, what), chain)
        };
        crate::mail::deliver(w, ctx, new_message).await?;
    }
    Ok(())
}

/// The first of these tasks, one by one, and how many more there are.
fn list(tasks: &mut [Entry]) -> String {
    tasks.sort_unstable_by_key(|entry| entry.rank);
    let mut text = String::new();
    for task in tasks.iter().take(NAMED) {
        text.push_str(&format!("\ntask_id: {}\nstatus: {}\ntitle: {}\n", task.task_id, task.status, task.title));
    }
    if tasks.len() > NAMED {
        text.push_str(&format!("\n{} more are on the board.\n", tasks.len() - NAMED));
    }
    text
}

/// What of a root's work is still open although nothing is at work, in words: how many tasks, and which of their owners cannot
/// work, and why. Nothing if no task is open.
pub async fn held_up(r: &mut dyn Reads, root_id: RootId) -> Result<Option<String>> {
    let mut count = 0_usize;
    let mut whys: BTreeMap<AgentId, Option<&str>> = BTreeMap::new();
    let mut idle: BTreeMap<String, (usize, Vec<TaskId>)> = BTreeMap::new();
    let mut open = Open::all();
    while let Some(page) = open.page(r).await? {
        for task in page.into_iter().filter(|task| task.root_id == root_id) {
            count += 1;
            let why = match whys.get(&task.owner) {
                Some(why) => *why,
                None => {
                    let why = agent_lookup::idle(r, &task.owner).await?.map(Idle::as_str);
                    whys.insert(task.owner.clone(), why);
                    why
                }
            };
            let Some(why) = why else { continue };
            let (owned, first) = idle.entry(format!("{} {why}", task.owner)).or_default();
            *owned += 1;
            if first.len() < 4 {
                first.push(task.task_id);
            }
        }
    }
    if count == 0 {
        return Ok(None);
    }
    let owners = idle.iter().map(|(owner, (owned, first))| {
        let named: Vec<String> = first.iter().map(ToString::to_string).collect();
        let more = if *owned > first.len() { ", ..." } else { "" };
        format!("{owner} and owns {} ({}{more})", tasks_of(*owned), named.join(", "))
    });
    let owners: Vec<String> = owners.collect();
    let are = if count == 1 { "is" } else { "are" };
    Ok(Some(match owners.is_empty() {
        true => format!("{} {are} open", tasks_of(count)),
        false => format!("{} {are} open: {}", tasks_of(count), owners.join("; ")),
    }))
}

fn tasks_of(count: usize) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") }
}
