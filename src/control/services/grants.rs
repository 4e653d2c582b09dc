//! The `Grants` service: write grants of agents.

use std::time::Duration;

use ghost_domain::grant::{GRANT_DEFAULT, NewGrant, REASON_MAX};
use ghost_domain::write_acl::PATH_MAX;
use ghost_domain::{Grant, GrantId, GrantSource};
use ghost_operations::grants as rules;
use ghost_proto::v1;
use ghost_store::tables::PAGE_MAX;

use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// The name of the list in its cursors.
const LIST: &str = "grants";

fn new_grant(request: &v1::AddGrantRequest) -> Result<NewGrant> {
    Ok(NewGrant {
        agent_id: input::parsed("agent_id", &request.agent_id)?,
        prefix: input::line("prefix", &request.prefix, PATH_MAX)?,
        source: input::parsed_if("source", request.source.as_deref())?.unwrap_or(GrantSource::Manual),
        reason: input::line_if("reason", request.reason.as_deref(), REASON_MAX)?,
        lasts: request.lasts_ms.map_or(GRANT_DEFAULT, Duration::from_millis),
    })
}

pub(crate) async fn list(cx: Query, request: v1::ListGrantsRequest) -> Result<v1::ListGrantsResponse> {
    let world = &cx.world;
    let agent_id = queries::agent_in_filter(world, "agent_id", request.agent_id.as_deref()).await?;
    let after: Option<GrantId> = input::after(LIST, &request.cursor)?;
    let (now, limit) = (world.ctx().now(), input::page(request.limit));
    let read = world.store().read(move |r| {
        if let Some(agent_id) = agent_id {
            return r.grants_live(&agent_id, now);
        }
        let (mut from, mut live) = (after, Vec::new());
        loop {
            let page = r.grant_list(from, PAGE_MAX)?;
            let Some(last) = page.last() else { return Ok(live) };
            from = Some(last.grant_id);
            live.extend(page.into_iter().filter(|grant| grant.is_live(now)));
            if live.len() > limit {
                return Ok(live);
            }
        }
    });
    let live: Vec<Grant> = read.await?;
    let rest: Vec<Grant> = live.into_iter().filter(|grant| after.is_none_or(|id| grant.grant_id > id)).collect();
    let rows = rest.iter().take(limit).map(|grant| convert::grant(grant, cx.redactor()));
    let (grants, next_cursor) = queries::sealed(LIST, rows, rest.len() > limit, |last| &last.grant_id);
    Ok(v1::ListGrantsResponse { grants, next_cursor })
}

pub(crate) async fn add(cx: Mutation, request: v1::AddGrantRequest) -> Result<v1::Grant> {
    let new = new_grant(&request)?;
    let made = cx.once(move |w, by| rules::add(w, by, new));
    Ok(convert::grant(&made.await?, cx.redactor()))
}

pub(crate) async fn revoke(cx: Mutation, request: v1::RevokeGrantRequest) -> Result<v1::Grant> {
    let grant_id = input::parsed("grant_id", &request.grant_id)?;
    let gone = cx.once(move |w, by| rules::revoke(w, by, grant_id));
    Ok(convert::grant(&gone.await?, cx.redactor()))
}
