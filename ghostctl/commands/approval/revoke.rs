//! `ghostctl approval revoke`

use ghost_proto::json;
use ghost_proto::v1::RevokeApprovalRequest;
use ghost_proto::v1::approvals_client::ApprovalsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;

/// End an approval that holds for later calls
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl approval list --always\n  ghostctl approval revoke $ID")]
pub struct Revoke {
    /// Approval id
    approval_id: String,
}

impl Revoke {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let approval_id = ids::full_id(client, ids::APPROVAL, self.approval_id).await?;
        let request = RevokeApprovalRequest { request_id: new_request_id(), approval_id };
        let approval = rpc!(client, ApprovalsClient::revoke, request).await?;
        let text = format!("{} asks again before: {}", approval.agent_id, approval.summary);
        Ok(Answer::object(json::value(&approval), text))
    }
}
