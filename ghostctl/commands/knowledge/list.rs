//! `ghostctl knowledge list`

use ghost_proto::json;
use ghost_proto::v1::knowledge_client::KnowledgeClient;
use ghost_proto::v1::{KnowledgeEntry, ListKnowledgeRequest};
use serde_json::Value;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List knowledge entries
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl knowledge list --tag style\n  ghostctl knowledge list --as chora")]
pub struct List {
    /// Show only entries with this tag
    #[arg(long, value_name = "T")]
    tag: Option<String>,
    /// Show only entries with these words in the id, title, tags or text
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Act as this agent: show only entries that it may read
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let entries = collect(&self.bound, async |limit, cursor| {
            let request = ListKnowledgeRequest {
                tag: self.tag.clone(),
                as_agent: self.as_agent.clone(),
                limit,
                cursor,
                query: self.query.clone(),
            };
            let page = rpc!(client, KnowledgeClient::list, request).await?;
            Ok((page.entries, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["ENTRY", "VERSION", "UPDATED", "AGE", "BY", "TAGS", "TITLE"]);
        for entry in &entries.rows {
            table.row([
                entry.entry_id.clone(),
                entry.version.to_string(),
                client.view.moment(entry.updated_at_ms),
                client.view.age(entry.updated_at_ms),
                entry.updated_by.clone(),
                entry.tags.join(", "),
                entry.title.clone(),
            ]);
        }
        let json = entries.rows.iter().map(without_text).collect();
        Ok(Answer { note: entries.note, ..Body::List { json, table }.into() })
    }
}

/// An entry as JSON, without its text.
pub fn without_text(entry: &KnowledgeEntry) -> Value {
    let mut json = json::value(entry);
    if let Value::Object(object) = &mut json {
        object.shift_remove("content");
    }
    json
}
