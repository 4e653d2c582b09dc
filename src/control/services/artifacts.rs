//! The `Artifacts` service: the files under `output/`.

use ghost_domain::write_acl::{PATH_MAX, WorkspacePath};
use ghost_domain::{Artifact, Refusal};
use ghost_operations::{artifacts as rules, requests};
use ghost_proto::v1;
use ghost_proto::v1::artifacts_server::Artifacts;
use ghost_store::tables::ArtifactFilter;
use ghost_tools::manifest;
use serde_json::json;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{self, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// The name of the list in its cursors.
const LIST: &str = "artifacts";

/// Implements `ghost.v1.Artifacts`.
pub struct ArtifactsService(pub Control);

impl ArtifactsService {
    pub(crate) async fn page(&self, request: v1::ListArtifactsRequest) -> Result<v1::ListArtifactsResponse, Refusal> {
        let world = &self.0.world;
        let limit = input::page(request.limit);
        let filter = ArtifactFilter {
            prefix: input::line_if("prefix", request.prefix.as_deref(), PATH_MAX)?.unwrap_or_default(),
            agent_id: queries::agent_in_filter(world, "agent_id", request.agent_id.as_deref()).await?,
            after: input::unseal(LIST, &request.cursor)?.to_owned(),
            limit: u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1),
        };
        let found: Vec<Artifact> =
            world.store().read(move |r| r.artifact_list(&filter)).await.map_err(Refusal::from)?;
        let (artifacts, _) = queries::within_bytes(found.iter().take(limit).map(convert::artifact), false);
        let last = artifacts.last().filter(|_| artifacts.len() < found.len());
        let next_cursor = last.map(|last: &v1::Artifact| input::seal(LIST, &last.path)).unwrap_or_default();
        Ok(v1::ListArtifactsResponse { artifacts, next_cursor })
    }
}

#[tonic::async_trait]
impl Artifacts for ArtifactsService {
    async fn list(
        &self,
        request: Request<v1::ListArtifactsRequest>,
    ) -> Result<Response<v1::ListArtifactsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn rebuild(
        &self,
        request: Request<v1::RebuildArtifactsRequest>,
    ) -> Result<Response<v1::RebuildArtifactsResponse>, Status> {
        caller::party(&request)?;
        let key = caller::key(&request, "artifacts.rebuild", &request.get_ref().request_id)?;
        let services = &self.0.world.engine().services;
        let found = manifest::differences(services).await.map_err(to_status)?;
        let corrected: u64 = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            let corrected = u64::try_from(found.len()).unwrap_or(u64::MAX);
            for found in found {
                rules::index(w, None, found, false)?;
            }
            Ok(corrected)
        })
        .await
        .map_err(to_status)?;
        let artifacts = manifest::rewrite(services).await.map_err(to_status)?;
        let artifacts = u64::try_from(artifacts).unwrap_or(u64::MAX);
        Ok(Response::new(v1::RebuildArtifactsResponse { artifacts, corrected }))
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveArtifactRequest>,
    ) -> Result<Response<v1::RemoveArtifactResponse>, Status> {
        caller::party(&request)?;
        let key = caller::key(&request, "artifacts.remove", &request.get_ref().request_id)?;
        let path = WorkspacePath::parse(&request.get_ref().path, false)
            .map_err(|refusal| to_status(refusal.details(json!({ "field": "path" }))))?;
        let removed = self.0.world.engine().services.workspace.remove_tree(&path).await.map_err(to_status)?;
        // Asked again, it answers what it did, though nothing is there any more.
        let removed = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |_| Ok(removed));
        Ok(Response::new(v1::RemoveArtifactResponse { removed: removed.await.map_err(to_status)? }))
    }
}
