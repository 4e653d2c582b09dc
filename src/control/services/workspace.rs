//! The services `Artifacts` and `Grants`: the files under `output/`, and the directories that agents may write to for some time.

use std::time::Duration;

use ghost_domain::grant::{GRANT_DEFAULT, NewGrant, REASON_MAX};
use ghost_domain::write_acl::{PATH_MAX, WorkspacePath};
use ghost_domain::{Artifact, Grant, GrantId, GrantSource};
use ghost_operations::{artifacts, grants};
use ghost_proto::v1;
use ghost_store::Tx;
use ghost_store::tables::{ArtifactFilter, PAGE_MAX};
use ghost_tools::manifest;
use serde_json::json;

use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

pub(crate) async fn list_artifacts(cx: Query, request: v1::ListArtifactsRequest) -> Result<v1::ListArtifactsResponse> {
    let world = &cx.world;
    let filter = ArtifactFilter {
        prefix: input::line_if("prefix", request.prefix.as_deref(), PATH_MAX)?.unwrap_or_default(),
        agent_id: queries::agent_in_filter(world, "agent_id", request.agent_id.as_deref()).await?,
        after: input::unseal("artifacts", &request.cursor)?.to_owned(),
        limit: 0,
    };
    let read = move |r: &mut Tx, most| r.artifact_list(&ArtifactFilter { limit: most, ..filter });
    let page = queries::page(world, request.limit, read, |row: &Artifact| row.path.clone()).await?;
    let (artifacts, next_cursor) = page.sealed("artifacts", convert::artifact);
    Ok(v1::ListArtifactsResponse { artifacts, next_cursor })
}

pub(crate) async fn rebuild_artifacts(
    cx: Mutation,
    _: v1::RebuildArtifactsRequest,
) -> Result<v1::RebuildArtifactsResponse> {
    let services = &cx.world.engine().services;
    let found = manifest::differences(services).await?;
    let corrected: u64 = cx
        .once(move |w, _| {
            let corrected = u64::try_from(found.len()).unwrap_or(u64::MAX);
            for found in found {
                artifacts::index(w, None, found, false)?;
            }
            Ok(corrected)
        })
        .await?;
    let artifacts = manifest::rewrite(services).await?;
    let artifacts = u64::try_from(artifacts).unwrap_or(u64::MAX);
    Ok(v1::RebuildArtifactsResponse { artifacts, corrected })
}

pub(crate) async fn remove_artifact(
    cx: Mutation,
    request: v1::RemoveArtifactRequest,
) -> Result<v1::RemoveArtifactResponse> {
    let path =
        WorkspacePath::parse(&request.path, false).map_err(|refusal| refusal.details(json!({ "field": "path" })))?;
    let removed = cx.world.engine().services.workspace.remove_tree(&path).await?;
    // Asked again, it answers what it did, though nothing is there any more.
    Ok(v1::RemoveArtifactResponse { removed: cx.answer(removed).await? })
}

fn new_grant(request: &v1::AddGrantRequest) -> Result<NewGrant> {
    Ok(NewGrant {
        agent_id: input::parsed("agent_id", &request.agent_id)?,
        prefix: input::line("prefix", &request.prefix, PATH_MAX)?,
        source: input::parsed_if("source", request.source.as_deref())?.unwrap_or(GrantSource::Manual),
        reason: input::line_if("reason", request.reason.as_deref(), REASON_MAX)?,
        lasts: request.lasts_ms.map_or(GRANT_DEFAULT, Duration::from_millis),
    })
}

pub(crate) async fn list_grants(cx: Query, request: v1::ListGrantsRequest) -> Result<v1::ListGrantsResponse> {
    let world = &cx.world;
    let agent_id = queries::agent_in_filter(world, "agent_id", request.agent_id.as_deref()).await?;
    let after: Option<GrantId> = input::after("grants", &request.cursor)?;
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
    let (grants, next_cursor) = queries::sealed("grants", rows, rest.len() > limit, |last| &last.grant_id);
    Ok(v1::ListGrantsResponse { grants, next_cursor })
}

pub(crate) async fn add_grant(cx: Mutation, request: v1::AddGrantRequest) -> Result<v1::Grant> {
    let new = new_grant(&request)?;
    let made = cx.once(move |w, by| grants::add(w, by, new));
    Ok(convert::grant(&made.await?, cx.redactor()))
}

pub(crate) async fn revoke_grant(cx: Mutation, request: v1::RevokeGrantRequest) -> Result<v1::Grant> {
    let grant_id = input::parsed("grant_id", &request.grant_id)?;
    let gone = cx.once(move |w, by| grants::revoke(w, by, grant_id));
    Ok(convert::grant(&gone.await?, cx.redactor()))
}
