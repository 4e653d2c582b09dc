//! Reads rows from the store for the services. [`commands`] holds the few writes that `ghost-operations` has
//! no rule for.
//!
//! A query must never decide anything, or return an unbounded list.

mod agents;
mod agents_read;
mod beginning;
mod budgets;
mod commands;
mod conversations;
mod filters;
mod outcome;
mod pages;
mod roots;
mod turns;

pub use agents::{AtWork, agents, all_agents, at_work};
pub(crate) use agents_read::AgentsRead;
pub use beginning::beginning_with;
pub use budgets::{budgets, usage, usage_page};
pub use commands::{TakeOver, TaskText, cancel_turn, deliver, edit_task, store_answer, take_over_call};
pub use conversations::{Answering, answering, beyond_the_end, conversation, conversations, ended_turn, unanswerable};
pub use filters::{agent_in_filter, archetype_in_filter, tool_in_filter, turn_in_filter};
pub use pages::{PAGE_BYTES, Page, sealed, within_bytes};
pub use roots::root_named;
pub use turns::{turn, turns, why_ended};

use ghost_domain::{
    AgentId, Approval, ApprovalId, CallId, DeadLetter, DeadLetterId, DeadLetterStatus, Envelope, LedgerRow, Refusal,
    RequestKey, Schedule, ScheduleKind, StoredAnswer, Task, TaskId, TaskStatus, TurnId,
};
use ghost_operations::tasks;
use ghost_store::tables::{ApprovalFilter, LedgerFilter, SchedulePlace, TaskFilter};
use ghost_world::World;

use self::outcome::{Result, refused};
use self::pages::one_more;
use crate::convert::input::{Position, bad_cursor};

/// Schedules, ordered by agent, kind and name.
pub async fn schedules(
    world: &World,
    agent_id: Option<AgentId>,
    kind: Option<ScheduleKind>,
    cursor: &str,
    limit: usize,
) -> Result<Page<Schedule>> {
    // The separator cannot occur in an agent id or a kind.
    let after = match cursor.splitn(3, '\u{1}').collect::<Vec<_>>()[..] {
        [""] => None,
        [agent_id, kind, name] => {
            let (agent_id, kind) = (agent_id.parse().ok(), kind.parse().ok());
            Some(agent_id.zip(kind).map(|(agent_id, kind)| (agent_id, kind, name.to_owned())))
        }
        _ => Some(None),
    };
    let after: Option<SchedulePlace> = after.map(|position| position.ok_or_else(|| bad_cursor(cursor))).transpose()?;
    let read = world.store().read(move |r| r.schedule_list(agent_id.as_ref(), kind, after.as_ref()));
    let rows: Vec<Schedule> = read.await.map_err(refused)?;
    let position = |row: &Schedule| format!("{}\u{1}{}\u{1}{}", row.agent_id, row.kind.as_str(), row.name);
    Ok(Page::cut(rows, limit, position))
}

/// Approvals, newest first.
pub async fn approvals(
    world: &World,
    filter: ApprovalFilter,
    after: Option<Position>,
    limit: usize,
) -> Result<Page<Approval>> {
    let after = after.map(|position| (position.at, ApprovalId(position.id)));
    let read = world.store().read(move |r| r.approval_list(&filter, after, one_more(limit)));
    let rows: Vec<Approval> = read.await.map_err(refused)?;
    Ok(Page::cut(rows, limit, |row| Position { at: row.requested_at, id: row.approval_id.0 }.cursor()))
}

/// Dead letters, newest first.
pub async fn dead_letters(
    world: &World,
    agent_id: Option<AgentId>,
    status: Option<DeadLetterStatus>,
    after: Option<Position>,
    limit: usize,
) -> Result<Page<DeadLetter>> {
    let after = after.map(|position| (position.at, DeadLetterId(position.id)));
    let read = world.store().read(move |r| r.dead_letter_list(agent_id.as_ref(), status, after, one_more(limit)));
    let rows: Vec<DeadLetter> = read.await.map_err(refused)?;
    Ok(Page::cut(rows, limit, |row| Position { at: row.created_at, id: row.dead_letter_id.0 }.cursor()))
}

/// A dead letter with its messages. Messages that retention has deleted are omitted.
pub async fn dead_letter(world: &World, id: DeadLetterId) -> Result<(DeadLetter, Vec<Envelope>)> {
    world
        .store()
        .read(move |r| {
            let Some(letter) = r.dead_letter_get(id)? else {
                return Err(Refusal::not_found("dead letter", &id.to_string(), None).hint("see `ghostctl dead list`"));
            };
            let mut envelopes = Vec::with_capacity(letter.messages.len());
            for message_id in &letter.messages {
                envelopes.extend(r.message_get(*message_id)?);
            }
            Ok((letter, envelopes))
        })
        .await
}

/// Tasks by priority, then by age.
pub async fn task_page(
    world: &World,
    owner: Option<AgentId>,
    status: Option<TaskStatus>,
    cursor: &str,
    limit: usize,
) -> Result<Page<Task>> {
    let after = match cursor.split_once('/') {
        None if cursor.is_empty() => None,
        Some((priority, position)) => {
            let priority: i32 = priority.parse().map_err(|_| bad_cursor(cursor))?;
            let position = crate::convert::input::position(position)?.ok_or_else(|| bad_cursor(cursor))?;
            Some((priority, position.at, TaskId(position.id)))
        }
        None => return Err(bad_cursor(cursor)),
    };
    let filter = TaskFilter { owner, status, after, limit: one_more(limit), ..TaskFilter::default() };
    let rows: Vec<Task> = world.store().read(move |r| r.task_list(&filter)).await.map_err(refused)?;
    let position = |row: &Task| Position { at: row.created_at, id: row.task_id.0 };
    Ok(Page::cut(rows, limit, |row| format!("{}/{}", row.priority, position(row).cursor())))
}

/// A task with its history.
pub async fn task(world: &World, task_id: TaskId) -> Result<tasks::TaskWithHistory> {
    world.store().read(move |r| tasks::get_with_history(r, task_id)).await
}

/// Ledger rows of tool calls, newest first.
pub async fn ledger(
    world: &World,
    filter: LedgerFilter,
    after: Option<Position>,
    limit: usize,
) -> Result<Page<LedgerRow>> {
    let after = after.map(|position| (position.at, CallId(position.id)));
    let filter = LedgerFilter { after, limit: one_more(limit), ..filter };
    let rows: Vec<LedgerRow> = world.store().read(move |r| r.call_list(&filter)).await.map_err(refused)?;
    Ok(Page::cut(rows, limit, |row| Position { at: row.started_at, id: row.call_id.0 }.cursor()))
}

/// The call of an operator's turn, which has exactly one.
pub async fn call_of_turn(world: &World, turn_id: TurnId) -> Result<Option<LedgerRow>> {
    let filter = LedgerFilter { turn_id: Some(turn_id), limit: 1, ..LedgerFilter::default() };
    let rows: Vec<LedgerRow> = world.store().read(move |r| r.call_list(&filter)).await.map_err(refused)?;
    Ok(rows.into_iter().next())
}

/// The stored answer of a request.
pub async fn stored_answer(world: &World, key: &RequestKey) -> Result<Option<String>> {
    let (principal, request_id) = (key.principal.clone(), key.request_id.clone());
    let stored: Option<StoredAnswer> =
        world.store().read(move |r| r.request_get(&principal, &request_id)).await.map_err(refused)?;
    Ok(stored.map(|stored| stored.answer))
}

#[cfg(test)]
mod tests {
    use ghost_domain::{Budget, RootId, Scope, Timestamp};
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn paging_through_schedules_and_conversations_reaches_the_end() {
        use ghost_domain::schedule::{JobMode, Missed, When};
        use ghost_domain::{Conversation, ConversationId, Party, ScheduleId};

        use crate::convert::input::position;

        let test = crate::fixture::TestControl::new().await;
        let write = test.world.store().write(|w| {
            for n in 1..=1_700 {
                let schedule = Schedule {
                    schedule_id: ScheduleId(Uuid::from_u128(n)),
                    kind: ScheduleKind::Timer,
                    agent_id: "ada".parse()?,
                    name: format!("{n}"),
                    when: When::At { at: Timestamp(9) },
                    message: String::new(),
                    missed: Missed::Skip,
                    mode: JobMode::default(),
                    enabled: true,
                    root_id: RootId(Uuid::nil()),
                    hop: 0,
                    conversation_id: None,
                    next_at: None,
                    last_at: None,
                    last_status: None,
                    runs: 0,
                    creator: Party::System,
                    created_at: Timestamp(0),
                };
                w.schedule_put(&schedule)?;
                let (conversation_id, thread) = (ConversationId(Uuid::from_u128(n)), format!("{n}"));
                let place = ("control".into(), thread);
                let conversation =
                    Conversation::new(conversation_id, place, "ada".parse()?, Party::System, Timestamp(5));
                w.conversation_put(&conversation)?;
            }
            Ok::<_, Refusal>(())
        });
        write.await.unwrap();
        let (mut names, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = schedules(&test.world, None, Some(ScheduleKind::Timer), &cursor, 500).await.unwrap();
            names.extend(page.rows.into_iter().map(|row| row.name));
            cursor = page.next;
            if cursor.is_empty() {
                break;
            }
        }
        let mut all: Vec<String> = (1..=1_700).map(|n| format!("{n}")).collect();
        all.sort_unstable();
        assert_eq!(names, all);
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = conversations(&test.world, None, after, 500).await.unwrap();
            ids.extend(page.rows.iter().map(|row| row.conversation_id.0.as_u128()));
            after = position(&page.next).unwrap();
            if after.is_none() {
                break;
            }
        }
        assert_eq!(ids, (1..=1_700).rev().collect::<Vec<u128>>());
        for cursor in ["ada", "ada\u{1}timer", "a da\u{1}timer\u{1}x", "ada\u{1}tea\u{1}x"] {
            let refused = schedules(&test.world, None, None, cursor, 5).await.unwrap_err();
            assert_eq!(refused.code, ghost_domain::Code::InvalidArguments, "{cursor}");
        }
    }

    #[tokio::test]
    async fn paging_reaches_every_dead_letter_task_and_budget() {
        use ghost_domain::{Party, ScopeSort};

        use crate::convert::input::position;

        const ROWS: u128 = 1_700;
        let test = crate::fixture::TestControl::new().await;
        let write = test.world.store().write(|w| {
            for n in 1..=ROWS {
                let letter = DeadLetter {
                    dead_letter_id: DeadLetterId(Uuid::from_u128(n)),
                    agent_id: "ada".parse()?,
                    turn_id: TurnId(Uuid::from_u128(n)),
                    messages: Vec::new(),
                    reason: "test".into(),
                    crashes: 3,
                    status: DeadLetterStatus::Held,
                    created_at: Timestamp(5),
                    resolved_at: None,
                };
                w.dead_letter_put(&letter)?;
                let (task_id, root_id) = (TaskId(Uuid::from_u128(n)), RootId(Uuid::nil()));
                let people = ("ada".parse()?, Party::System);
                let blank = Task::new(task_id, "test".into(), people, root_id, Timestamp(5));
                let task = Task { status: TaskStatus::Done, priority: if n > 900 { 1 } else { 0 }, ..blank };
                w.task_put(&task)?;
                w.budget_put(&Budget::open(Scope::Root(RootId(Uuid::from_u128(n))), Timestamp(0)))?;
            }
            w.budget_put(&Budget::open(Scope::World.daily().unwrap(), Timestamp(0)))?;
            Ok::<_, Refusal>(())
        });
        write.await.unwrap();
        let (mut letters, mut cursor) = (Vec::new(), String::new());
        loop {
            let after = position(&cursor).unwrap();
            let page = dead_letters(&test.world, None, None, after, 500).await.unwrap();
            letters.extend(page.rows.iter().map(|row| row.dead_letter_id.0.as_u128()));
            cursor = page.next;
            if cursor.is_empty() {
                break;
            }
        }
        assert_eq!(letters, (1..=ROWS).rev().collect::<Vec<u128>>());
        let mut tasks = Vec::new();
        loop {
            let page = task_page(&test.world, None, None, &cursor, 500).await.unwrap();
            tasks.extend(page.rows.iter().map(|row| row.task_id.0.as_u128()));
            cursor = page.next;
            if cursor.is_empty() {
                break;
            }
        }
        assert_eq!(tasks, (901..=ROWS).chain(1..=900).collect::<Vec<u128>>());
        let mut roots = Vec::new();
        loop {
            let page = budgets(&test.world, Some(ScopeSort::Root), &cursor, 500).await.unwrap();
            roots.extend(page.rows.into_iter().map(|row| row.scope));
            cursor = page.next;
            if cursor.is_empty() {
                break;
            }
        }
        assert_eq!(roots, (1..=ROWS).map(|n| Scope::Root(RootId(Uuid::from_u128(n)))).collect::<Vec<_>>());
        // Behind many roots, the world and its day are still found.
        let others = budgets(&test.world, None, "", 500).await.unwrap().rows;
        assert!(others.iter().any(|budget| budget.scope.to_string() == "world/day"), "{others:?}");
    }
}
