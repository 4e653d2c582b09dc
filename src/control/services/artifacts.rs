//! The `Artifacts` service: the files under `output/`.

use ghost_domain::Artifact;
use ghost_domain::write_acl::{PATH_MAX, WorkspacePath};
use ghost_operations::artifacts as rules;
use ghost_proto::v1;
use ghost_store::Tx;
use ghost_store::tables::ArtifactFilter;
use ghost_tools::manifest;
use serde_json::json;

use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// The name of the list in its cursors.
const LIST: &str = "artifacts";

pub(crate) async fn list(cx: Query, request: v1::ListArtifactsRequest) -> Result<v1::ListArtifactsResponse> {
    let world = &cx.world;
    let filter = ArtifactFilter {
        prefix: input::line_if("prefix", request.prefix.as_deref(), PATH_MAX)?.unwrap_or_default(),
        agent_id: queries::agent_in_filter(world, "agent_id", request.agent_id.as_deref()).await?,
        after: input::unseal(LIST, &request.cursor)?.to_owned(),
        limit: 0,
    };
    let read = move |r: &mut Tx, most| r.artifact_list(&ArtifactFilter { limit: most, ..filter });
    let page = queries::page(world, request.limit, read, |row: &Artifact| row.path.clone()).await?;
    let (artifacts, next_cursor) = page.sealed(LIST, convert::artifact);
    Ok(v1::ListArtifactsResponse { artifacts, next_cursor })
}

pub(crate) async fn rebuild(cx: Mutation, _: v1::RebuildArtifactsRequest) -> Result<v1::RebuildArtifactsResponse> {
    let services = &cx.world.engine().services;
    let found = manifest::differences(services).await?;
    let corrected: u64 = cx
        .once(move |w, _| {
            let corrected = u64::try_from(found.len()).unwrap_or(u64::MAX);
            for found in found {
                rules::index(w, None, found, false)?;
            }
            Ok(corrected)
        })
        .await?;
    let artifacts = manifest::rewrite(services).await?;
    let artifacts = u64::try_from(artifacts).unwrap_or(u64::MAX);
    Ok(v1::RebuildArtifactsResponse { artifacts, corrected })
}

pub(crate) async fn remove(cx: Mutation, request: v1::RemoveArtifactRequest) -> Result<v1::RemoveArtifactResponse> {
    let path =
        WorkspacePath::parse(&request.path, false).map_err(|refusal| refusal.details(json!({ "field": "path" })))?;
    let removed = cx.world.engine().services.workspace.remove_tree(&path).await?;
    // Asked again, it answers what it did, though nothing is there any more.
    Ok(v1::RemoveArtifactResponse { removed: cx.answer(removed).await? })
}
