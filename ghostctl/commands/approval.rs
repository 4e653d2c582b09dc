//! `ghostctl approval`

use ghost_proto::json;
use ghost_proto::v1::Event;
use serde_json::{Map, Value};

use super::events::print_events;
use crate::commands::prelude::*;
use crate::output::json_line;
use crate::text::one_line;

#[derive(Debug, clap::Subcommand)]
pub enum Approval {
    /// List calls that wait for an operator, newest first
    ///
    /// Examples:
    ///   ghostctl approval list
    ///   ghostctl approval list --status all
    ///   ghostctl approval list --always
    #[command(verbatim_doc_comment)]
    List {
        /// Show only calls of this agent
        #[arg(long = "agent", id = "agent_id", value_name = "A")]
        agent: Option<String>,
        /// Show this status: pending, approved, denied, expired, cancelled or all (default: pending)
        #[arg(long, value_name = "S")]
        status: Option<String>,
        /// Show approvals that hold for later calls, too
        #[arg(long)]
        always: bool,
        #[command(flatten)]
        bound: Bound,
    },
    /// Show exactly what a waiting call would do
    ///
    /// Examples:
    ///   ghostctl approval list
    ///   ghostctl approval show $ID
    #[command(verbatim_doc_comment)]
    Show {
        /// Approval id
        approval_id: String,
    },
    /// Print calls that wait for an operator, and what becomes of them, until interrupted
    ///
    /// First come the calls that wait now. The stream continues across restarts of the daemon. With --json, each line is one
    /// JSON object: an approval first, then events.
    ///
    /// Examples:
    ///   ghostctl approval watch
    ///   ghostctl --json approval watch | jq -r '.approval_id // .payload.approval_id'
    #[command(verbatim_doc_comment)]
    Watch {},
    /// Let a waiting call run
    ///
    /// With --always, the same agent may run the same plan again without asking: the same arguments, directory, variables,
    /// sandbox and content of the files that the command names.
    ///
    /// A program can ask with a form, which `ghostctl approval show` prints. Fill it with --field.
    ///
    /// Examples:
    ///   ghostctl approval approve $ID
    ///   ghostctl approval approve $ID --always
    ///   ghostctl approval approve $ID --field branch=main --field force=false
    #[command(verbatim_doc_comment)]
    Approve {
        /// Approval id
        approval_id: String,
        /// Let the same agent run the same plan again without asking
        #[arg(long, conflicts_with = "fields_json")]
        always: bool,
        /// Fill in a field of the form that a program asks with; repeat it for each field
        #[arg(id = "fields_json", long = "field", value_name = "NAME=VALUE", value_parser = field)]
        fields: Vec<(String, String)>,
    },
    /// Refuse a waiting call
    ///
    /// Examples:
    ///   ghostctl approval deny $ID --note 'push to the fork instead'
    #[command(verbatim_doc_comment)]
    Deny {
        /// Approval id
        approval_id: String,
        /// Tell the agent why, or what to do instead
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
    },
    /// End an approval that holds for later calls
    ///
    /// Examples:
    ///   ghostctl approval list --always
    ///   ghostctl approval revoke $ID
    #[command(verbatim_doc_comment)]
    Revoke {
        /// Approval id
        approval_id: String,
    },
}

const APPROVALS: &[Column<v1::Approval>] = columns![
    "APPROVAL" approval_id, "AGENT" agent_id,
    "STATUS" => |row, _| if row.always { format!("{} always", row.status) } else { row.status.clone() },
    "SINCE" moment requested_at_ms, "EXPIRES" moment expires_at_ms, "WHAT" summary,
];

impl Approval {
    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        match self {
            Self::List { agent: agent_id, status, always, bound } => {
                let request = v1::ListApprovalsRequest { agent_id, status, always, ..<_>::default() };
                list(client, &bound, request, APPROVALS).await
            }
            Self::Show { approval_id } => {
                let approval_id = full_id(client, IdKind::APPROVAL, approval_id).await?;
                let approval = client.call(v1::GetApprovalRequest { approval_id }).await?;
                Ok(Answer::new(&approval, whole(&approval, &client.view)))
            }
            Self::Watch {} => watch(client, as_json, out).await,
            Self::Approve { approval_id, always, fields } => {
                let mut given = Map::new();
                for (name, value) in fields {
                    if given.insert(name.clone(), Value::String(value)).is_some() {
                        let what = format!("--field {name} is given twice");
                        let hint = "give each field once; a list is one value with commas";
                        return Err(Failure::new("invalid_arguments", what).hint(hint));
                    }
                }
                let fields_json = if given.is_empty() { String::new() } else { Value::Object(given).to_string() };
                let decision = v1::DecideApprovalRequest { approve: true, always, fields_json, ..<_>::default() };
                decide(client, approval_id, decision).await
            }
            Self::Deny { approval_id, note } => {
                decide(client, approval_id, v1::DecideApprovalRequest { note, ..<_>::default() }).await
            }
            Self::Revoke { approval_id } => {
                let approval_id = full_id(client, IdKind::APPROVAL, approval_id).await?;
                let request = v1::RevokeApprovalRequest { request_id: new_request_id(), approval_id };
                let approval = client.call(request).await?;
                let text = format!("{} asks again before: {}", approval.agent_id, approval.summary);
                Ok(Answer::new(&approval, text))
            }
        }
    }
}

fn field(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

async fn decide(client: &Client, typed: String, decision: v1::DecideApprovalRequest) -> Result<Answer, Failure> {
    let approval_id = full_id(client, IdKind::APPROVAL, typed).await?;
    let request = v1::DecideApprovalRequest { request_id: new_request_id(), approval_id, ..decision };
    let approval = client.call(request).await?;
    let v1::Approval { tool, agent_id, status, summary, .. } = &approval;
    let always = if approval.always { ", also for later calls" } else { "" };
    let text = format!("the call of {tool} by {agent_id} is {status}{always}: {summary}");
    Ok(Answer::new(&approval, text))
}

/// An approval with all its fields.
fn whole(approval: &v1::Approval, view: &View) -> String {
    let files = approval.files.iter().map(|file| format!("{} {}", file.path, file.sha256));
    let argv: Vec<String> = approval.argv.iter().map(|word| format!("{word:?}")).collect();
    let shown = [
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
    ];
    fields(view.screen, &shown)
}

/// Prints the calls that wait now, and then what becomes of calls.
async fn watch(client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
    let view = client.view.clone();
    // Read before the list, so that no request between the two is missed. One may be printed twice.
    let from = client.call(v1::StatusRequest {}).await?.last_seq;
    let waiting = pages(client, &Bound::ALL, v1::ListApprovalsRequest::default()).await?;
    for approval in &waiting.rows {
        let waits = (approval.requested_at_ms, &*approval.approval_id, &*approval.agent_id);
        out.text(&match as_json {
            true => json_line(approval),
            false => line(&view, waits, "pending", &approval.summary),
        })?;
    }
    out.flush()?;
    let request = v1::SubscribeRequest {
        kinds: vec!["approval.".to_owned()],
        after_seq: Some(from),
        follow: true,
        ..v1::SubscribeRequest::default()
    };
    let form = Box::new(move |event: &Event, ephemeral| match as_json {
        true => Some(json_line(&json::event(event, ephemeral))),
        false => Some(changed(event, &view)),
    });
    print_events(client, request, form, out).await
}

/// What became of a call.
fn changed(event: &Event, view: &View) -> String {
    let payload: Value = json::parsed(&event.payload_json);
    let text = |name: &str| payload[name].as_str().unwrap_or_default();
    let status = if event.kind == "approval.revoked" { "revoked" } else { text("status") };
    let agent_id = event.agent_id.as_deref().unwrap_or_default();
    line(view, (event.ts_ms, text("approval_id"), agent_id), status, text("summary"))
}

fn line(view: &View, (at_ms, approval_id, agent_id): (i64, &str, &str), status: &str, summary: &str) -> String {
    let line = format!("{}  {approval_id}  {agent_id}  {status:<9}  {summary}", view.moment(at_ms));
    format!("{}\n", one_line(&line, view.screen.unwrap_or(usize::MAX - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_becomes_a_line_with_its_status() {
        let payload = r#"{"approval_id":"a1","status":"denied","summary":"git push"}"#;
        let event = Event {
            kind: "approval.closed".into(),
            agent_id: Some("ada".into()),
            payload_json: payload.into(),
            ..Event::default()
        };
        let line = changed(&event, &View::default());
        for part in ["a1", "ada", "denied", "git push"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(changed(&Event { kind: "approval.revoked".into(), ..event }, &View::default()).contains("revoked"));
    }
}
