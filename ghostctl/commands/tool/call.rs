//! `ghostctl tool call`

use ghost_proto::json::parsed;
use ghost_proto::v1::CallToolRequest;
use ghost_proto::v1::tools_client::ToolsClient;
use serde_json::{Map, Value, json};

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::text_or_stdin;

/// Call a tool as an agent, with the agent's access rights
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The call runs at once, in a turn of its own, even if the agent is stopped or the world is paused.

An operator's call counts as approved: it also runs at once if calls of the tool wait for an approval
(`ghostctl approval`). If the world file names approvers, such a call is refused.

Examples:\n  ghostctl tool call chora workspace.read '{\"path\": \"notes.md\"}'")]
pub struct Call {
    /// Agent id
    agent_id: String,
    /// Tool name
    tool: String,
    /// Arguments of the tool, a JSON object; - reads standard input
    #[arg(id = "arguments_json", value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    arguments: String,
}

/// Checks that the text is a JSON object and returns it unchanged. The daemon must see the original text, because
/// parsing loses information, such as a duplicate key.
fn object(text: String) -> Result<String, Failure> {
    match serde_json::from_str::<Map<String, Value>>(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::new("invalid_arguments", format!("JSON is not a JSON object: {error}"))
            .hint("write the arguments as in '{\"path\": \"notes.md\"}'; `ghostctl agent prompt AGENT` shows a tool's parameters")),
    }
}

impl Call {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = CallToolRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id,
            tool: self.tool,
            arguments_json: object(text_or_stdin(self.arguments)?)?,
            timeout_ms: None,
        };
        let call = rpc!(client, ToolsClient::call, request).await?;
        let result = parsed(&call.result_json);
        let text = match &result {
            Value::String(text) => text.clone(),
            other => format!("{other:#}"),
        };
        let refusal = call
            .refusal_json
            .as_deref()
            .map(|json| Failure::from_refusal_json(json.as_bytes()).unwrap_or_else(|| Failure::new("internal", json)));
        let failure = refusal.or_else(|| match call.status.as_str() {
            "ok" => None,
            "unknown" => Some(
                Failure::new("outcome_unknown", format!("{} may or may not have run", call.tool))
                    .hint("check what it changes before you call it again"),
            ),
            status => Some(
                Failure::new("exec_failed", format!("{} ended as {status}", call.tool))
                    .hint("`ghostctl turn show TURN` shows its output"),
            ),
        });
        let json = json!({
            "call_id": call.call_id,
            "turn_id": call.turn_id,
            "agent_id": call.agent_id,
            "tool": call.tool,
            "status": call.status,
            "error_code": failure.as_ref().map(|failure| failure.code.as_str()),
            "result": result,
            "duration_ms": call.duration_ms,
            "truncated": call.truncated,
        });
        // As text, the refusal on standard error is the whole answer.
        let text = if failure.is_some() { String::new() } else { text };
        Ok(Answer { failure, ..Answer::object(json, text) })
    }
}
