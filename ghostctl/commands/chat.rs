//! `ghostctl chat`

use std::collections::VecDeque;

use ghost_proto::json;
use ghost_proto::v1::{Channel, ChatMessage, Event};
use serde_json::Value;

use super::events::print_events;
use crate::arguments::{from_0, from_1, optional_text, text_or_stdin, whole_number};
use crate::commands::prelude::*;
use crate::output::json_line;

#[derive(Debug, clap::Subcommand)]
pub enum Chat {
    /// Create a channel
    ///
    /// Examples:
    ///   ghostctl chat create planning --members chora,thaum,praxis --gated
    ///   ghostctl chat create panel --members chora,thaum --as primus --skip-creator
    #[command(verbatim_doc_comment)]
    Create {
        /// Name of the new channel
        channel: String,
        /// Add these agents, separated by commas
        #[arg(long, value_name = "A,B,C", value_delimiter = ',', required = true)]
        members: Vec<String>,
        /// Make the channel gated: chat messages are stored and streamed, but wake no member
        #[arg(long)]
        gated: bool,
        /// Do not add the creating agent as a member
        #[arg(long)]
        skip_creator: bool,
        /// Set the topic
        #[arg(long, value_name = "TEXT")]
        topic: Option<String>,
        /// Act as this agent
        #[arg(long = "as", value_name = "AGENT")]
        as_agent: Option<String>,
    },
    /// Post a chat message in a channel
    ///
    /// @AGENT in the text mentions one member and @all mentions all members. In a gated channel mentions have no effect.
    ///
    /// Examples:
    ///   ghostctl chat send planning '@chora, what is still open?'
    ///   ghostctl chat send panel 'Two minutes left.' --deliver
    #[command(verbatim_doc_comment)]
    Send {
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
    },
    /// Add an agent to a channel
    ///
    /// Examples:
    ///   ghostctl chat invite planning subrosa
    #[command(verbatim_doc_comment)]
    Invite {
        /// Channel name
        channel: String,
        /// Agent id
        agent_id: String,
        /// Act as this agent
        #[arg(long = "as", value_name = "AGENT")]
        as_agent: Option<String>,
    },
    /// Remove an agent from a channel
    ///
    /// Examples:
    ///   ghostctl chat remove planning subrosa
    #[command(verbatim_doc_comment)]
    Remove {
        /// Channel name
        channel: String,
        /// Agent id
        agent_id: String,
        /// Act as this agent
        #[arg(long = "as", value_name = "AGENT")]
        as_agent: Option<String>,
    },
    /// List channels
    ///
    /// Examples:
    ///   ghostctl chat list --agent chora
    #[command(verbatim_doc_comment)]
    List {
        /// Show only channels that this agent is a member of or has created
        #[arg(long = "agent", id = "agent_id", value_name = "A")]
        agent: Option<String>,
        #[command(flatten)]
        bound: Bound,
    },
    History(History),
    Watch(Watch),
}

const CHANNELS: &[Column<Channel>] = columns![
    "CHANNEL" channel,
    "GATED" => |channel, _| if channel.gated { "yes" } else { "no" }.to_owned(),
    "POSTS" last_seq, "CREATOR" creator,
    "MEMBERS" => |channel, _| member_names(channel),
    "TOPIC" topic,
];

impl Chat {
    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        let request_id = new_request_id();
        let changed =
            |channel: &Channel| Answer::new(channel, format!("#{}: {}", channel.channel, member_names(channel)));
        match self {
            Self::Create { channel, members, gated, skip_creator, topic, as_agent } => {
                let topic = optional_text(topic)?;
                let request =
                    v1::CreateChannelRequest { request_id, channel, members, skip_creator, gated, topic, as_agent };
                let created = client.call(request).await?;
                let channel = required(created.channel.as_ref(), "channel")?;
                let gated = if channel.gated { "gated" } else { "ungated" };
                let text = format!("#{} ({gated}): {}", channel.channel, member_names(channel));
                Ok(Answer { note: created.advisory.clone().map(Note::Word), ..Answer::new(&created, text) })
            }
            Self::Send { channel, content, reply_to, as_agent, deliver } => {
                let content = text_or_stdin(content)?;
                send(client, v1::PostRequest { request_id, channel, content, reply_to, as_agent, deliver }).await
            }
            Self::Invite { channel, agent_id, as_agent } => {
                let request = v1::InviteRequest { request_id, channel, agent_id, as_agent };
                Ok(changed(&client.call(request).await?))
            }
            Self::Remove { channel, agent_id, as_agent } => {
                let request = v1::RemoveMemberRequest { request_id, channel, agent_id, as_agent };
                Ok(changed(&client.call(request).await?))
            }
            Self::List { agent: agent_id, bound } => {
                let request = v1::ListChannelsRequest { agent_id, ..<_>::default() };
                list(client, &bound, request, CHANNELS).await
            }
            Self::History(verb) => verb.run(client).await,
            Self::Watch(verb) => verb.run(client, as_json, out).await,
        }
    }
}

/// The members on one line; if the daemon listed only some, with the number of the others.
fn member_names(channel: &Channel) -> String {
    let shown = channel.members.join(", ");
    match usize::try_from(channel.member_count).unwrap_or_default().saturating_sub(channel.members.len()) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

async fn send(client: &Client, request: v1::PostRequest) -> Result<Answer, Failure> {
    let posted = client.call(request).await?;
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
    Ok(Answer { note: note.map(Note::Word), ..Answer::new(&json, text) })
}

/// A chat message as text: a line with sequence number, author and time, then the content,
/// indented.
fn post_text(message: &ChatMessage, view: &View) -> String {
    let reply = message.reply_to.map(|seq| format!("  reply to #{seq}")).unwrap_or_default();
    let mut text = format!("#{} {}  {}{reply}\n", message.seq, message.from, view.moment(message.ts_ms));
    for line in message.content.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// Chat messages per request.
const PAGE: u32 = 500;

fn page_of_posts(text: &str) -> Result<u32, String> {
    whole_number(text, 1, PAGE.into())
}

/// Show the chat messages of a channel, oldest first
///
/// To read more, pass the first sequence number shown to --before, or the last one to --after.
///
/// Examples:
///   ghostctl chat history planning --limit 200
///   ghostctl chat history planning --after 120
///   ghostctl --json chat history planning --before 120
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct History {
    /// Channel name
    channel: String,
    /// Show at most N chat messages, 1 to 500: the newest, or with --after alone the oldest after it
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = page_of_posts)]
    limit: u32,
    /// Show only chat messages before this sequence number
    #[arg(long = "before", id = "before_seq", value_name = "SEQ", value_parser = from_1::<i64>)]
    before: Option<i64>,
    /// Show only chat messages after this sequence number
    #[arg(long = "after", id = "after_seq", value_name = "SEQ", value_parser = from_0::<i64>)]
    after: Option<i64>,
    /// Act as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
}

impl History {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let posts = self.posts(client).await?;
        let note = self.left_out(client, &posts).await.map(Note::Word);
        let text: String = posts.iter().map(|post| post_text(post, &client.view)).collect();
        Ok(Answer { note, ..Answer::new(&posts, text) })
    }

    /// A note if there are more chat messages beyond those shown, in the direction of reading.
    async fn left_out(&self, client: &Client, posts: &VecDeque<ChatMessage>) -> Option<String> {
        let (first, last) = (posts.front()?.seq, posts.back()?.seq);
        let forwards = self.after.is_some() && self.before.is_none();
        if posts.len() < self.limit as usize || !forwards && first <= self.after.unwrap_or(0).saturating_add(1) {
            return None;
        }
        let (before, after) = if forwards { (None, Some(last)) } else { (Some(first), self.after) };
        let request = self.request(1, before, after);
        // A refusal means that the earlier chat messages are pruned. Any error here must not fail
        // the command.
        let beyond = client.call(request).await.ok()?;
        beyond.messages.first().map(|_| match forwards {
            true => format!("only the first {} are shown; --after {last} shows later ones", self.limit),
            false => format!("only the last {} are shown; --before {first} shows earlier ones", self.limit),
        })
    }

    fn request(&self, limit: u32, before_seq: Option<i64>, after_seq: Option<i64>) -> v1::HistoryRequest {
        v1::HistoryRequest {
            channel: self.channel.clone(),
            limit,
            before_seq,
            after_seq,
            as_agent: self.as_agent.clone(),
        }
    }

    /// Reads up to `limit` chat messages, with several requests if needed: the size of one answer
    /// is limited.
    async fn posts(&self, client: &Client) -> Result<VecDeque<ChatMessage>, Failure> {
        let mut posts: VecDeque<ChatMessage> = VecDeque::new();
        let (mut after_seq, mut before_seq) = (self.after, self.before);
        loop {
            let read = u32::try_from(posts.len()).unwrap_or(u32::MAX);
            let request = self.request(self.limit.saturating_sub(read), before_seq, after_seq);
            let page = match client.call(request).await {
                Ok(page) => page,
                // Chat messages before the first page may have been pruned. That is the end of the
                // history, not an error.
                Err(failure) if !posts.is_empty() && failure.code == "cursor_expired" => return Ok(posts),
                Err(failure) => return Err(failure),
            };
            match after_seq {
                // Forwards: continue after the last chat message of the page.
                Some(_) => {
                    after_seq = page.messages.last().map(|last| last.seq).or(after_seq);
                    posts.extend(page.messages);
                }
                None => {
                    before_seq = page.messages.first().map(|first| first.seq);
                    page.messages.into_iter().rev().for_each(|message| posts.push_front(message));
                }
            }
            if !page.cut || posts.len() >= self.limit as usize {
                return Ok(posts);
            }
        }
    }
}

/// Print new chat messages of a channel until interrupted
///
/// The stream continues across restarts of the daemon without gaps or repetition. It ends if the daemon is
/// unreachable for longer than --timeout. With --json, each post is one JSON object on one line.
///
/// Examples:
///   ghostctl chat watch planning
///   ghostctl --json chat watch planning --after 0 | jq -r '.from + ": " + .content'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
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
        let form = move |message: &ChatMessage| match as_json {
            true => json_line(message),
            false => post_text(message, &view),
        };
        // The event position is read before the history. A chat message that arrives in between is
        // in both, and the filter on `shown` prints it once.
        let from = client.call(v1::StatusRequest {}).await?.last_seq;
        let mut shown = match self.after {
            Some(after) => self.past(client, after, &form, out).await?,
            None => self.newest(client).await?,
        };
        out.flush()?;
        let request = v1::SubscribeRequest {
            kinds: vec!["chat.message".to_owned()],
            channel: Some(self.channel),
            after_seq: Some(from),
            follow: true,
            ..v1::SubscribeRequest::default()
        };
        let form = Box::new(move |event: &Event, _| {
            let message = posted(event).filter(|message| message.seq > shown)?;
            shown = message.seq;
            Some(form(&message))
        });
        print_events(client, request, form, out).await
    }

    fn request(&self, limit: u32, after_seq: Option<i64>) -> v1::HistoryRequest {
        v1::HistoryRequest { channel: self.channel.clone(), limit, after_seq, ..v1::HistoryRequest::default() }
    }

    /// Sequence number of the newest chat message; 0 if there is none.
    async fn newest(&self, client: &Client) -> Result<i64, Failure> {
        let page = client.call(self.request(1, None)).await?;
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
            let page = client.call(self.request(PAGE, Some(after))).await?;
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
