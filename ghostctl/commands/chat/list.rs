//! `ghostctl chat list`

use ghost_proto::v1::ListChannelsRequest;
use ghost_proto::v1::chat_client::ChatClient;

use super::members::members;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body};
use crate::record;
use crate::table::Table;

/// List the channels
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl chat list --agent chora")]
pub struct List {
    /// Only those that this agent is in or has created
    #[arg(long, value_name = "A")]
    agent: Option<String>,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let list = rpc!(client, ChatClient::list, ListChannelsRequest { agent_id: self.agent.clone() }).await?;
        let mut table = Table::new(&["CHANNEL", "GATED", "POSTS", "CREATOR", "MEMBERS", "TOPIC"]);
        for channel in &list.channels {
            table.row([
                channel.channel.clone(),
                if channel.gated { "yes".to_owned() } else { "no".to_owned() },
                channel.last_seq.to_string(),
                channel.creator.clone(),
                members(channel),
                channel.topic.clone().unwrap_or_default(),
            ]);
        }
        Ok(Body::List { json: list.channels.iter().map(record::channel).collect(), table }.into())
    }
}
