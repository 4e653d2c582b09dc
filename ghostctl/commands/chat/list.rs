//! `ghostctl chat list`

use ghost_proto::json;
use ghost_proto::v1::ListChannelsRequest;
use ghost_proto::v1::chat_client::ChatClient;

use super::members::members;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List channels
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl chat list --agent chora")]
pub struct List {
    /// Show only channels that this agent is a member of or has created
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let list = collect(&self.bound, async |limit, cursor| {
            let request = ListChannelsRequest { agent_id: self.agent.clone(), limit, cursor };
            let page = rpc!(client, ChatClient::list, request).await?;
            Ok((page.channels, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["CHANNEL", "GATED", "POSTS", "CREATOR", "MEMBERS", "TOPIC"]);
        for channel in &list.rows {
            table.row([
                channel.channel.clone(),
                if channel.gated { "yes".to_owned() } else { "no".to_owned() },
                channel.last_seq.to_string(),
                channel.creator.clone(),
                members(channel),
                channel.topic.clone().unwrap_or_default(),
            ]);
        }
        let json = list.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: list.note, failure: None })
    }
}
