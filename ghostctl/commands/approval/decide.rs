//! `ghostctl approval approve` and `deny`

use ghost_proto::json;
use ghost_proto::v1::DecideApprovalRequest;
use ghost_proto::v1::approvals_client::ApprovalsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;

/// Let a waiting call run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --always, the same agent may run the same plan again without asking: the same arguments, directory, variables,
sandbox and content of the files that the command names.

Examples:
  ghostctl approval approve $ID
  ghostctl approval approve $ID --always")]
pub struct Approve {
    /// Approval id
    approval_id: String,
    /// Let the same agent run the same plan again without asking
    #[arg(long)]
    always: bool,
}

/// Refuse a waiting call
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl approval deny $ID --note 'push to the fork instead'")]
pub struct Deny {
    /// Approval id
    approval_id: String,
    /// Tell the agent why, or what to do instead
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Approve {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        decide(client, self.approval_id, DecideApprovalRequest { approve: true, always: self.always, ..<_>::default() })
            .await
    }
}

impl Deny {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        decide(client, self.approval_id, DecideApprovalRequest { note: self.note, ..<_>::default() }).await
    }
}

async fn decide(client: &Client, typed: String, decision: DecideApprovalRequest) -> Result<Answer, Failure> {
    let approval_id = ids::full_id(client, ids::APPROVAL, typed).await?;
    let request = DecideApprovalRequest { request_id: new_request_id(), approval_id, ..decision };
    let approval = rpc!(client, ApprovalsClient::decide, request).await?;
    let always = if approval.always { ", also for later calls" } else { "" };
    let text = format!(
        "the call of {} by {} is {}{always}: {}",
        approval.tool, approval.agent_id, approval.status, approval.summary
    );
    Ok(Answer::object(json::value(&approval), text))
}
