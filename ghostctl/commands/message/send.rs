//! `ghostctl send`

use ghost_proto::v1::SendRequest;
use ghost_proto::v1::messages_client::MessagesClient;
use serde_json::json;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::{optional_text, text_or_stdin};

/// Send a message to an agent and return when it is stored in the agent's inbox
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl send chora 'The figures of May are in notes/may.md'\n  ghostctl send chora --subject Minus -- '-5 degrees'"
)]
pub struct Send {
    /// Agent id
    agent_id: String,
    /// The message; - reads standard input; put -- before a text that begins with -
    #[arg(value_name = "TEXT")]
    body: String,
    /// Set the subject, one line
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
}

impl Send {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = SendRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id.clone(),
            body: text_or_stdin(self.body)?,
            subject: optional_text(self.subject)?,
            attachments: Vec::new(),
        };
        let sent = rpc!(client, MessagesClient::send, request).await?;
        let waits = sent.waits.as_ref().map(|why| format!("\n{why}")).unwrap_or_default();
        Ok(Answer::object(
            json!({
                "message_id": sent.message_id,
                "agent_id": self.agent_id,
                "seq": sent.seq,
                "root_id": sent.root_id,
                "waits": sent.waits,
            }),
            format!("{} is in the inbox of {}{waits}", sent.message_id, self.agent_id),
        ))
    }
}
