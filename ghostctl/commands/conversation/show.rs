//! `ghostctl conversation show`

use ghost_proto::json;
use ghost_proto::v1::conversations_client::ConversationsClient;
use ghost_proto::v1::{Conversation, ConversationEntry, GetConversationRequest};

use crate::connection::{Client, required, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;
use crate::table::fields;
use crate::text::{from_0, plural};
use crate::view::View;

/// Entries per request.
const PAGE: u32 = 500;

/// Show a conversation and its messages
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json conversation list | jq -r '.[0].conversation_id')\n  ghostctl conversation show $ID\n  ghostctl conversation show $ID --after 20"
)]
pub struct Show {
    /// Conversation id
    conversation_id: String,
    /// Show only messages after this number
    #[arg(long = "after", id = "after_seq", value_name = "SEQ", default_value_t = 0, value_parser = from_0::<i64>)]
    after: i64,
}

impl Show {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let (conversation, entries) =
            read(client, &ids::full_id(client, ids::CONVERSATION, self.conversation_id).await?, self.after).await?;
        let mut json = json::value(&conversation);
        json["entries"] = json::value(&entries);
        let view = &client.view;
        let mut text = fields(
            view.screen,
            &[
                ("conversation_id", conversation.conversation_id),
                ("owner", conversation.owner),
                ("with", conversation.party),
                ("adapter", conversation.adapter),
                ("thread", conversation.thread),
                ("started", view.when(conversation.created_at_ms)),
            ],
        );
        for entry in &entries {
            text.push_str(&entry_text(entry, view));
        }
        Ok(Answer::object(json, text))
    }
}

/// Reads all entries after the entry `after`, page by page.
pub async fn read(client: &Client, id: &str, after: i64) -> Result<(Conversation, Vec<ConversationEntry>), Failure> {
    let mut entries: Vec<ConversationEntry> = Vec::new();
    loop {
        let after_seq = Some(entries.last().map_or(after, |entry| entry.seq));
        let request = GetConversationRequest { conversation_id: id.to_owned(), after_seq, limit: PAGE };
        let page = rpc!(client, ConversationsClient::get, request).await?;
        // An empty page that promises more would loop forever.
        let more = page.more && !page.entries.is_empty();
        entries.extend(page.entries);
        if !more {
            return Ok((required(page.conversation, "conversation")?, entries));
        }
    }
}

fn entry_text(entry: &ConversationEntry, view: &View) -> String {
    let way = match (entry.direction.as_str(), entry.delivery.as_str()) {
        ("out", "delivered" | "none") | ("in", _) => String::new(),
        ("out", delivery) => format!(" [{delivery}, {}]", plural(entry.attempts, "attempt")),
        ("note", "draft") => " [draft]".to_owned(),
        _ => " [note]".to_owned(),
    };
    let way = if entry.deleted { format!("{way} [deleted]") } else { way };
    let way = entry.action.as_ref().map_or(way.clone(), |action| format!("{way} [{}]", action.kind));
    let mut text = format!("\n{}  {}  {}{way}\n{}\n", entry.seq, view.moment(entry.at_ms), entry.from, entry.content);
    for option in entry.action.iter().flat_map(|action| &action.options) {
        text.push_str(&format!("  - {option}\n"));
    }
    for file in &entry.attachments {
        text.push_str(&format!("  file {} ({} bytes): {}\n", file.name, file.bytes, file.path));
    }
    if let Some(error) = &entry.error {
        text.push_str(&format!("  last error: {error}\n"));
    }
    text
}
