//! The updates of the session: what the agent says and does.
//!
//! They are read in the loop that reads the agent's output, one by one, so none waits in a queue. Nothing here may
//! wait. Updates of other sessions, of the past, and of unknown kinds are skipped.

use agent_client_protocol::RawJsonRpcParams;
use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, Plan, PlanEntryStatus, SessionNotification, SessionUpdate, ToolCallUpdate,
};
use serde_json::Value;

use crate::host::Host;
use crate::record::Record;
use crate::usage::{Context, Cost};

/// Adds the update in `params`, and tells the host.
pub(crate) fn update(record: &Record, host: &dyn Host, params: Option<RawJsonRpcParams>) {
    // Most of a replay is not even parsed.
    let Some(RawJsonRpcParams::Object(params)) = params.filter(|_| record.is_live()) else { return };
    if !params.get("sessionId").and_then(Value::as_str).is_some_and(|id| record.is_session(id)) {
        return;
    }
    let Ok(notification) = serde_json::from_value::<SessionNotification>(Value::Object(params)) else {
        tracing::debug!("an update of the session has an unknown form");
        return;
    };
    let notes = match notification.update {
        SessionUpdate::AgentMessageChunk(chunk) => {
            let id = chunk.message_id.as_ref().map(|id| id.0.to_string());
            text(&chunk).map(|text| record.said(id.as_deref(), text)).unwrap_or_default()
        }
        SessionUpdate::ToolCall(call) => record.call(ToolCallUpdate::from(call), false).1,
        SessionUpdate::ToolCallUpdate(update) => record.call(update, false).1,
        SessionUpdate::Plan(plan) => record.plan(plan_line(&plan)),
        SessionUpdate::UsageUpdate(update) => {
            let usage = record.usage(|usage| {
                usage.context = Some(Context { used: update.used, size: update.size });
                if let Some(cost) = update.cost {
                    usage.cost = Some(Cost::new(cost.amount, &cost.currency));
                }
            });
            host.usage(usage);
            Vec::new()
        }
        _ => Vec::new(),
    };
    notes.into_iter().for_each(|note| host.progress(note));
}

fn text(chunk: &ContentChunk) -> Option<&str> {
    match &chunk.content {
        ContentBlock::Text(text) => Some(&text.text),
        _ => None,
    }
}

/// The plan in one line: how far it is, and what is next.
fn plan_line(plan: &Plan) -> String {
    let done = plan.entries.iter().filter(|entry| entry.status == PlanEntryStatus::Completed).count();
    let doing = plan.entries.iter().find(|entry| entry.status == PlanEntryStatus::InProgress);
    let next = doing.or_else(|| plan.entries.iter().find(|entry| entry.status == PlanEntryStatus::Pending));
    let next = next.map(|entry| format!(": {}", entry.content)).unwrap_or_default();
    format!("plan: {done} of {} done{next}", plan.entries.len())
}
