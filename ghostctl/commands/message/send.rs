//! `ghostctl send`

use ghost_proto::v1::SendRequest;
use ghost_proto::v1::messages_client::MessagesClient;
use serde_json::json;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::{words, words_if};

/// Send an agent a message; it is safe in its inbox when this returns
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl send chora 'The figures of May are in notes/may.md'\n  ghostctl send chora --subject Minus -- '-5 degrees'"
)]
pub struct Send {
    /// The agent
    agent_id: String,
    /// The message; - reads it from standard input, and one that begins with - comes after --
    #[arg(value_name = "TEXT")]
    body: String,
    /// A short line above it
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
}

impl Send {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = SendRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id.clone(),
            body: words(self.body)?,
            subject: words_if(self.subject)?,
            attachments: Vec::new(),
        };
        let sent = rpc!(client, MessagesClient::send, request).await?;
        Ok(Answer::object(
            json!({
                "message_id": sent.message_id,
                "agent_id": self.agent_id,
                "seq": sent.seq,
                "root_id": sent.root_id,
            }),
            format!("{} is in the inbox of {}", sent.message_id, self.agent_id),
        ))
    }
}
