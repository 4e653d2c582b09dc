//! Turns as the services show them.

use ghost_domain::{Code, JournalRow, Refusal, RootId, Turn, TurnId, TurnStatus};
use ghost_store::tables::TurnFilter;
use ghost_world::World;
use uuid::Uuid;

use super::outcome::{Result, refused};
use super::pages::{Page, WINDOW, newest, window};
use super::roots::root_named;
use crate::convert::input::{Place, place};

/// Times a thousand turns that one request for those of a root looks at.
const LOOKS: usize = 10;

/// Turns, newest first.
pub async fn turns(
    world: &World,
    filter: TurnFilter,
    root: Option<RootId>,
    after: Option<Place>,
    limit: usize,
) -> Result<Page<Turn>> {
    let window = if root.is_some() { WINDOW } else { window(limit) };
    let behind = after.map(|place| (place.at, TurnId(Uuid::from_u128(place.id))));
    let filter = TurnFilter { after: behind, limit: window, ..filter };
    let mut rows: Vec<Turn> =
        world.store().read(move |r| Box::pin(async move { r.turn_list(&filter).await })).await.map_err(refused)?;
    let more = rows.len() >= window as usize;
    if more && root.is_some() {
        // The last one only says that there is more: whether the list ends behind what was looked at is known then.
        rows.pop();
    }
    let place = |turn: &Turn| Place { at: turn.started_at, id: turn.turn_id.0.as_u128() };
    let wanted = |turn: &Turn| root.is_none_or(|root| turn.root_id == root || turn.other_roots.contains(&root));
    Ok(newest(rows, more, after, limit, place, wanted))
}

/// Turns of one root, newest first. A page without rows may have a next one: the store does not look for roots, and what
/// is shown of one may lie behind more turns of others than one request looks at.
///
/// # Errors
/// When the first page is empty and the world does not know the root, see [`root_named`].
pub async fn turns_of_root(
    world: &World,
    filter: TurnFilter,
    root: RootId,
    after: Option<Place>,
    limit: usize,
) -> Result<Page<Turn>> {
    let mut page = turns(world, filter.clone(), Some(root), after, limit).await?;
    for _ in 1..LOOKS {
        if !page.rows.is_empty() || page.next.is_empty() {
            break;
        }
        page = turns(world, filter.clone(), Some(root), place(&page.next)?, limit).await?;
    }
    // Only now: a turn may be all that is left of its root.
    if after.is_none() && page.rows.is_empty() {
        root_named(world, root).await?;
    }
    Ok(page)
}

/// A turn with its journal, in order.
pub async fn turn(world: &World, turn_id: TurnId) -> Result<(Turn, Vec<JournalRow>)> {
    world
        .store()
        .read(move |r| {
            Box::pin(async move {
                match r.turn_get(turn_id).await? {
                    Some(turn) => Ok((turn, r.journal_of(turn_id).await?)),
                    None => Err(no_turn(turn_id)),
                }
            })
        })
        .await
}

/// A turn that is not there.
pub(super) fn no_turn(turn_id: TurnId) -> Refusal {
    Refusal::not_found("turn", &turn_id.to_string(), None).hint("see `ghostctl turn list`")
}

/// The code that a turn which did not finish would be refused with, and the words of its reason. A failed turn's reason is
/// a refusal as it is written, `code: words (hint)`, and cut where it is very long.
pub fn why_ended(status: TurnStatus, reason: Option<&str>) -> Option<(Code, &str)> {
    match status {
        TurnStatus::Failed => {
            let (code, words) = reason?.split_once(": ")?;
            Some((code.parse().ok()?, words))
        }
        TurnStatus::Cancelled => Some((Code::Cancelled, reason.unwrap_or_default())),
        // Set aside: nobody answers until someone has it tried again.
        TurnStatus::Dead => Some((Code::Unavailable, reason.unwrap_or_default())),
        TurnStatus::Open | TurnStatus::Finished | TurnStatus::Split => None,
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::storm::RootTally;
    use ghost_domain::{Money, Timestamp};

    use super::*;
    use crate::fixture::Scene;

    fn root(n: u128) -> RootId {
        RootId(Uuid::from_u128(n))
    }

    fn turn_row(n: u128, root_id: RootId) -> Result<Turn> {
        Ok(Turn {
            turn_id: TurnId(Uuid::from_u128(n)),
            agent_id: "ada".parse()?,
            incarnation: 1,
            root_id,
            other_roots: Vec::new(),
            hop: 0,
            source: "operator".into(),
            about: String::new(),
            status: TurnStatus::Finished,
            reason: None,
            model: None,
            rounds: 0,
            calls: 1,
            input_tokens: 0,
            output_tokens: 0,
            cost: Money(0),
            unpriced_tokens: 0,
            held: None,
            text: None,
            truncated: false,
            started_at: Timestamp(i64::try_from(n).unwrap_or_default()),
            ended_at: Some(Timestamp(0)),
            crashes: 0,
            boot_mark: 0,
            stalled_boots: 0,
            parked: None,
        })
    }

    /// Ended turns: the nth began in the nth millisecond, and has the root that `root_of` gives it.
    async fn put(scene: &Scene, count: u128, root_of: impl Fn(u128) -> RootId + Send + 'static) {
        let write = scene.world.store().write(move |w| {
            Box::pin(async move {
                for n in 1..=count {
                    let turn = turn_row(n, root_of(n))?;
                    w.turn_put(&turn).await?;
                }
                Ok::<_, Refusal>(())
            })
        });
        write.await.unwrap();
    }

    async fn list(scene: &Scene, root_id: RootId, cursor: &str) -> Result<Page<Turn>> {
        turns_of_root(&scene.world, TurnFilter::default(), root_id, place(cursor)?, 10).await
    }

    #[tokio::test]
    async fn one_request_for_a_root_looks_at_so_many_turns_and_the_next_goes_on() {
        let scene = Scene::new().await;
        // Of `far`, the oldest turn of all and a tally; of `near`, one turn behind five thousand and nothing else.
        let (far, near) = (root(1), root(7_000));
        put(&scene, 12_000, |n| if n == 1 || n == 7_000 { root(n) } else { root(0) }).await;
        let never = list(&scene, root(99), "").await.unwrap_err();
        assert_eq!((never.code, never.message.contains("root")), (Code::NotFound, true));
        let tally = RootTally::new(far, Timestamp(1));
        let write = scene.world.store().write(move |w| Box::pin(async move { w.root_put(&tally).await }));
        write.await.map_err(refused).unwrap();
        let first = list(&scene, far, "").await.unwrap();
        assert_eq!(first.rows.len(), 0);
        assert!(place(&first.next).unwrap().unwrap().at.0 > 1_000, "{}", first.next);
        let second = list(&scene, far, &first.next).await.unwrap();
        assert_eq!((second.rows.len(), second.next.as_str()), (1, ""));
        assert_eq!(second.rows[0].root_id, far);
        assert_eq!(list(&scene, near, "").await.unwrap().rows.len(), 1);
    }

    #[tokio::test]
    async fn pages_skip_nothing_of_one_millisecond() {
        let scene = Scene::new().await;
        let write = scene.world.store().write(|w| {
            Box::pin(async move {
                for n in 1..=1_700 {
                    w.turn_put(&Turn { started_at: Timestamp(5), ..turn_row(n, root(1))? }).await?;
                }
                Ok::<_, Refusal>(())
            })
        });
        write.await.unwrap();
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = turns(&scene.world, TurnFilter::default(), None, cursor, 100).await.unwrap();
            seen.extend(page.rows.iter().map(|turn| turn.turn_id.0.as_u128()));
            cursor = place(&page.next).unwrap();
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, (1..=1_700).rev().collect::<Vec<u128>>());
    }

    #[test]
    fn a_turn_that_did_not_finish_says_with_which_code() {
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
