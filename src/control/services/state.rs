//! The `State` service: shared state.

use ghost_domain::{Refusal, StateEntry};
use ghost_operations::requests;
use ghost_operations::shared_state::{self as rules, Listed, Setting};
use ghost_proto::v1;
use ghost_proto::v1::state_server::State;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{input, state as convert};
use crate::refusal::to_status;
use crate::{act_as, caller, queries};

/// Implements `ghost.v1.State`.
pub struct StateService(pub Control);

impl StateService {
    async fn one(&self, key: String) -> Result<v1::StateEntry, Refusal> {
        let found: StateEntry = self.0.world.store().read(move |r| rules::get(r, &key)).await?;
        Ok(convert::entry(&found, &self.0.world.ctx().redactor))
    }

    async fn page(&self, request: v1::ListStateRequest) -> Result<v1::ListStateResponse, Refusal> {
        let after = input::unseal("state", &request.cursor)?.to_owned();
        let limit = u32::try_from(input::page(request.limit)).unwrap_or(u32::MAX);
        let listed: Listed = self.0.world.store().read(move |r| rules::list(r, &request.prefix, &after, limit)).await?;
        let redactor = &self.0.world.ctx().redactor;
        let entries = listed.entries.iter().map(|entry| convert::entry(entry, redactor));
        let (entries, more) = queries::within_bytes(entries, listed.more);
        let last = entries.last().filter(|_| more);
        let next_cursor = last.map(|entry: &v1::StateEntry| input::seal("state", &entry.key));
        Ok(v1::ListStateResponse { next_cursor: next_cursor.unwrap_or_default(), entries })
    }
}

#[tonic::async_trait]
impl State for StateService {
    async fn get(&self, request: Request<v1::GetStateRequest>) -> Result<Response<v1::StateEntry>, Status> {
        caller::party(&request)?;
        self.one(request.into_inner().key).await.map(Response::new).map_err(to_status)
    }

    async fn set(&self, request: Request<v1::SetStateRequest>) -> Result<Response<v1::StateEntry>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "state.set", &request.get_ref().request_id)?;
        let (ctx, plan) = (self.0.world.ctx().clone(), self.0.world.plan());
        let request = request.into_inner();
        let as_agent = act_as::acting_agent(request.as_agent.as_deref()).map_err(to_status)?;
        let new = Setting {
            value: input::json("value_json", &request.value_json, ctx.limits().state_bytes).map_err(to_status)?,
            key: request.key,
            expected_version: request.expected_version,
        };
        let entry: StateEntry = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            let author = act_as::author(w, &plan, by, as_agent.as_ref(), "syscall.state.write")?;
            rules::set(w, &author.by, author.through.as_ref(), new)
        })
        .await
        .map_err(to_status)?;
        Ok(Response::new(convert::entry(&entry, &self.0.world.ctx().redactor)))
    }

    async fn list(&self, request: Request<v1::ListStateRequest>) -> Result<Response<v1::ListStateResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }
}
