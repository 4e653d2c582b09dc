//! Reads rows from the store for the services. [`commands`] holds the few writes that `ghost-rules` has
//! no rule for.
//!
//! A query must never decide anything, or return an unbounded list.

mod agents;
mod asks;
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
pub use asks::why_unanswered;
pub use beginning::beginning_with;
pub use budgets::{budgets, usage, usage_page};
pub use commands::{TakeOver, TaskText, cancel_turn, deliver, edit_task, store_answer, take_over_call};
pub use conversations::{Answering, answering, beyond_the_end, conversation, conversations, ended_turn, unanswerable};
pub use filters::{agent_in_filter, archetype_in_filter, tool_in_filter, turn_in_filter};
pub use pages::{PAGE_BYTES, Page, within_bytes};
pub use roots::root_named;
pub use turns::{turn, turns, why_ended};

use ghost_domain::{
    AgentId, CallId, DeadLetter, DeadLetterId, DeadLetterStatus, Envelope, LedgerRow, Refusal, RequestKey, Schedule,
    ScheduleKind, StoredAnswer, Task, TaskId, TaskStatus, TurnId,
};
use ghost_rules::tasks;
use ghost_store::tables::{LedgerFilter, SchedulePlace, TaskFilter};
use ghost_world::World;
use uuid::Uuid;

use self::outcome::{Result, refused};
use self::pages::{WINDOW, newest, window};
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
    let read = world
        .store()
        .read(move |r| Box::pin(async move { r.schedule_list(agent_id.as_ref(), kind, after.as_ref()).await }));
    let rows: Vec<Schedule> = read.await.map_err(refused)?;
    let position = |row: &Schedule| format!("{}\u{1}{}\u{1}{}", row.agent_id, row.kind.as_str(), row.name);
    Ok(Page::cut(rows, limit, position))
}

/// Dead letters, newest first, among the newest 1000. The flag is true on the last page if the
/// store may hold older ones.
pub async fn dead_letters(
    world: &World,
    agent_id: Option<AgentId>,
    status: Option<DeadLetterStatus>,
    after: Option<Position>,
    limit: usize,
) -> Result<(Page<DeadLetter>, bool)> {
    let rows: Vec<DeadLetter> = world
        .store()
        .read(move |r| Box::pin(async move { r.dead_letter_list(agent_id.as_ref(), status).await }))
        .await
        .map_err(refused)?;
    let full = rows.len() >= WINDOW as usize;
    let position = |letter: &DeadLetter| Position { at: letter.created_at, id: letter.dead_letter_id.0.as_u128() };
    let page = newest(rows, false, after, limit, position);
    let truncated = full && page.next.is_empty();
    Ok((page, truncated))
}

/// A dead letter with its messages. Messages that retention has deleted are omitted.
pub async fn dead_letter(world: &World, id: DeadLetterId) -> Result<(DeadLetter, Vec<Envelope>)> {
    world
        .store()
        .read(move |r| {
            Box::pin(async move {
                let Some(letter) = r.dead_letter_get(id).await? else {
                    return Err(
                        Refusal::not_found("dead letter", &id.to_string(), None).hint("see `ghostctl dead list`")
                    );
                };
                let mut envelopes = Vec::with_capacity(letter.messages.len());
                for message_id in &letter.messages {
                    envelopes.extend(r.message_get(*message_id).await?);
                }
                Ok((letter, envelopes))
            })
        })
        .await
}

/// Tasks by priority, then by age, among the first 1000 that match. The flag is true on the last
/// page if the store may hold more.
pub async fn task_page(
    world: &World,
    owner: Option<AgentId>,
    status: Option<TaskStatus>,
    cursor: &str,
    limit: usize,
) -> Result<(Page<Task>, bool)> {
    let after = match cursor.split_once('/') {
        None if cursor.is_empty() => None,
        Some((priority, position)) => {
            let priority: i32 = priority.parse().map_err(|_| bad_cursor(cursor))?;
            let position = crate::convert::input::position(position)?.ok_or_else(|| bad_cursor(cursor))?;
            Some((-i64::from(priority), position))
        }
        None => return Err(bad_cursor(cursor)),
    };
    let filter = TaskFilter { owner, status, parent_id: None, limit: WINDOW };
    let rows: Vec<Task> =
        world.store().read(move |r| Box::pin(async move { r.task_list(&filter).await })).await.map_err(refused)?;
    let full = rows.len() >= WINDOW as usize;
    let order =
        |task: &Task| (-i64::from(task.priority), Position { at: task.created_at, id: task.task_id.0.as_u128() });
    let mut rows: Vec<Task> = rows.into_iter().filter(|task| after.is_none_or(|after| order(task) > after)).collect();
    let more = rows.len() > limit;
    rows.truncate(limit);
    let positions: Vec<String> =
        rows.iter().map(|task| format!("{}/{}", task.priority, order(task).1.cursor())).collect();
    let next = if more { positions.last().cloned().unwrap_or_default() } else { String::new() };
    let truncated = full && next.is_empty();
    Ok((Page { rows, positions, next }, truncated))
}

/// A task with its history.
pub async fn task(world: &World, task_id: TaskId) -> Result<tasks::TaskWithHistory> {
    world.store().read(move |r| Box::pin(async move { tasks::get_with_history(r, task_id).await })).await
}

/// Ledger rows of tool calls, newest first.
pub async fn ledger(
    world: &World,
    filter: LedgerFilter,
    after: Option<Position>,
    limit: usize,
) -> Result<Page<LedgerRow>> {
    let window = window(limit);
    let behind = after.map(|position| (position.at, CallId(Uuid::from_u128(position.id))));
    let filter = LedgerFilter { after: behind, limit: window, ..filter };
    let rows: Vec<LedgerRow> =
        world.store().read(move |r| Box::pin(async move { r.call_list(&filter).await })).await.map_err(refused)?;
    let more = rows.len() >= window as usize;
    let position = |row: &LedgerRow| Position { at: row.started_at, id: row.call_id.0.as_u128() };
    Ok(newest(rows, more, after, limit, position))
}

/// The call of an operator's turn, which has exactly one.
pub async fn call_of_turn(world: &World, turn_id: TurnId) -> Result<Option<LedgerRow>> {
    let filter = LedgerFilter { turn_id: Some(turn_id), limit: 1, ..LedgerFilter::default() };
    let rows: Vec<LedgerRow> =
        world.store().read(move |r| Box::pin(async move { r.call_list(&filter).await })).await.map_err(refused)?;
    Ok(rows.into_iter().next())
}

/// The stored answer of a request.
pub async fn stored_answer(world: &World, key: &RequestKey) -> Result<Option<String>> {
    let (principal, request_id) = (key.principal.clone(), key.request_id.clone());
    let stored: Option<StoredAnswer> = world
        .store()
        .read(move |r| Box::pin(async move { r.request_get(&principal, &request_id).await }))
        .await
        .map_err(refused)?;
    Ok(stored.map(|stored| stored.answer))
}

#[cfg(test)]
mod tests {
    use ghost_domain::{Budget, RootId, Scope, Timestamp};

    use super::*;

    #[tokio::test]
    async fn paging_through_schedules_and_conversations_reaches_the_end() {
        use ghost_domain::schedule::{JobOptions, Missed, When};
        use ghost_domain::{Conversation, ConversationId, Party, ScheduleId};

        use crate::convert::input::position;

        let scene = crate::fixture::Scene::new().await;
        let write = scene.world.store().write(|w| {
            Box::pin(async move {
                for n in 1..=1_700 {
                    let schedule = Schedule {
                        schedule_id: ScheduleId(Uuid::from_u128(n)),
                        kind: ScheduleKind::Timer,
                        agent_id: "ada".parse()?,
                        name: format!("{n}"),
                        when: When::At { at: Timestamp(9) },
                        message: String::new(),
                        missed: Missed::Skip,
                        options: JobOptions::default(),
                        enabled: true,
                        root_id: RootId(Uuid::nil()),
                        hop: 0,
                        next_at: None,
                        last_at: None,
                        last_status: None,
                        runs: 0,
                        creator: Party::System,
                        created_at: Timestamp(0),
                    };
                    w.schedule_put(&schedule).await?;
                    let conversation = Conversation {
                        conversation_id: ConversationId(Uuid::from_u128(n)),
                        adapter: "control".into(),
                        thread: format!("{n}"),
                        owner: "ada".parse()?,
                        party: Party::System,
                        last_seq: 0,
                        created_at: Timestamp(0),
                        updated_at: Timestamp(5),
                        heard: 0,
                        heard_at: None,
                        reacted: None,
                        passed_on: Vec::new(),
                    };
                    w.conversation_put(&conversation).await?;
                }
                Ok::<_, Refusal>(())
            })
        });
        write.await.unwrap();
        let (mut names, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = schedules(&scene.world, None, Some(ScheduleKind::Timer), &cursor, 500).await.unwrap();
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
            let page = conversations(&scene.world, None, after, 500).await.unwrap();
            ids.extend(page.rows.iter().map(|row| row.conversation_id.0.as_u128()));
            after = position(&page.next).unwrap();
            if after.is_none() {
                break;
            }
        }
        assert_eq!(ids, (1..=1_700).rev().collect::<Vec<u128>>());
        for cursor in ["ada", "ada\u{1}timer", "a da\u{1}timer\u{1}x", "ada\u{1}tea\u{1}x"] {
            let refused = schedules(&scene.world, None, None, cursor, 5).await.unwrap_err();
            assert_eq!(refused.code, ghost_domain::Code::InvalidArguments, "{cursor}");
        }
    }

    #[tokio::test]
    async fn a_list_that_the_store_truncates_says_so() {
        use ghost_domain::ScopeSort;

        let scene = crate::fixture::Scene::new().await;
        let put = async |from: u128, to: u128| {
            let write = scene.world.store().write(move |w| {
                Box::pin(async move {
                    for n in from..to {
                        let letter = DeadLetter {
                            dead_letter_id: DeadLetterId(uuid::Uuid::from_u128(n)),
                            agent_id: "ada".parse()?,
                            turn_id: TurnId(uuid::Uuid::from_u128(n)),
                            messages: Vec::new(),
                            reason: "test".into(),
                            crashes: 3,
                            status: DeadLetterStatus::Held,
                            created_at: Timestamp(i64::try_from(n).unwrap_or_default()),
                            resolved_at: None,
                        };
                        w.dead_letter_put(&letter).await?;
                        let scope = Scope::Root(RootId(uuid::Uuid::from_u128(n)));
                        w.budget_put(&Budget::open(scope, Timestamp(0))).await?;
                    }
                    Ok::<_, Refusal>(())
                })
            });
            write.await.unwrap();
        };
        let list_both = async || {
            let (letters, cut) = dead_letters(&scene.world, None, None, None, 2_000).await.unwrap();
            let budgets = budgets(&scene.world, Some(ScopeSort::Root), "", 2_000).await.unwrap();
            (letters.rows.len(), cut, budgets.rows.len(), budgets.next)
        };
        put(1, 900).await;
        assert_eq!(list_both().await, (899, false, 899, String::new()));
        put(900, 1_200).await;
        assert_eq!(list_both().await, (1_000, true, 1_199, String::new()), "budgets are read to their end");
        // Behind many roots, the world and its day are still found, and paging omits nothing.
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = budgets(&scene.world, Some(ScopeSort::Root), &cursor, 500).await.unwrap();
            found.extend(page.rows.into_iter().map(|budget| budget.scope));
            cursor = page.next;
            if cursor.is_empty() {
                break;
            }
        }
        found.dedup();
        assert_eq!(found.len(), 1_199);
        let day = Budget::open(Scope::World.daily().unwrap(), Timestamp(0));
        let write = scene.world.store().write(move |w| Box::pin(async move { w.budget_put(&day).await }));
        write.await.map_err(Refusal::from).unwrap();
        let others = budgets(&scene.world, None, "", 500).await.unwrap().rows;
        assert!(others.iter().any(|budget| budget.scope.to_string() == "world/day"), "{others:?}");
        // `truncated` is set only on the last page.
        let (page, cut) = dead_letters(&scene.world, None, None, None, 10).await.unwrap();
        assert!(!page.next.is_empty() && !cut);
    }
}
