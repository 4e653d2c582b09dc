//! The people of a task: saves a changed task with its history and event, notifies its owner and its creator, gives the tasks
//! of a deleted agent to a new one with the same id, and reminds owners. A list omits no task because there are many:
//! `limits.tasks_open_max` limits their number.

use std::cmp::Reverse;

use crate::mail::{self, NewMessage};
use crate::prelude::*;
use crate::root_limits;

/// Writes a changed task, its history entry and its event.
pub(super) fn save(w: &mut Tx, by: &Party, task: &Task, note: Option<&str>, kind: EventKind) -> Result<()> {
    let ctx = w.ctx;
    w.task_put(task)?;
    w.task_event_append(&TaskEvent {
        task_id: task.task_id,
        by: by.clone(),
        at: ctx.now(),
        status: task.status,
        owner: task.owner.clone(),
        note: note.map(str::to_owned),
    })?;
    let payload = json!({
        "task_id": task.task_id, "title": task.title, "owner": task.owner, "status": task.status, "by": by,
        "note": note.map(|note| ctx.excerpt(note, 200)),
        "result": task.result.as_deref().map(|text| ctx.excerpt(text, 200)),
    });
    w.emit(NewEvent::new(kind, payload).agent(&task.owner).correlation(task.root_id))
}

/// A task's mail belongs to the session in which it was created, whoever changes it from where.
fn in_session_of(task: &Task, chain: Chain) -> Chain {
    Chain { conversation_id: task.conversation_id, ..chain }
}

/// Sends the task to its owner. An agent that assigns a task to itself gets no mail.
pub(super) fn assign(w: &mut Tx, by: &Party, task: &Task, chain: Chain) -> Result<()> {
    if by.agent() == Some(&task.owner) {
        return Ok(());
    }
    let body = format!("task_id: {}\ntitle: {}\n\n{}", task.task_id, task.title, task.description);
    let new_message = notice(w.ctx, by, &task.owner, body, in_session_of(task, chain))
        .subject(format!("Task for you: {}", clip(&task.title, 120)));
    mail::deliver(w, new_message).map(drop)
}

/// Notifies the creator of a task's new state, if possible.
pub(super) fn notify_creator(w: &mut Tx, by: &Party, task: &Task, note: Option<&str>, chain: Chain) -> Result<()> {
    let Some(creator) = task.creator.agent() else { return Ok(()) };
    if by.agent() == Some(creator) {
        return Ok(());
    }
    tell(w, by, creator, task, note, chain)
}

/// Notifies the owner of a task that something happened to what it waits for, if possible.
pub(super) fn notify_owner(w: &mut Tx, task: &Task, note: &str, chain: Chain) -> Result<()> {
    tell(w, &Party::System, &task.owner, task, Some(note), chain)
}

/// Sends a task's state to one agent, if possible.
fn tell(w: &mut Tx, by: &Party, to: &AgentId, task: &Task, note: Option<&str>, chain: Chain) -> Result<()> {
    let mut body =
        format!("task_id: {}\ntitle: {}\nstatus: {}\nowner: {}", task.task_id, task.title, task.status, task.owner);
    for (field, text) in [("note", note), ("result", task.result.as_deref())] {
        if let Some(text) = text {
            body.push_str(&format!("\n{field}: {text}"));
        }
    }
    let new_message = notice(w.ctx, by, to, body, in_session_of(task, chain)).subject(format!(
        "Task {}: {}",
        task.status,
        clip(&task.title, 120)
    ));
    try_to_notify(w, new_message)
}

/// Delivers a notice about a task, if possible. A full inbox or a deleted receiver must not prevent
/// the change; lists of tasks and the feed show it.
fn try_to_notify(w: &mut Tx, new_message: NewMessage) -> Result<()> {
    let (from, chain) = (new_message.from.clone(), new_message.chain);
    match mail::deliver(w, new_message) {
        Ok(_) => Ok(()),
        Err(refusal) => match (refusal.code, from.agent()) {
            (Code::InboxFull | Code::NotFound | Code::HopLimit | Code::RateLimited | Code::LoopGuard, from) => {
                from.map_or(Ok(()), |agent_id| root_limits::refused(w, agent_id, chain, &refusal))
            }
            _ => Err(refusal),
        },
    }
}

/// A message about tasks. Its body is truncated to the maximum size.
fn notice(ctx: &Context, by: &Party, to: &AgentId, body: String, chain: Chain) -> NewMessage {
    let body = prefix_bytes(&body, ctx.limits().message_bytes as usize);
    NewMessage::new(to, by.clone(), Kind::Task, body, chain)
}

/// Maximum tasks that one message lists.
const NAMED: usize = 20;

/// Maximum tasks that one transaction sends in full; the others are sent in lists. Each may be as
/// large as a message.
const SENT_IN_FULL: usize = 200;

/// The number of tasks in one page. Each may be as large as a message.
const PAGE: u32 = 250;

/// Passes all open tasks, of one agent or of the world, to `take`, page by page, ordered by id. Changes to the tasks of
/// one page do not affect the next page.
fn each_open(
    w: &mut Tx,
    owner: Option<&AgentId>,
    mut take: impl FnMut(&mut Tx, Task) -> Result<()> + Send,
) -> Result<()> {
    let mut after = None;
    loop {
        let page = w.tasks_open(owner, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.task_id);
        page.into_iter().try_for_each(|task| take(w, task))?;
    }
}

/// The fields of a task that a list shows. Complete tasks may be large, and there may be many.
struct Entry {
    task_id: TaskId,
    chain: Chain,
    status: TaskStatus,
    title: String,
    rank: (Reverse<i32>, Timestamp, TaskId),
}

impl Entry {
    fn of(task: &Task) -> Self {
        Self {
            task_id: task.task_id,
            chain: Chain::of_task(task),
            status: task.status,
            title: task.title.clone(),
            rank: (Reverse(task.priority), task.created_at, task.task_id),
        }
    }
}

/// Records the deletion of an owner in its open tasks, and notifies each creator once for each
/// chain of work. The tasks stay open, for another owner or for a later agent with the same id.
/// Returns their ids.
pub fn left_behind(w: &mut Tx, owner: &AgentId) -> Result<Vec<TaskId>> {
    let mut creators: BTreeMap<(AgentId, Chain), Vec<Entry>> = BTreeMap::new();
    let mut left = Vec::new();
    each_open(w, Some(owner), |w, mut task| {
        task.updated_at = w.ctx.now();
        let note = format!("its owner {owner} was deleted");
        save(w, &Party::System, &task, Some(&note), EventKind::TaskUpdated)?;
        left.push(task.task_id);
        if let Some(creator) = task.creator.agent().filter(|creator| *creator != owner) {
            creators.entry((creator.clone(), Chain::of_task(&task))).or_default().push(Entry::of(&task));
        }
        Ok(())
    })?;
    for ((creator, chain), mut tasks) in creators {
        let what = format!(
            "{owner} was deleted. Nobody works on these tasks, which you gave it, until you give them to another \
             agent; you can also cancel them. A new agent with the id {owner} receives them.\n"
        );
        let subject = format!("{owner} was deleted with {} of yours", tasks_of(tasks.len()));
        let new_message = notice(w.ctx, &Party::System, &creator, what + &list(&mut tasks), chain);
        try_to_notify(w, new_message.subject(clip(&subject, 200)))?;
    }
    Ok(left)
}

/// Sends a new agent the tasks that an earlier agent with its id owned, except blocked ones: the
/// first ones in full, as if they were assigned now, the rest in a list for each chain of work.
pub fn handed_on(w: &mut Tx, owner: &AgentId) -> Result<()> {
    let mut ready = Vec::new();
    each_open(w, Some(owner), |_, task| {
        ready.extend((task.status != TaskStatus::Blocked).then(|| Entry::of(&task)));
        Ok(())
    })?;
    give(w, owner, ready, SENT_IN_FULL, "An earlier agent with your id also owned these tasks; they are yours now.")
}

/// Sends the owners of a root's open tasks these tasks again: the first ones in full, in equal
/// shares for each owner, the rest in a list. Used when work has stopped, because mail of a failed
/// turn is not tried again by itself. Returns the number of tasks.
pub fn remind(w: &mut Tx, root_id: RootId) -> Result<usize> {
    let mut due: BTreeMap<AgentId, Vec<Entry>> = BTreeMap::new();
    each_open(w, None, |_, task| {
        if task.status != TaskStatus::Blocked && task.root_id == root_id {
            due.entry(task.owner.clone()).or_default().push(Entry::of(&task));
        }
        Ok(())
    })?;
    let in_full = (SENT_IN_FULL / due.len().max(1)).max(1);
    let mut count_sent = 0;
    for (owner, tasks) in due {
        let count = tasks.len();
        match give(w, &owner, tasks, in_full, "You also own these tasks, which wait for you.") {
            Ok(()) => count_sent += count,
            // The owner is deleted. Its tasks wait for a new owner and must not stop the other
            // reminders.
            Err(refusal) if refusal.code == Code::NotFound => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(count_sent)
}

/// Sends an agent tasks that it owns: the first `in_full` of them in full, the rest after the text
/// `rest_intro` in a list for each chain of work.
fn give(w: &mut Tx, owner: &AgentId, mut tasks: Vec<Entry>, in_full: usize, rest_intro: &str) -> Result<()> {
    tasks.sort_unstable_by_key(|entry| entry.rank);
    let rest = tasks.split_off(tasks.len().min(in_full));
    for entry in tasks {
        if let Some(task) = w.task_get(entry.task_id)? {
            assign(w, &Party::System, &task, Chain::of_task(&task))?;
        }
    }
    let mut chains: BTreeMap<Chain, Vec<Entry>> = BTreeMap::new();
    for entry in rest {
        chains.entry(entry.chain).or_default().push(entry);
    }
    for (chain, mut tasks) in chains {
        let what = format!("{rest_intro} The task board shows them in full.\n{}", list(&mut tasks));
        let subject = format!("{} more for you", tasks_of(tasks.len()));
        let new_message = notice(w.ctx, &Party::System, owner, what, chain).subject(subject);
        mail::deliver(w, new_message)?;
    }
    Ok(())
}

/// Lists the first of these tasks and the number of the others.
fn list(tasks: &mut [Entry]) -> String {
    tasks.sort_unstable_by_key(|entry| entry.rank);
    let mut text = String::new();
    for task in tasks.iter().take(NAMED) {
        text.push_str(&format!("\ntask_id: {}\nstatus: {}\ntitle: {}\n", task.task_id, task.status, task.title));
    }
    if tasks.len() > NAMED {
        text.push_str(&format!("\n{} more are on the task board.\n", tasks.len() - NAMED));
    }
    text
}

fn tasks_of(count: usize) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") }
}
