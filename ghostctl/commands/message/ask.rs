//! `ghostctl ask`

use std::time::Duration;

use ghost_proto::v1::AskRequest;
use ghost_proto::v1::messages_client::MessagesClient;
use serde_json::json;

use crate::connection::{ANSWER_BYTES, Client, new_request_id};
use crate::failure::Failure;
use crate::output::Answer;

/// The daemon ends an ask at its deadline; this much later it is clear that nothing comes.
const GRACE: Duration = Duration::from_secs(5);

/// Ask an agent and print its reply
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl ask chora 'What is still open?'\n  ghostctl --timeout 10m ask chora 'Review output/'"
)]
pub struct Ask {
    /// The agent
    agent_id: String,
    /// The question
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    body: String,
}

impl Ask {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = AskRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id.clone(),
            body: self.body,
            timeout_ms: Some(u64::try_from(client.timeout.as_millis()).unwrap_or(u64::MAX)),
        };
        let answer = client
            .call_within(client.timeout.saturating_add(GRACE), request, async |transport, request| {
                MessagesClient::new(transport).max_decoding_message_size(ANSWER_BYTES).ask(request).await
            })
            .await?;
        let why = |otherwise: &str| answer.error.clone().unwrap_or_else(|| otherwise.to_owned());
        let failure = match answer.status.as_str() {
            "answered" => None,
            "timed_out" => Some(
                Failure::new("timeout", why(&format!("{} has not answered in time", self.agent_id)))
                    .hint("a late reply is kept: `ghostctl events --kind ask.late`; --timeout sets how long to wait"),
            ),
            _ => Some(Failure::new("ask_failed", why(&format!("{} cannot answer", self.agent_id)))),
        };
        let json = json!({
            "ask_id": answer.ask_id,
            "agent_id": self.agent_id,
            "status": answer.status,
            "reply": answer.reply,
            "error": answer.error,
        });
        Ok(Answer { failure, ..Answer::object(json, answer.reply.unwrap_or_default()) })
    }
}
