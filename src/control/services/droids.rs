//! The `Droids` service: the helpers that agents start.

use ghost_domain::{AgentId, Droid};
use ghost_operations::droids as rules;
use ghost_proto::v1;
use ghost_store::Tx;

use crate::convert::{self, input};
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
    let (after, live): (Option<AgentId>, _) = (input::after(LIST, &request.cursor)?, request.live);
    let read = move |r: &mut Tx, most| {
        if !live {
            return r.droid_list(parent.as_ref(), after.as_ref(), most);
        }
        let mut found = r.droids_live()?;
        found.retain(|droid| parent.as_ref().is_none_or(|parent| droid.parent_id == *parent));
        found.retain(|droid| after.as_ref().is_none_or(|after| droid.droid_id > *after));
        Ok(found)
    };
    let page = queries::page(world, request.limit, read, |droid: &Droid| droid.droid_id.to_string()).await?;
    let (droids, next_cursor) = page.sealed(LIST, |droid| convert::droid(droid, cx.redactor()));
    Ok(v1::ListDroidsResponse { droids, next_cursor })
}

pub(crate) async fn get(cx: Query, request: v1::GetDroidRequest) -> Result<v1::Droid> {
    let droid_id = input::line("droid_id", &request.droid_id, ID_MAX)?;
    let read = cx.world.store().read(move |r| rules::named(r, &droid_id));
    Ok(convert::droid(&read.await?, cx.redactor()))
}

pub(crate) async fn steer(cx: Mutation, request: v1::SteerDroidRequest) -> Result<v1::Droid> {
    let droid_id = input::line("droid_id", &request.droid_id, ID_MAX)?;
    let message = request.message;
    let steered = cx.once(move |w, by| rules::steer(w, by, &droid_id, &message, None));
    Ok(convert::droid(&steered.await?, cx.redactor()))
}

pub(crate) async fn kill(cx: Mutation, request: v1::KillDroidRequest) -> Result<v1::Droid> {
    let droid_id = input::line("droid_id", &request.droid_id, ID_MAX)?;
    let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX)?;
    let ended = cx.once(move |w, by| rules::kill(w, by, &droid_id, reason.as_deref()));
    Ok(convert::droid(&ended.await?, cx.redactor()))
}
