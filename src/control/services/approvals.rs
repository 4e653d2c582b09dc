//! The `Approvals` service: calls that wait for an operator.

use ghost_domain::{Approval, ApprovalId, ApprovalStatus, Code, Refusal};
use ghost_operations::approvals::{self as rules, Decision};
use ghost_operations::requests;
use ghost_proto::v1;
use ghost_proto::v1::approvals_server::Approvals;
use ghost_store::tables::ApprovalFilter;
use serde_json::Value;
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::{self, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// Implements `ghost.v1.Approvals`.
pub struct ApprovalsService(pub Control);

impl ApprovalsService {
    pub(crate) async fn page(&self, request: v1::ListApprovalsRequest) -> Result<v1::ListApprovalsResponse, Refusal> {
        let status: Option<ApprovalStatus> = match request.status.as_deref() {
            None if request.always => None,
            None => Some(ApprovalStatus::Pending),
            Some("all") => None,
            Some(text) => Some(input::parsed("status", text)?),
        };
        let agent_id = queries::agent_in_filter(&self.0.world, "agent_id", request.agent_id.as_deref()).await?;
        let filter = ApprovalFilter { agent_id, status, always: request.always };
        let after = input::position(input::unseal("approvals", &request.cursor)?)?;
        let page = queries::approvals(&self.0.world, filter, after, input::page(request.limit)).await?;
        let redactor = &self.0.world.ctx().redactor;
        let (approvals, next) = page.map(|approval| convert::approval_row(approval, redactor));
        Ok(v1::ListApprovalsResponse { approvals, next_cursor: input::seal("approvals", &next) })
    }

    pub(crate) async fn one(&self, approval_id: &str) -> Result<v1::Approval, Refusal> {
        let approval = self.read(input::parsed("approval_id", approval_id)?).await?;
        Ok(self.whole(&approval))
    }

    async fn read(&self, approval_id: ApprovalId) -> Result<Approval, Refusal> {
        let found = self.0.world.store().read(move |r| r.approval_get(approval_id)).await;
        found.map_err(Refusal::from)?.ok_or_else(|| {
            Refusal::not_found("approval", &approval_id.to_string(), None).hint("see `ghostctl approval list`")
        })
    }

    fn whole(&self, approval: &Approval) -> v1::Approval {
        convert::approval(approval, &self.0.world.ctx().redactor)
    }

    async fn decide_once(&self, request: Request<v1::DecideApprovalRequest>) -> Result<v1::Approval, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "approvals.decide", &request.get_ref().request_id)?;
        let request = request.into_inner();
        let approval_id: ApprovalId = input::parsed("approval_id", &request.approval_id).map_err(to_status)?;
        let decision = decision(&request).map_err(to_status)?;
        let world = &self.0.world;
        let approvers = world.plan().approvals.approvers.clone();
        let decided = requests::once(world.store(), world.ctx(), key, move |w| {
            if let (Some(seen), Some(approval)) = (&request.digest, w.approval_get(approval_id)?)
                && *seen != approval.digest
            {
                return Err(Refusal::new(Code::Conflict, "this is not the plan that you have seen")
                    .hint("read the approval again"));
            }
            rules::decide(w, &by, &approvers, approval_id, decision, request.note)
        });
        decided.await.map(|approval| self.whole(&approval)).map_err(to_status)
    }

    async fn revoke_once(&self, request: Request<v1::RevokeApprovalRequest>) -> Result<v1::Approval, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "approvals.revoke", &request.get_ref().request_id)?;
        let approval_id = input::parsed("approval_id", &request.get_ref().approval_id).map_err(to_status)?;
        let world = &self.0.world;
        let approvers = world.plan().approvals.approvers.clone();
        let revoked =
            requests::once(world.store(), world.ctx(), key, move |w| rules::revoke(w, &by, &approvers, approval_id));
        revoked.await.map(|approval| self.whole(&approval)).map_err(to_status)
    }
}

/// What the operator decides.
fn decision(request: &v1::DecideApprovalRequest) -> Result<Decision, Refusal> {
    let fields = match request.fields_json.as_str() {
        "" => None,
        text => match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => Some(fields),
            _ => return Err(input::bad("fields_json", "is not a JSON object").hint("write {\"name\": \"value\"}")),
        },
    };
    match (request.approve, request.always, fields) {
        (true, always, None) => Ok(Decision::Approve { always }),
        (true, false, Some(fields)) => Ok(Decision::Fill(fields)),
        (true, true, Some(_)) => {
            Err(input::bad("always", "is set with fields").hint("an answer with fields holds for one question"))
        }
        (false, false, None) => Ok(Decision::Deny),
        (false, true, _) => Err(input::bad("always", "is set for a denial").hint("a denial holds for one call")),
        (false, false, Some(_)) => Err(input::bad("fields_json", "is set for a denial").hint("deny without fields")),
    }
}

#[tonic::async_trait]
impl Approvals for ApprovalsService {
    async fn list(
        &self,
        request: Request<v1::ListApprovalsRequest>,
    ) -> Result<Response<v1::ListApprovalsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn get(&self, request: Request<v1::GetApprovalRequest>) -> Result<Response<v1::Approval>, Status> {
        caller::party(&request)?;
        self.one(&request.get_ref().approval_id).await.map(Response::new).map_err(to_status)
    }

    async fn decide(&self, request: Request<v1::DecideApprovalRequest>) -> Result<Response<v1::Approval>, Status> {
        self.decide_once(request).await.map(Response::new)
    }

    async fn revoke(&self, request: Request<v1::RevokeApprovalRequest>) -> Result<Response<v1::Approval>, Status> {
        self.revoke_once(request).await.map(Response::new)
    }
}
