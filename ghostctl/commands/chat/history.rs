//! `ghostctl chat history`

use std::collections::VecDeque;

use ghost_proto::json;
use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::{ChatMessage, HistoryRequest};

use super::post::post_text;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body, Note};
use crate::text::{from_0, from_1, whole_number};

/// Chat messages per request.
pub const PAGE: u32 = 500;

fn page_of_posts(text: &str) -> Result<u32, String> {
    whole_number(text, 1, PAGE.into())
}

/// Show the chat messages of a channel, oldest first
#[derive(Debug, clap::Args)]
#[command(
    after_help = "To read more, pass the first sequence number shown to --before, or the last one to --after.\n\nExamples:\n  ghostctl chat history planning --limit 200\n  ghostctl chat history planning --after 120\n  ghostctl --json chat history planning --before 120"
)]
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
        let json: Vec<_> = posts.iter().map(json::value).collect();
        let text: String = posts.iter().map(|post| post_text(post, &client.view)).collect();
        Ok(Answer { note, ..Body::Long { json, text }.into() })
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
        let beyond = rpc!(client, ChatClient::history, request).await.ok()?;
        beyond.messages.first().map(|_| match forwards {
            true => format!("only the first {} are shown; --after {last} shows later ones", self.limit),
            false => format!("only the last {} are shown; --before {first} shows earlier ones", self.limit),
        })
    }

    fn request(&self, limit: u32, before_seq: Option<i64>, after_seq: Option<i64>) -> HistoryRequest {
        HistoryRequest { channel: self.channel.clone(), limit, before_seq, after_seq, as_agent: self.as_agent.clone() }
    }

    /// Reads up to `limit` chat messages, with several requests if needed: the size of one answer
    /// is limited.
    async fn posts(&self, client: &Client) -> Result<VecDeque<ChatMessage>, Failure> {
        let mut posts: VecDeque<ChatMessage> = VecDeque::new();
        let (mut after_seq, mut before_seq) = (self.after, self.before);
        loop {
            let read = u32::try_from(posts.len()).unwrap_or(u32::MAX);
            let request = self.request(self.limit.saturating_sub(read), before_seq, after_seq);
            let page = match rpc!(client, ChatClient::history, request).await {
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
