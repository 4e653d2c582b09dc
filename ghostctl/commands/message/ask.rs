//! `ghostctl ask`

use std::pin::pin;
use std::time::Duration;

use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::{AskRequest, AskResponse};
use serde_json::json;

use crate::connection::{ANSWER_BYTES, Client, new_request_id};
use crate::failure::Failure;
use crate::output::{Answer, Note};
use crate::source::text_or_stdin;
use crate::wait_notice::WaitNotice;

/// The daemon ends an ask at its deadline. The client waits this much longer for that answer.
const GRACE: Duration = Duration::from_millis(750);

/// Ask an agent, wait for its reply and print it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
If there is no reply, the exit code tells the reason, such as 6 for a timeout and 8 for a spent budget.

Examples:\n  ghostctl ask chora 'What is still open?'\n  ghostctl --timeout 10m ask chora 'Review output/'")]
pub struct Ask {
    /// Agent id
    agent_id: String,
    /// The question; - reads standard input; put -- before a text that begins with -
    #[arg(value_name = "TEXT")]
    body: String,
}

impl Ask {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = AskRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id.clone(),
            body: text_or_stdin(self.body)?,
            timeout_ms: Some(u64::try_from(client.timeout.as_millis()).unwrap_or(u64::MAX)),
        };
        let patience = client.timeout.saturating_add(GRACE);
        let mut asked = pin!(client.call_within(patience, request, async |transport, request| {
            MessagesClient::new(transport).max_decoding_message_size(ANSWER_BYTES).ask(request).await
        }));
        let mut waits = WaitNotice::default();
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut asked => break answer?,
                line = waits.line(client, &self.agent_id) => client.word(&line),
            }
        };
        if answer.status != "answered" {
            return Err(unanswered(self.agent_id, answer));
        }
        let json = json!({
            "ask_id": answer.ask_id,
            "agent_id": self.agent_id,
            "status": answer.status,
            "reply": answer.reply,
            "truncated": answer.truncated,
        });
        let note = answer.truncated.then(|| {
            let text = "the reply was cut: the model reached its token limit for one answer (limits.answer_tokens, \
                         the archetype's max_tokens, or what a budget had left), or its provider paused it";
            Note::Word(text.to_owned())
        });
        Ok(Answer { note, ..Answer::object(json, answer.reply.unwrap_or_default()) })
    }
}

/// The failure of an ask without a reply. Its details name the ask.
fn unanswered(agent_id: String, answer: AskResponse) -> Failure {
    Failure {
        // Only a daemon older than this client gives no code.
        code: answer.error_code.unwrap_or_else(|| "ask_failed".to_owned()),
        message: answer.error.unwrap_or_else(|| format!("{agent_id} has not answered")),
        hint: answer.hint,
        details: Some(json!({ "ask_id": answer.ask_id, "agent_id": agent_id, "status": answer.status })),
    }
}
