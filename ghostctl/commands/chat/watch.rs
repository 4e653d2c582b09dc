//! `ghostctl chat watch`

use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{ChatMessage, Event, HistoryRequest, StatusRequest, SubscribeRequest};
use serde_json::Value;

use super::history::PAGE;
use super::post::{post_json, post_text};
use crate::commands::events::subscribe::Reader;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body, Output};
use crate::text::from_0;

/// Print new chat messages of a channel until interrupted
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The stream continues across restarts of the daemon without gaps or repetition. It ends if the daemon is
unreachable for longer than --timeout. With --json, each post is one JSON object on one line.

Examples:
  ghostctl chat watch planning
  ghostctl --json chat watch planning --after 0 | jq -r '.from + \": \" + .content'")]
pub struct Watch {
    /// Channel name
    channel: String,
    /// Start after this sequence number (default: only new chat messages)
    #[arg(long = "after", id = "after_seq", value_name = "SEQ", value_parser = from_0::<i64>)]
    after: Option<i64>,
}

impl Watch {
    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        let view = client.view.clone();
        let form = move |message: &ChatMessage| if as_json { post_json(message) } else { post_text(message, &view) };
        // The event position is read before the history. A chat message that arrives in between is
        // in both, and the filter on `shown` prints it once.
        let from = rpc!(client, WorldClient::status, StatusRequest {}).await?.last_seq;
        let mut shown = match self.after {
            Some(after) => self.past(client, after, &form, out).await?,
            None => self.newest(client).await?,
        };
        out.flush()?;
        let request = SubscribeRequest {
            kinds: vec!["chat.message".to_owned()],
            channel: Some(self.channel),
            after_seq: Some(from),
            follow: true,
            ..SubscribeRequest::default()
        };
        let form = Box::new(move |event: &Event, _| {
            let message = posted(event).filter(|message| message.seq > shown)?;
            shown = message.seq;
            Some(form(&message))
        });
        Reader { request, form, seen: Some(from) }.read(client, out).await?;
        Ok(Body::Printed.into())
    }

    fn request(&self, limit: u32, after_seq: Option<i64>) -> HistoryRequest {
        HistoryRequest { channel: self.channel.clone(), limit, after_seq, ..HistoryRequest::default() }
    }

    /// Sequence number of the newest chat message; 0 if there is none.
    async fn newest(&self, client: &Client) -> Result<i64, Failure> {
        let page = rpc!(client, ChatClient::history, self.request(1, None)).await?;
        Ok(page.messages.last().map_or(0, |message| message.seq))
    }

    /// Prints the chat messages after `after`. Returns the sequence number of the last one.
    async fn past(
        &self,
        client: &Client,
        mut after: i64,
        form: &impl Fn(&ChatMessage) -> String,
        out: &mut Output,
    ) -> Result<i64, Failure> {
        loop {
            let page = rpc!(client, ChatClient::history, self.request(PAGE, Some(after))).await?;
            let Some(last) = page.messages.last() else { return Ok(after) };
            after = last.seq;
            for message in &page.messages {
                out.text(&form(message))?;
            }
        }
    }
}

/// The chat message in a `chat.message` event; `None` if the payload has another form.
fn posted(event: &Event) -> Option<ChatMessage> {
    let payload: Value = serde_json::from_str(&event.payload_json).ok()?;
    let text = |key: &str| payload[key].as_str().map(str::to_owned);
    let mentions = payload["mentions"].as_array().into_iter().flatten();
    Some(ChatMessage {
        channel: event.channel.clone()?,
        seq: payload["seq"].as_i64()?,
        message_id: text("message_id")?,
        from: text("from")?,
        content: text("content")?,
        ts_ms: event.ts_ms,
        mentions: mentions.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        reply_to: payload["reply_to"].as_i64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_is_read_from_its_event_and_other_events_are_ignored() {
        let payload = r#"{"seq":3,"message_id":"m","from":"ada","content":"hi","mentions":["bob"],"reply_to":2}"#;
        let event = Event { channel: Some("room".into()), ts_ms: 5, payload_json: payload.into(), ..Event::default() };
        let message = posted(&event).unwrap();
        assert_eq!((message.seq, message.from.as_str(), message.ts_ms, message.reply_to), (3, "ada", 5, Some(2)));
        assert_eq!(message.mentions, ["bob"]);
        assert!(posted(&Event { payload_json: "{".into(), ..event.clone() }).is_none());
        assert!(posted(&Event { channel: None, ..event }).is_none());
    }
}
