//! Queries about turns.

use ghost_domain::{Code, JournalRow, Refusal, Turn, TurnId, TurnStatus};
use ghost_store::tables::TurnFilter;
use ghost_world::World;

use super::outcome::{Result, refused};
use super::pages::{Page, one_more};
use super::roots::root_named;
use crate::convert::input::Position;

/// Turns, newest first.
///
/// # Errors
/// If the filter names a root that the world does not know, see [`root_named`].
pub async fn turns(world: &World, filter: TurnFilter, after: Option<Position>, limit: usize) -> Result<Page<Turn>> {
    let (root_id, first) = (filter.root_id, after.is_none());
    let after = after.map(|position| (position.at, TurnId(position.id)));
    let filter = TurnFilter { after, limit: one_more(limit), ..filter };
    let rows: Vec<Turn> = world.store().read(move |r| r.turn_list(&filter)).await.map_err(refused)?;
    // Checked last, because a turn may be the only record of its root.
    if let Some(root_id) = root_id.filter(|_| first && rows.is_empty()) {
        root_named(world, root_id).await?;
    }
    Ok(Page::cut(rows, limit, |turn| Position { at: turn.started_at, id: turn.turn_id.0 }.cursor()))
}

/// A turn with its journal, in order.
pub async fn turn(world: &World, turn_id: TurnId) -> Result<(Turn, Vec<JournalRow>)> {
    world
        .store()
        .read(move |r| match r.turn_get(turn_id)? {
            Some(turn) => Ok((turn, r.journal_of(turn_id)?)),
            None => Err(no_turn(turn_id)),
        })
        .await
}

/// The refusal for an unknown turn.
pub(super) fn no_turn(turn_id: TurnId) -> Refusal {
    Refusal::not_found("turn", &turn_id.to_string(), None).hint("see `ghostctl turn list`")
}

/// The code and text of the refusal that a turn ended with, if it did not finish. The reason of a
/// failed turn, or of one at its bound, has the form `code: text (hint)`, truncated if it is very long.
pub fn why_ended(status: TurnStatus, reason: Option<&str>) -> Option<(Code, &str)> {
    match status {
        TurnStatus::Failed | TurnStatus::TimedOut => {
            let (code, words) = reason?.split_once(": ")?;
            Some((code.parse().ok()?, words))
        }
        TurnStatus::Cancelled => Some((Code::Cancelled, reason.unwrap_or_default())),
        // The turn is a dead letter: it gets no answer until an operator retries it.
        TurnStatus::Dead => Some((Code::Unavailable, reason.unwrap_or_default())),
        TurnStatus::Open | TurnStatus::Finished | TurnStatus::Split => None,
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::root_tally::RootTally;
    use ghost_domain::{RootId, Timestamp};
    use uuid::Uuid;

    use super::*;
    use crate::convert::input::position;
    use crate::fixture::TestControl;

    fn root(n: u128) -> RootId {
        RootId(Uuid::from_u128(n))
    }

    fn turn_row(n: u128, root_id: RootId) -> Result<Turn> {
        let started_at = Timestamp(i64::try_from(n).unwrap_or_default());
        Ok(Turn {
            source: "operator".into(),
            status: TurnStatus::Finished,
            calls: 1,
            ended_at: Some(Timestamp(0)),
            ..Turn::new(TurnId(Uuid::from_u128(n)), "ada".parse()?, root_id, started_at)
        })
    }

    /// Stores ended turns. Turn `n` started at millisecond `n`, with the root `root_of(n)`.
    async fn put(test: &TestControl, count: u128, root_of: impl Fn(u128) -> RootId + Send + 'static) {
        let write = test.world.store().write(move |w| {
            for n in 1..=count {
                let turn = turn_row(n, root_of(n))?;
                w.turn_put(&turn)?;
            }
            Ok::<_, Refusal>(())
        });
        write.await.unwrap();
    }

    async fn list(test: &TestControl, root_id: RootId, cursor: &str) -> Result<Page<Turn>> {
        let filter = TurnFilter { root_id: Some(root_id), ..TurnFilter::default() };
        turns(&test.world, filter, position(cursor)?, 2).await
    }

    #[tokio::test]
    async fn turns_of_a_root_are_found_behind_many_turns_of_other_roots() {
        let test = TestControl::new().await;
        put(&test, 3_000, |n| if n <= 3 { root(1) } else { root(0) }).await;
        let never = list(&test, root(99), "").await.unwrap_err();
        assert_eq!((never.code, never.message.contains("root")), (Code::NotFound, true));
        let numbers = |page: &Page<Turn>| page.rows.iter().map(|turn| turn.turn_id.0.as_u128()).collect::<Vec<_>>();
        let first = list(&test, root(1), "").await.unwrap();
        assert_eq!(numbers(&first), [3, 2]);
        let second = list(&test, root(1), &first.next).await.unwrap();
        assert_eq!((numbers(&second), second.next.as_str()), (vec![1], ""));
        // A root whose turns were pruned, but whose tally remains.
        let tally = RootTally::new(root(7), Timestamp(1));
        let write = test.world.store().write(move |w| w.root_put(&tally));
        write.await.map_err(refused).unwrap();
        assert_eq!(list(&test, root(7), "").await.unwrap().rows.len(), 0);
    }

    #[tokio::test]
    async fn paging_skips_no_turn_of_the_same_millisecond() {
        let test = TestControl::new().await;
        let write = test.world.store().write(|w| {
            for n in 1..=1_700 {
                w.turn_put(&Turn { started_at: Timestamp(5), ..turn_row(n, root(1))? })?;
            }
            Ok::<_, Refusal>(())
        });
        write.await.unwrap();
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = turns(&test.world, TurnFilter::default(), cursor, 100).await.unwrap();
            seen.extend(page.rows.iter().map(|turn| turn.turn_id.0.as_u128()));
            cursor = position(&page.next).unwrap();
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, (1..=1_700).rev().collect::<Vec<u128>>());
    }

    #[test]
    fn the_code_of_an_unfinished_turn_is_found() {
        let spent = Refusal::new(Code::BudgetExhausted, "agent:ada has 0 tokens left").hint("raise it").to_string();
        let words = "agent:ada has 0 tokens left (raise it)";
        assert_eq!(why_ended(TurnStatus::Failed, Some(&spent)), Some((Code::BudgetExhausted, words)));
        for nothing in [None, Some("no code here"), Some("other: words")] {
            assert_eq!(why_ended(TurnStatus::Failed, nothing), None);
        }
        let by = "by operator:uid-0";
        assert_eq!(why_ended(TurnStatus::Cancelled, Some(by)), Some((Code::Cancelled, by)));
        assert_eq!(why_ended(TurnStatus::Dead, None), Some((Code::Unavailable, "")));
        assert_eq!(why_ended(TurnStatus::Finished, Some(&spent)), None);
    }
}
