//! `ghostctl chat create`

use ghost_proto::json;
use ghost_proto::v1::CreateChannelRequest;
use ghost_proto::v1::chat_client::ChatClient;

use super::members::members;
use crate::connection::{Client, new_request_id, required, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Note};
use crate::source::optional_text;

/// Create a channel
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl chat create planning --members chora,thaum,praxis --gated\n  ghostctl chat create panel --members chora,thaum --as primus --skip-creator"
)]
pub struct Create {
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
}

impl Create {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = CreateChannelRequest {
            request_id: new_request_id(),
            channel: self.channel,
            members: self.members,
            skip_creator: self.skip_creator,
            gated: self.gated,
            topic: optional_text(self.topic)?,
            as_agent: self.as_agent,
        };
        let created = rpc!(client, ChatClient::create, request).await?;
        let json = json::value(&created);
        let channel = required(created.channel, "channel")?;
        let gated = if channel.gated { "gated" } else { "ungated" };
        let answer = Answer::object(json, format!("#{} ({gated}): {}", channel.channel, members(&channel)));
        Ok(Answer { note: created.advisory.map(Note::Word), ..answer })
    }
}
