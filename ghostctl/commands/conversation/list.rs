//! `ghostctl conversation list`

use ghost_proto::json;
use ghost_proto::v1::ListConversationsRequest;
use ghost_proto::v1::conversations_client::ConversationsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List conversations with people outside the world, most recent first
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl conversation list\n  ghostctl conversation list --agent chora --limit 20"
)]
pub struct List {
    /// Show only conversations of this agent
    #[arg(long = "agent", id = "owner", visible_alias = "owner", value_name = "A")]
    agent: Option<String>,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let found = collect(&self.bound, async |limit, cursor| {
            let request = ListConversationsRequest { owner: self.agent.clone(), limit, cursor };
            let page = rpc!(client, ConversationsClient::list, request).await?;
            Ok((page.conversations, page.next_cursor))
        })
        .await?;
        let mut table =
            Table::new(&["CONVERSATION", "OWNER", "WITH", "ADAPTER", "LAST", "STATE", "UPDATED", "AGE", "THREAD"]);
        for conversation in &found.rows {
            table.row([
                conversation.conversation_id.clone(),
                conversation.owner.clone(),
                conversation.party.clone(),
                conversation.adapter.clone(),
                conversation.last_seq.to_string(),
                if conversation.ended_at_ms.is_some() { "ended" } else { "open" }.to_owned(),
                client.view.moment(conversation.updated_at_ms),
                client.view.age(conversation.updated_at_ms),
                conversation.thread.clone(),
            ]);
        }
        let json = found.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: found.note, failure: None })
    }
}
