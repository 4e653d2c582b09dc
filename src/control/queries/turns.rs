//! Turns as the services show them.

use ghost_domain::{JournalRow, Refusal, RootId, Turn, TurnId};
use ghost_store::tables::TurnFilter;
use ghost_world::World;

use super::{Page, Result, WINDOW, before, newest, refused, root_named, window};
use crate::convert::input::{Place, place};

/// Turns, newest first.
pub async fn turns(
    world: &World,
    filter: TurnFilter,
    root: Option<RootId>,
    after: Option<Place>,
    limit: usize,
) -> Result<Page<Turn>> {
    let window = if root.is_some() { WINDOW } else { window(limit) };
    let filter = TurnFilter { before: before(after), limit: window, ..filter };
    let rows: Vec<Turn> =
        world.store().read(move |r| Box::pin(async move { r.turn_list(&filter).await })).await.map_err(refused)?;
    let more = rows.len() >= window as usize;
    let place = |turn: &Turn| Place { at: turn.started_at, id: turn.turn_id.0.as_u128() };
    let wanted = |turn: &Turn| root.is_none_or(|root| turn.root_id == root || turn.other_roots.contains(&root));
    Ok(newest(rows, more, after, limit, place, wanted))
}

/// Turns of one root, newest first: a first page of none is the whole list, and its root is one that the world knows.
pub async fn turns_of_root(
    world: &World,
    filter: TurnFilter,
    root: RootId,
    after: Option<Place>,
    limit: usize,
) -> Result<Page<Turn>> {
    let mut page = turns(world, filter.clone(), Some(root), after, limit).await?;
    // The store does not look for roots: what is shown of one may lie behind many turns of others.
    while after.is_none() && page.rows.is_empty() && !page.next.is_empty() {
        let on = place(&page.next)?;
        page = turns(world, filter.clone(), Some(root), on, limit).await?;
    }
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
