//! The rows that the services show, and [`commands`] for the few that commons has no rule for. The one place of this
//! room that touches the store.
//!
//! Must never: decide anything, or give a list without a bound.

mod asks;
mod budgets;
mod commands;
mod conversations;
mod filters;
mod roots;
mod turns;

pub use asks::why_unanswered;
pub use budgets::{budgets, usage};
pub use commands::{TaskText, cancel_turn, deliver, edit_task, keep_answer};
pub use conversations::{Answering, answering, beyond_the_end, conversation, conversations, ended_turn};
pub use filters::{agent_in_filter, archetype_in_filter, tool_in_filter, turn_in_filter};
pub use roots::root_named;
pub use turns::{turn, turns, turns_of_root, why_ended};

use ghost_commons::{mail, tasks};
use ghost_domain::{
    Agent, AgentId, DeadLetter, DeadLetterId, DeadLetterStatus, Envelope, LedgerRow, Refusal, RequestKey, StoredAnswer,
    Task, TaskId, TaskStatus, Timestamp, TurnId,
};
use ghost_store::tables::{LedgerFilter, TaskFilter};
use ghost_world::World;

use crate::convert::input::{Place, bad_cursor};

type Result<T> = std::result::Result<T, Refusal>;

/// Most rows that the store gives at once.
const WINDOW: u32 = 1_000;
/// Rows read beyond a page: those that share a cursor's millisecond are read again and left out.
const MARGIN: u32 = 500;

/// A part of a list, and where the next part begins.
#[derive(Debug)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// The cursor of the next part; empty at the end.
    pub next: String,
}

/// A list that is not read page by page.
#[derive(Debug)]
pub struct Whole<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Whether they are as many as the store gives at once, so that there may be more.
    pub truncated: bool,
}

impl<T> From<Vec<T>> for Whole<T> {
    fn from(rows: Vec<T>) -> Self {
        Self { truncated: rows.len() >= WINDOW as usize, rows }
    }
}

impl<T> Page<T> {
    /// The page with its rows turned into something else.
    pub fn map<U>(self, turned: impl FnMut(&T) -> U) -> (Vec<U>, String) {
        (self.rows.iter().map(turned).collect(), self.next)
    }
}

/// Cuts a page out of `rows`, newest first. `more` says that the store may hold older ones.
fn newest<T>(
    rows: Vec<T>,
    more: bool,
    after: Option<Place>,
    limit: usize,
    place: impl Fn(&T) -> Place,
    wanted: impl Fn(&T) -> bool,
) -> Page<T> {
    let mut last = None;
    let (mut taken, mut rows) = (Vec::new(), rows.into_iter());
    for row in rows.by_ref() {
        let at = place(&row);
        if after.is_some_and(|after| at >= after) {
            continue;
        }
        last = Some(at);
        if wanted(&row) {
            taken.push(row);
            if taken.len() == limit {
                break;
            }
        }
    }
    let rest = more || rows.len() > 0;
    let next = match (last, after) {
        (Some(last), _) if rest => last.cursor(),
        // Nothing but rows of the cursor's own millisecond: on to the one before.
        (None, Some(after)) if rest => Place { at: Timestamp(after.at.0.saturating_sub(1)), id: u128::MAX }.cursor(),
        _ => String::new(),
    };
    Page { rows: taken, next }
}

fn window(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(WINDOW).saturating_add(MARGIN).min(WINDOW)
}

fn before(after: Option<Place>) -> Option<Timestamp> {
    after.map(|after| Timestamp(after.at.0.saturating_add(1)))
}

fn refused(error: ghost_store::StoreError) -> Refusal {
    error.into()
}

/// Schedules in order of agent, kind and name, as many as the store gives at once.
pub async fn schedules(
    world: &World,
    agent_id: Option<AgentId>,
    kind: Option<ghost_domain::ScheduleKind>,
) -> Result<Whole<ghost_domain::Schedule>> {
    let read = world.store().read(move |r| Box::pin(async move { r.schedule_list(agent_id.as_ref(), kind).await }));
    read.await.map(Whole::from).map_err(refused)
}

/// The records of agents, those that do not exist left out.
pub async fn agents(world: &World, ids: Vec<AgentId>) -> Result<Vec<Agent>> {
    world
        .store()
        .read(move |r| {
            Box::pin(async move {
                let mut found = Vec::with_capacity(ids.len());
                for id in &ids {
                    found.extend(r.agent_get(id).await?);
                }
                Ok(found)
            })
        })
        .await
}

/// Every record, tombstones included, in order of id.
pub async fn all_agents(world: &World) -> Result<Vec<Agent>> {
    world.store().read(|r| Box::pin(async move { r.agent_list(true).await })).await.map_err(refused)
}

/// What only the store knows of an agent at work.
#[derive(Clone, Debug)]
pub struct AtWork {
    /// Its record.
    pub agent: Agent,
    /// Pending mail.
    pub inbox_pending: u64,
    /// The turn under way.
    pub turn_id: Option<TurnId>,
}

/// A live agent at work, or a refusal that names the nearest one.
pub async fn at_work(world: &World, agent_id: &AgentId) -> Result<AtWork> {
    let id = agent_id.clone();
    world
        .store()
        .read(move |r| {
            Box::pin(async move {
                let agent = mail::agent_named(r, &id).await?;
                let inbox_pending = r.inbox_depth(&id).await?.into();
                let turn_id = r.turn_open_of(&id).await?.map(|turn| turn.turn_id);
                Ok(AtWork { agent, inbox_pending, turn_id })
            })
        })
        .await
}

/// Dead letters, newest first, of the newest thousand. Besides them, whether the list ends there and there may be older
/// ones.
pub async fn dead_letters(
    world: &World,
    agent_id: Option<AgentId>,
    status: Option<DeadLetterStatus>,
    after: Option<Place>,
    limit: usize,
) -> Result<(Page<DeadLetter>, bool)> {
    let rows: Vec<DeadLetter> = world
        .store()
        .read(move |r| Box::pin(async move { r.dead_letter_list(agent_id.as_ref(), status).await }))
        .await
        .map_err(refused)?;
    let full = rows.len() >= WINDOW as usize;
    let place = |letter: &DeadLetter| Place { at: letter.created_at, id: letter.dead_letter_id.0.as_u128() };
    let page = newest(rows, false, after, limit, place, |_| true);
    let truncated = full && page.next.is_empty();
    Ok((page, truncated))
}

/// A dead letter with its mail. Mail that retention has taken is left out.
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

/// Tasks by priority, then age: of the first thousand that the filter wants. Besides them, whether the list ends there and
/// the board may hold more.
pub async fn task_page(
    world: &World,
    owner: Option<AgentId>,
    status: Option<TaskStatus>,
    cursor: &str,
    limit: usize,
) -> Result<(Page<Task>, bool)> {
    let after = match cursor.split_once('/') {
        None if cursor.is_empty() => None,
        Some((priority, place)) => {
            let priority: i32 = priority.parse().map_err(|_| bad_cursor(cursor))?;
            let place = crate::convert::input::place(place)?.ok_or_else(|| bad_cursor(cursor))?;
            Some((-i64::from(priority), place))
        }
        None => return Err(bad_cursor(cursor)),
    };
    let filter = TaskFilter { owner, status, parent_id: None, limit: WINDOW };
    let rows: Vec<Task> =
        world.store().read(move |r| Box::pin(async move { r.task_list(&filter).await })).await.map_err(refused)?;
    let full = rows.len() >= WINDOW as usize;
    let order = |task: &Task| (-i64::from(task.priority), Place { at: task.created_at, id: task.task_id.0.as_u128() });
    let mut rows: Vec<Task> = rows.into_iter().filter(|task| after.is_none_or(|after| order(task) > after)).collect();
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = match rows.last() {
        Some(last) if more => format!("{}/{}", last.priority, order(last).1.cursor()),
        _ => String::new(),
    };
    let truncated = full && next.is_empty();
    Ok((Page { rows, next }, truncated))
}

/// A task with its history.
pub async fn task(world: &World, task_id: TaskId) -> Result<tasks::TaskWithHistory> {
    world.store().read(move |r| Box::pin(async move { tasks::get_with_history(r, task_id).await })).await
}

/// Recorded tool calls, newest first.
pub async fn ledger(
    world: &World,
    filter: LedgerFilter,
    after: Option<Place>,
    limit: usize,
) -> Result<Page<LedgerRow>> {
    let window = window(limit);
    let filter = LedgerFilter { before: before(after), limit: window, ..filter };
    let rows: Vec<LedgerRow> =
        world.store().read(move |r| Box::pin(async move { r.call_list(&filter).await })).await.map_err(refused)?;
    let more = rows.len() >= window as usize;
    let place = |row: &LedgerRow| Place { at: row.started_at, id: row.call_id.0.as_u128() };
    Ok(newest(rows, more, after, limit, place, |_| true))
}

/// The one call of an operator's turn.
pub async fn call_of_turn(world: &World, turn_id: TurnId) -> Result<Option<LedgerRow>> {
    let filter = LedgerFilter { turn_id: Some(turn_id), limit: 1, ..LedgerFilter::default() };
    let rows: Vec<LedgerRow> =
        world.store().read(move |r| Box::pin(async move { r.call_list(&filter).await })).await.map_err(refused)?;
    Ok(rows.into_iter().next())
}

/// The answer that is kept for a request.
pub async fn kept_answer(world: &World, key: &RequestKey) -> Result<Option<String>> {
    let (principal, request_id) = (key.principal.clone(), key.request_id.clone());
    let kept: Option<StoredAnswer> = world
        .store()
        .read(move |r| Box::pin(async move { r.request_get(&principal, &request_id).await }))
        .await
        .map_err(refused)?;
    Ok(kept.map(|kept| kept.answer))
}

#[cfg(test)]
mod tests {
    use ghost_domain::{Budget, RootId, Scope};

    use super::*;

    fn at(rows: &[(i64, u128)], more: bool, after: Option<(i64, u128)>, limit: usize) -> (Vec<(i64, u128)>, String) {
        let after = after.map(|(at, id)| Place { at: Timestamp(at), id });
        let place = |row: &(i64, u128)| Place { at: Timestamp(row.0), id: row.1 };
        let page = newest(rows.to_vec(), more, after, limit, place, |_| true);
        (page.rows, page.next)
    }

    #[tokio::test]
    async fn a_list_that_the_store_cuts_says_so() {
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
        let look = async || {
            let (letters, cut) = dead_letters(&scene.world, None, None, None, 2_000).await.unwrap();
            let (budgets, shortened) = budgets(&scene.world, Some("root"), "", 2_000).await.unwrap();
            (letters.rows.len(), cut, budgets.rows.len() <= 1_000, shortened)
        };
        put(1, 900).await;
        assert_eq!(look().await, (899, false, true, false));
        put(900, 1_200).await;
        assert_eq!(look().await, (1_000, true, true, true));
        // So does one that is read at once.
        assert!(Whole::from(vec![(); 1_000]).truncated && !Whole::from(vec![(); 999]).truncated);
        // A page that is not the last one of what is given says nothing of it.
        let (page, cut) = dead_letters(&scene.world, None, None, None, 10).await.unwrap();
        assert!(!page.next.is_empty() && !cut);
    }

    #[test]
    fn pages_join_without_gap_or_double() {
        let rows = [(9, 2), (9, 1), (8, 7), (7, 1)];
        let (first, next) = at(&rows, false, None, 1);
        assert_eq!(first, [(9, 2)]);
        assert_eq!(next, Place { at: Timestamp(9), id: 2 }.cursor());
        let (second, _) = at(&rows, false, Some((9, 2)), 2);
        assert_eq!(second, [(9, 1), (8, 7)]);
        assert_eq!(at(&rows, false, Some((8, 7)), 5), (vec![(7, 1)], String::new()));
        // The store may hold more than its window.
        assert_eq!(at(&rows, true, None, 9).1, Place { at: Timestamp(7), id: 1 }.cursor());
        // A window of nothing but what was seen moves on.
        assert_eq!(at(&[(9, 2)], true, Some((9, 1)), 9).1, Place { at: Timestamp(8), id: u128::MAX }.cursor());
    }
}
