//! The `Grants` service: write grants of agents.

use std::time::Duration;

use ghost_domain::grant::{GRANT_DEFAULT, NewGrant, REASON_MAX};
use ghost_domain::write_acl::PATH_MAX;
use ghost_domain::{Grant, GrantId, GrantSource, Refusal};
use ghost_operations::{grants as rules, requests};
use ghost_proto::v1;
use ghost_proto::v1::grants_server::Grants;
use ghost_store::tables::PAGE_MAX;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{self, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// The name of the list in its cursors.
const LIST: &str = "grants";

/// Implements `ghost.v1.Grants`.
pub struct GrantsService(pub Control);

fn new_grant(request: &v1::AddGrantRequest) -> Result<NewGrant, Refusal> {
    Ok(NewGrant {
        agent_id: input::parsed("agent_id", &request.agent_id)?,
        prefix: input::line("prefix", &request.prefix, PATH_MAX)?,
        source: input::parsed_if("source", request.source.as_deref())?.unwrap_or(GrantSource::Manual),
        reason: input::line_if("reason", request.reason.as_deref(), REASON_MAX)?,
        lasts: request.lasts_ms.map_or(GRANT_DEFAULT, Duration::from_millis),
    })
}

impl GrantsService {
    pub(crate) async fn page(&self, request: v1::ListGrantsRequest) -> Result<v1::ListGrantsResponse, Refusal> {
        let world = &self.0.world;
        let agent_id = queries::agent_in_filter(world, "agent_id", request.agent_id.as_deref()).await?;
        let after = input::unseal(LIST, &request.cursor)?;
        let after: Option<GrantId> =
            if after.is_empty() { None } else { Some(after.parse().map_err(|_| input::bad_cursor(&request.cursor))?) };
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
        let live: Vec<Grant> = read.await.map_err(Refusal::from)?;
        let rest: Vec<Grant> = live.into_iter().filter(|grant| after.is_none_or(|id| grant.grant_id > id)).collect();
        let rows = rest.iter().take(limit).map(|grant| convert::grant(grant, &world.ctx().redactor));
        let (grants, _) = queries::within_bytes(rows, false);
        let last = grants.last().filter(|_| grants.len() < rest.len());
        let next_cursor = last.map(|last: &v1::Grant| input::seal(LIST, &last.grant_id)).unwrap_or_default();
        Ok(v1::ListGrantsResponse { grants, next_cursor })
    }

    fn response(&self, grant: &Grant) -> Response<v1::Grant> {
        Response::new(convert::grant(grant, &self.0.world.ctx().redactor))
    }
}

#[tonic::async_trait]
impl Grants for GrantsService {
    async fn add(&self, request: Request<v1::AddGrantRequest>) -> Result<Response<v1::Grant>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "grants.add", &request.get_ref().request_id)?;
        let new = new_grant(request.get_ref()).map_err(to_status)?;
        let made = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| rules::add(w, &by, new));
        Ok(self.response(&made.await.map_err(to_status)?))
    }

    async fn list(&self, request: Request<v1::ListGrantsRequest>) -> Result<Response<v1::ListGrantsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn revoke(&self, request: Request<v1::RevokeGrantRequest>) -> Result<Response<v1::Grant>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "grants.revoke", &request.get_ref().request_id)?;
        let grant_id = input::parsed("grant_id", &request.get_ref().grant_id).map_err(to_status)?;
        let gone =
            requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| rules::revoke(w, &by, grant_id));
        Ok(self.response(&gone.await.map_err(to_status)?))
    }
}
