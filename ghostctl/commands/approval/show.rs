//! `ghostctl approval show`

use ghost_proto::json;
use ghost_proto::v1::approvals_client::ApprovalsClient;
use ghost_proto::v1::{Approval, GetApprovalRequest};

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::table::fields;
use crate::view::View;

/// Show exactly what a waiting call would do
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl approval list\n  ghostctl approval show $ID")]
pub struct Show {
    /// Approval id
    approval_id: String,
}

impl Show {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let approval_id = ids::full_id(client, ids::APPROVAL, self.approval_id).await?;
        let approval = rpc!(client, ApprovalsClient::get, GetApprovalRequest { approval_id }).await?;
        Ok(Answer::object(json::value(&approval), whole(&approval, &client.view)))
    }
}

/// An approval with all its fields.
pub fn whole(approval: &Approval, view: &View) -> String {
    let files = approval.files.iter().map(|file| format!("{} {}", file.path, file.sha256));
    let argv: Vec<String> = approval.argv.iter().map(|word| format!("{word:?}")).collect();
    fields(
        view.screen,
        &[
            ("approval_id", approval.approval_id.clone()),
            ("agent_id", approval.agent_id.clone()),
            ("status", approval.status.clone()),
            ("always", approval.always.to_string()),
            ("reason", approval.reason.clone()),
            ("tool", approval.tool.clone()),
            ("arguments", approval.arguments_json.clone()),
            ("argv", argv.join(" ")),
            ("dir", approval.dir.clone().unwrap_or_default()),
            ("env", if approval.env_json == "{}" { String::new() } else { approval.env_json.clone() }),
            ("sandbox", approval.sandbox.clone().unwrap_or_default()),
            ("files", files.collect::<Vec<_>>().join("\n")),
            ("once only", approval.once_only.clone().unwrap_or_default()),
            ("form", approval.form_json.clone()),
            ("fields", approval.fields_json.clone()),
            ("turn_id", approval.turn_id.clone()),
            ("conversation_id", approval.conversation_id.clone().unwrap_or_default()),
            ("since", view.when(approval.requested_at_ms)),
            ("expires", view.when(approval.expires_at_ms)),
            ("closed", approval.closed_at_ms.map(|at| view.when(at)).unwrap_or_default()),
            ("decided_by", approval.decided_by.clone().unwrap_or_default()),
            ("note", approval.note.clone().unwrap_or_default()),
        ],
    )
}
