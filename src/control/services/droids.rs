//! The `Droids` service: the helpers that agents start.

use ghost_domain::{AgentId, Droid, Refusal};
use ghost_operations::{droids as rules, requests};
use ghost_proto::v1;
use ghost_proto::v1::droids_server::Droids;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{droids as convert, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// The name of the list in its cursors.
const LIST: &str = "droids";
/// Largest length of a droid's id as a caller writes it, in characters.
const ID_MAX: usize = 64;
/// Largest length of a reason, in characters.
const REASON_MAX: usize = 1_000;

/// Implements `ghost.v1.Droids`.
pub struct DroidsService(pub Control);

impl DroidsService {
    async fn page(&self, request: v1::ListDroidsRequest) -> Result<v1::ListDroidsResponse, Refusal> {
        let world = &self.0.world;
        let parent = queries::agent_in_filter(world, "parent_id", request.parent_id.as_deref()).await?;
        let after = input::unseal(LIST, &request.cursor)?;
        let after: Option<AgentId> =
            if after.is_empty() { None } else { Some(after.parse().map_err(|_| input::bad_cursor(&request.cursor))?) };
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
        let rows = rows.collect::<Result<Vec<v1::Droid>, Refusal>>()?;
        let (droids, _) = queries::within_bytes(rows, false);
        let last = droids.last().filter(|_| droids.len() < found.len());
        let next_cursor = last.map(|last: &v1::Droid| input::seal(LIST, &last.droid_id)).unwrap_or_default();
        Ok(v1::ListDroidsResponse { droids, next_cursor })
    }

    fn response(&self, droid: &Droid) -> Result<Response<v1::Droid>, Status> {
        convert::droid(droid, &self.0.world.ctx().redactor).map(Response::new).map_err(to_status)
    }
}

#[tonic::async_trait]
impl Droids for DroidsService {
    async fn list(&self, request: Request<v1::ListDroidsRequest>) -> Result<Response<v1::ListDroidsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn get(&self, request: Request<v1::GetDroidRequest>) -> Result<Response<v1::Droid>, Status> {
        caller::party(&request)?;
        let droid_id = input::line("droid_id", &request.get_ref().droid_id, ID_MAX).map_err(to_status)?;
        let read = self.0.world.store().read(move |r| rules::named(r, &droid_id));
        self.response(&read.await.map_err(to_status)?)
    }

    async fn steer(&self, request: Request<v1::SteerDroidRequest>) -> Result<Response<v1::Droid>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "droids.steer", &request.get_ref().request_id)?;
        let droid_id = input::line("droid_id", &request.get_ref().droid_id, ID_MAX).map_err(to_status)?;
        let message = request.into_inner().message;
        let steered = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            rules::steer(w, &by, &droid_id, &message, None)
        });
        self.response(&steered.await.map_err(to_status)?)
    }

    async fn kill(&self, request: Request<v1::KillDroidRequest>) -> Result<Response<v1::Droid>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "droids.kill", &request.get_ref().request_id)?;
        let droid_id = input::line("droid_id", &request.get_ref().droid_id, ID_MAX).map_err(to_status)?;
        let reason = input::line_if("reason", request.get_ref().reason.as_deref(), REASON_MAX).map_err(to_status)?;
        let ended = requests::once(self.0.world.store(), self.0.world.ctx(), key, move |w| {
            rules::kill(w, &by, &droid_id, reason.as_deref())
        });
        self.response(&ended.await.map_err(to_status)?)
    }
}
