//! The `Droids` service: the helpers that agents start.

use ghost_domain::{AgentId, Droid, Refusal};
use ghost_operations::droids as rules;
use ghost_proto::v1;

use crate::control::Control;
use crate::convert::{droids as convert, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// The name of the list in its cursors.
const LIST: &str = "droids";
/// Largest length of a droid's id as a caller writes it, in characters.
const ID_MAX: usize = 64;
/// Largest length of a reason, in characters.
const REASON_MAX: usize = 1_000;

pub(crate) async fn list(cx: Query, request: v1::ListDroidsRequest) -> Result<v1::ListDroidsResponse> {
    let world = &cx.world;
    let parent = queries::agent_in_filter(world, "parent_id", request.parent_id.as_deref()).await?;
    let after: Option<AgentId> = input::after(LIST, &request.cursor)?;
    let limit = input::page(request.limit);
    // One more than the page, to know whether there is another.
    let most = u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1);
    let live = request.live;
    let read = world.store().read(move |r| {
        if !live {
            return r.droid_list(parent.as_ref(), after.as_ref(), most);
        }
        let mut found = r.droids_live()?;
        found.retain(|droid| parent.as_ref().is_none_or(|parent| droid.parent_id == *parent));
        found.retain(|droid| after.as_ref().is_none_or(|after| droid.droid_id > *after));
        Ok(found)
    });
    let found: Vec<Droid> = read.await.map_err(Refusal::from)?;
    let redactor = &world.ctx().redactor;
    let rows = found.iter().take(limit).map(|droid| convert::droid(droid, redactor));
    let rows = rows.collect::<Result<Vec<v1::Droid>>>()?;
    let (droids, next_cursor) = queries::sealed(LIST, rows, found.len() > limit, |last| &last.droid_id);
    Ok(v1::ListDroidsResponse { droids, next_cursor })
}

fn response(cx: &Control, droid: &Droid) -> Result<v1::Droid> {
    convert::droid(droid, &cx.world.ctx().redactor)
}

pub(crate) async fn get(cx: Query, request: v1::GetDroidRequest) -> Result<v1::Droid> {
    let droid_id = input::line("droid_id", &request.droid_id, ID_MAX)?;
    let read = cx.world.store().read(move |r| rules::named(r, &droid_id));
    response(&cx, &read.await?)
}

pub(crate) async fn steer(cx: Mutation, request: v1::SteerDroidRequest) -> Result<v1::Droid> {
    let droid_id = input::line("droid_id", &request.droid_id, ID_MAX)?;
    let message = request.message;
    let steered = cx.once(move |w, by| rules::steer(w, by, &droid_id, &message, None));
    response(&cx, &steered.await?)
}

pub(crate) async fn kill(cx: Mutation, request: v1::KillDroidRequest) -> Result<v1::Droid> {
    let droid_id = input::line("droid_id", &request.droid_id, ID_MAX)?;
    let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX)?;
    let ended = cx.once(move |w, by| rules::kill(w, by, &droid_id, reason.as_deref()));
    response(&cx, &ended.await?)
}
