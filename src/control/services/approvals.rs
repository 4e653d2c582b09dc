//! The `Approvals` service: calls that wait for an operator.

use ghost_domain::{Approval, ApprovalId, ApprovalStatus, Code, Refusal};
use ghost_operations::approvals::{self as rules, Decision};
use ghost_proto::v1;
use ghost_store::Tx;
use ghost_store::tables::ApprovalFilter;
use serde_json::Value;

use crate::convert;
use crate::convert::input::{self, Position};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// The name of the list in its cursors.
const LIST: &str = "approvals";

pub(crate) async fn list(cx: Query, request: v1::ListApprovalsRequest) -> Result<v1::ListApprovalsResponse> {
    let status: Option<ApprovalStatus> = match request.status.as_deref() {
        None if request.always => None,
        None => Some(ApprovalStatus::Pending),
        Some("all") => None,
        Some(text) => Some(input::parsed("status", text)?),
    };
    let agent_id = queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?;
    let filter = ApprovalFilter { agent_id, status, always: request.always };
    let after = input::position_of(LIST, &request.cursor)?.map(|after| (after.at, ApprovalId(after.id)));
    let position = |row: &Approval| Position { at: row.requested_at, id: row.approval_id.0 }.cursor();
    let read = move |r: &mut Tx, most| r.approval_list(&filter, after, most);
    let page = queries::page(&cx.world, request.limit, read, position).await?;
    let redactor = cx.redactor();
    let (approvals, next_cursor) = page.sealed(LIST, |approval| convert::approval_row(approval, redactor));
    Ok(v1::ListApprovalsResponse { approvals, next_cursor })
}

pub(crate) async fn get(cx: Query, request: v1::GetApprovalRequest) -> Result<v1::Approval> {
    let approval_id: ApprovalId = input::parsed("approval_id", &request.approval_id)?;
    let found = cx.world.store().read(move |r| r.approval_get(approval_id)).await?;
    let approval = found.ok_or_else(|| {
        Refusal::not_found("approval", &approval_id.to_string(), None).hint("see `ghostctl approval list`")
    })?;
    Ok(convert::approval(&approval, cx.redactor()))
}

pub(crate) async fn decide(cx: Mutation, request: v1::DecideApprovalRequest) -> Result<v1::Approval> {
    let approval_id: ApprovalId = input::parsed("approval_id", &request.approval_id)?;
    let decision = decision(&request)?;
    let approvers = cx.world.plan().approvals.approvers.clone();
    let decided = cx.once(move |w, by| {
        if let (Some(seen), Some(approval)) = (&request.digest, w.approval_get(approval_id)?)
            && *seen != approval.digest
        {
            return Err(
                Refusal::new(Code::Conflict, "this is not the plan that you have seen").hint("read the approval again")
            );
        }
        rules::decide(w, by, &approvers, approval_id, decision, request.note)
    });
    Ok(convert::approval(&decided.await?, cx.redactor()))
}

pub(crate) async fn revoke(cx: Mutation, request: v1::RevokeApprovalRequest) -> Result<v1::Approval> {
    let approval_id = input::parsed("approval_id", &request.approval_id)?;
    let approvers = cx.world.plan().approvals.approvers.clone();
    let revoked = cx.once(move |w, by| rules::revoke(w, by, &approvers, approval_id)).await?;
    Ok(convert::approval(&revoked, cx.redactor()))
}

/// What the operator decides.
fn decision(request: &v1::DecideApprovalRequest) -> Result<Decision> {
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
