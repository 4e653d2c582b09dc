//! `ghostctl approval approve` and `deny`

use ghost_proto::json;
use ghost_proto::v1::DecideApprovalRequest;
use ghost_proto::v1::approvals_client::ApprovalsClient;
use serde_json::{Map, Value};

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;

/// Let a waiting call run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
With --always, the same agent may run the same plan again without asking: the same arguments, directory, variables,
sandbox and content of the files that the command names.

A program can ask with a form, which `ghostctl approval show` prints. Fill it with --field.

Examples:
  ghostctl approval approve $ID
  ghostctl approval approve $ID --always
  ghostctl approval approve $ID --field branch=main --field force=false")]
pub struct Approve {
    /// Approval id
    approval_id: String,
    /// Let the same agent run the same plan again without asking
    #[arg(long, conflicts_with = "fields_json")]
    always: bool,
    /// Fill in a field of the form that a program asks with; repeat it for each field
    #[arg(id = "fields_json", long = "field", value_name = "NAME=VALUE", value_parser = field)]
    fields: Vec<(String, String)>,
}

fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
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
        let mut fields = Map::new();
        for (name, value) in self.fields {
            if fields.insert(name.clone(), Value::String(value)).is_some() {
                let hint = "give each field once; a list is one value with commas";
                return Err(Failure::new("invalid_arguments", format!("--field {name} is given twice")).hint(hint));
            }
        }
        let fields_json = if fields.is_empty() { String::new() } else { Value::Object(fields).to_string() };
        let decision = DecideApprovalRequest { approve: true, always: self.always, fields_json, ..<_>::default() };
        decide(client, self.approval_id, decision).await
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
