//! `ghostctl chat send`

use ghost_proto::json;
use ghost_proto::v1::PostRequest;
use ghost_proto::v1::chat_client::ChatClient;

use crate::connection::{Client, new_request_id, required, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Note};
use crate::source::text_or_stdin;
use crate::text::from_1;

/// Post a chat message in a channel
#[derive(Debug, clap::Args)]
#[command(
    after_help = "@AGENT in the text mentions one member and @all mentions all members. In a gated channel mentions have no effect.\n\nExamples:\n  ghostctl chat send planning '@chora, what is still open?'\n  ghostctl chat send panel 'Two minutes left.' --deliver"
)]
pub struct Send {
    /// Channel name
    channel: String,
    /// Text of the chat message; - reads standard input; put -- before a text that begins with -
    #[arg(value_name = "TEXT")]
    content: String,
    /// Reply to the chat message with this sequence number
    #[arg(long, value_name = "SEQ", value_parser = from_1::<i64>)]
    reply_to: Option<i64>,
    /// Act as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
    /// Deliver the chat message to the members' inboxes, even if the channel is gated
    #[arg(long)]
    deliver: bool,
}

impl Send {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = PostRequest {
            request_id: new_request_id(),
            channel: self.channel,
            content: text_or_stdin(self.content)?,
            reply_to: self.reply_to,
            as_agent: self.as_agent,
            deliver: self.deliver,
        };
        let posted = rpc!(client, ChatClient::post, request).await?;
        let message = required(posted.message, "message")?;
        let mut json = json::value(&message);
        json["delivered"] = posted.delivered.into();
        json["woken"] = posted.woken.into();
        json["held"] = posted.held.into();
        json["skipped"] = json::value(&posted.skipped);
        let posted_as = format!("#{} in {}", message.seq, message.channel);
        let text = match posted.held {
            true => format!(
                "{posted_as}: posted; the channel is gated, so members see it when they read the channel (--deliver delivers it)"
            ),
            false => format!("{posted_as}: delivered to {}, woke {}", posted.delivered, posted.woken),
        };
        let reasons: Vec<String> = posted.skipped.into_iter().map(|skipped| skipped.reason).collect();
        let note = (!reasons.is_empty()).then(|| reasons.join("; "));
        Ok(Answer { note: note.map(Note::Word), ..Answer::object(json, text) })
    }
}
