//! `ghostctl chat history`

use std::collections::VecDeque;

use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::{ChatMessage, HistoryRequest};

use super::told;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body};
use crate::record;

/// Posts that are asked for at once.
pub const PAGE: u32 = 500;

/// Show what was posted in a channel, oldest first
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A longer past is read in parts: --before the first, or --after the last sequence that was shown.\n\nExamples:\n  ghostctl chat history planning --limit 200\n  ghostctl chat history planning --after 120\n  ghostctl --json chat history planning --before 120"
)]
pub struct History {
    /// The channel
    channel: String,
    /// Most posts to show, 1 to 500: the newest, or with --after alone the oldest after it
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Only posts before this sequence
    #[arg(long, value_name = "SEQ", allow_negative_numbers = true)]
    before: Option<i64>,
    /// Only posts after this sequence
    #[arg(long, value_name = "SEQ", allow_negative_numbers = true)]
    after: Option<i64>,
    /// Read as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
}

impl History {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let posts = self.posts(client).await?;
        let json: Vec<_> = posts.iter().map(record::chat_message).collect();
        let text: String = posts.iter().map(told).collect();
        Ok(Body::Long { json, text }.into())
    }

    /// Reads what is asked for, over as many answers as it takes: one holds only so many bytes.
    async fn posts(&self, client: &Client) -> Result<VecDeque<ChatMessage>, Failure> {
        let mut posts: VecDeque<ChatMessage> = VecDeque::new();
        let (mut after_seq, mut before_seq) = (self.after, self.before);
        loop {
            let read = u32::try_from(posts.len()).unwrap_or(u32::MAX);
            let request = HistoryRequest {
                channel: self.channel.clone(),
                limit: self.limit.saturating_sub(read),
                before_seq,
                after_seq,
                as_agent: self.as_agent.clone(),
            };
            let page = match rpc!(client, ChatClient::history, request).await {
                Ok(page) => page,
                // What lies before the first page may have been pruned: that is the end, and no mistake of the caller's.
                Err(failure) if !posts.is_empty() && failure.code == "cursor_expired" => return Ok(posts),
                Err(failure) => return Err(failure),
            };
            match after_seq {
                // Read forwards.
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
