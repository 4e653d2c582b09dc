//! `ghostctl approval watch`

use ghost_proto::json;
use ghost_proto::v1::approvals_client::ApprovalsClient;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{Approval, Event, ListApprovalsRequest, StatusRequest, SubscribeRequest};
use serde_json::Value;

use crate::commands::events::subscribe::Reader;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body, Output};
use crate::text::{escaped_json, one_line};
use crate::view::View;

/// Print calls that wait for an operator, and what becomes of them, until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = "\
First come the calls that wait now. The stream continues across restarts of the daemon. With --json, each line is one
JSON object: an approval first, then events.

Examples:
  ghostctl approval watch
  ghostctl --json approval watch | jq -r '.approval_id // .payload.approval_id'")]
pub struct Watch {}

impl Watch {
    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        let view = client.view.clone();
        // Read before the list, so that no request between the two is missed. One may be printed twice.
        let from = rpc!(client, WorldClient::status, StatusRequest {}).await?.last_seq;
        let mut cursor = String::new();
        loop {
            let request = ListApprovalsRequest { limit: 500, cursor, ..<_>::default() };
            let page = rpc!(client, ApprovalsClient::list, request).await?;
            for approval in &page.approvals {
                out.text(&if as_json {
                    format!("{}\n", escaped_json(&json::value(approval).to_string()))
                } else {
                    waiting(approval, &view)
                })?;
            }
            if page.next_cursor.is_empty() {
                break;
            }
            cursor = page.next_cursor;
        }
        out.flush()?;
        let request = SubscribeRequest {
            kinds: vec!["approval.".to_owned()],
            after_seq: Some(from),
            follow: true,
            ..SubscribeRequest::default()
        };
        let form = Box::new(move |event: &Event, ephemeral| match as_json {
            true => Some(format!("{}\n", json::event(event, ephemeral))),
            false => Some(changed(event, &view)),
        });
        Reader { request, form, seen: Some(from) }.read(client, out).await?;
        Ok(Body::Printed.into())
    }
}

/// A call that waits now.
fn waiting(approval: &Approval, view: &View) -> String {
    line(view, approval.requested_at_ms, &approval.approval_id, &approval.agent_id, "pending", &approval.summary)
}

/// What became of a call.
fn changed(event: &Event, view: &View) -> String {
    let payload: Value = json::parsed(&event.payload_json);
    let text = |name: &str| payload[name].as_str().unwrap_or_default();
    let status = if event.kind == "approval.revoked" { "revoked" } else { text("status") };
    let agent_id = event.agent_id.as_deref().unwrap_or_default();
    line(view, event.ts_ms, text("approval_id"), agent_id, status, text("summary"))
}

fn line(view: &View, at_ms: i64, approval_id: &str, agent_id: &str, status: &str, summary: &str) -> String {
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
