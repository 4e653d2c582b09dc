//! `ghostctl chat send`

use ghost_proto::v1::PostRequest;
use ghost_proto::v1::chat_client::ChatClient;
use serde_json::{Value, json};

use crate::connection::{Client, new_request_id, required, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Note};
use crate::record;
use crate::source::words;
use crate::text::from_1;

/// Post in a channel
#[derive(Debug, clap::Args)]
#[command(
    after_help = "@AGENT in the text calls one member and @all everyone, unless the channel is gated.\n\nExamples:\n  ghostctl chat send planning '@chora, what is still open?'\n  ghostctl chat send panel 'Two minutes left.' --deliver"
)]
pub struct Send {
    /// The channel
    channel: String,
    /// The post; - reads it from standard input, and one that begins with - comes after --
    #[arg(value_name = "TEXT")]
    content: String,
    /// The sequence of the post that it answers
    #[arg(long, value_name = "SEQ", value_parser = from_1::<i64>)]
    reply_to: Option<i64>,
    /// Post as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
    /// Put it into the members' inboxes although the channel is gated
    #[arg(long)]
    deliver: bool,
}

impl Send {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = PostRequest {
            request_id: new_request_id(),
            channel: self.channel,
            content: words(self.content)?,
            reply_to: self.reply_to,
            as_agent: self.as_agent,
            deliver: self.deliver,
        };
        let posted = rpc!(client, ChatClient::post, request).await?;
        let message = required(posted.message, "message")?;
        let skipped: Vec<Value> = posted
            .skipped
            .iter()
            .map(|skipped| {
                json!({ "agent_id": skipped.agent_id, "error_code": skipped.error_code, "reason": skipped.reason })
            })
            .collect();
        let mut json = record::chat_message(&message);
        if let Value::Object(object) = &mut json {
            object.insert("delivered".into(), posted.delivered.into());
            object.insert("woken".into(), posted.woken.into());
            object.insert("held".into(), posted.held.into());
            object.insert("skipped".into(), skipped.into());
        }
        let place = format!("#{} in {}", message.seq, message.channel);
        let text = match posted.held {
            true => format!(
                "{place}: posted; the channel is gated, so members see it when they read it (--deliver hands it out)"
            ),
            false => format!("{place}: delivered to {}, woke {}", posted.delivered, posted.woken),
        };
        let reasons: Vec<String> = posted.skipped.into_iter().map(|skipped| skipped.reason).collect();
        let note = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok(Answer { note: note.map(Note::Word), ..Answer::object(json, text) })
    }
}
