//! `ghostctl conversation list`

use ghost_proto::v1::ListConversationsRequest;
use ghost_proto::v1::conversations_client::ConversationsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::whole;
use crate::output::{Answer, Body, Note};
use crate::record::conversations as record;
use crate::table::Table;

/// List the conversations with someone outside, last spoken in first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl conversation list\n  ghostctl conversation list --agent chora")]
pub struct List {
    /// Of this agent
    #[arg(long, visible_alias = "owner", value_name = "A")]
    agent: Option<String>,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let (found, truncated) = whole(async |limit, cursor| {
            let request = ListConversationsRequest { owner: self.agent.clone(), limit, cursor };
            let page = rpc!(client, ConversationsClient::list, request).await?;
            Ok((page.conversations, page.next_cursor, page.truncated))
        })
        .await?;
        let mut table = Table::new(&["CONVERSATION", "OWNER", "WITH", "OVER", "LAST", "SPOKEN IN", "AGE", "THREAD"]);
        for conversation in &found {
            table.row([
                conversation.conversation_id.clone(),
                conversation.owner.clone(),
                conversation.party.clone(),
                conversation.adapter.clone(),
                conversation.last_seq.to_string(),
                client.view.moment(conversation.updated_at_ms),
                client.view.age(conversation.updated_at_ms),
                conversation.thread.clone(),
            ]);
        }
        let listed = found.len();
        let note = truncated.then(|| format!("the daemon lists no more than these {listed}; --agent shows others"));
        let json = found.iter().map(record::conversation).collect();
        Ok(Answer { body: Body::List { json, table }, note: note.map(Note::Cut), failure: None })
    }
}
