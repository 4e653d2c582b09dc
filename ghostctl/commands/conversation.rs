//! `ghostctl conversation` and `ghostctl session`: what was said with people outside the world, and what each agent
//! remembers of it.

use ghost_proto::json;
use ghost_proto::v1::{ConversationEntry, SessionEntry};

use crate::arguments::{from_0, from_1, optional_text, since};
use crate::commands::prelude::*;
use crate::text::plural;

#[derive(Debug, clap::Subcommand)]
pub enum Conversation {
    /// List conversations with people outside the world, most recent first
    ///
    /// Examples:
    ///   ghostctl conversation list
    ///   ghostctl conversation list --agent chora --limit 20
    #[command(verbatim_doc_comment)]
    List {
        /// Show only conversations of this agent
        #[arg(long = "agent", id = "owner", visible_alias = "owner", value_name = "A")]
        agent: Option<String>,
        #[command(flatten)]
        bound: Bound,
    },
    /// Show a conversation and its messages
    ///
    /// Examples:
    ///   ID=$(ghostctl --json conversation list | jq -r '.[0].conversation_id')
    ///   ghostctl conversation show $ID
    ///   ghostctl conversation show $ID --after 20
    #[command(verbatim_doc_comment)]
    Show {
        /// Conversation id
        conversation_id: String,
        /// Show only messages after this number
        #[arg(long = "after", id = "after_seq", value_name = "SEQ", default_value_t = 0, value_parser = from_0::<i64>)]
        after: i64,
    },
    /// Hand a conversation over to another agent
    ///
    /// Examples:
    ///   ID=$(ghostctl --json conversation list | jq -r '.[0].conversation_id')
    ///   ghostctl conversation handoff $ID mux --reason 'chora is off today'
    #[command(verbatim_doc_comment)]
    Handoff {
        /// Conversation id
        conversation_id: String,
        /// Id of the new owner
        agent_id: String,
        /// Record this reason
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// End a conversation: agents cannot speak in it until a message from outside opens it again
    ///
    /// Examples:
    ///   ghostctl conversation end 01a20d4b --reason 'the order was cancelled'
    #[command(verbatim_doc_comment)]
    End {
        /// Conversation id
        conversation_id: String,
        /// Record this reason
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Retry a failed delivery of a message, under the same delivery id
    ///
    /// Examples:
    ///   ID=$(ghostctl --json conversation list | jq -r '.[0].conversation_id')
    ///   ghostctl conversation redeliver $ID 12
    #[command(verbatim_doc_comment)]
    Redeliver {
        /// Conversation id
        conversation_id: String,
        /// Number of the message, as `conversation show` prints it
        #[arg(allow_negative_numbers = true, value_parser = from_1::<i64>)]
        seq: i64,
    },
}

const CONVERSATIONS: &[Column<v1::Conversation>] = columns![
    "CONVERSATION" conversation_id, "OWNER" owner, "WITH" party, "ADAPTER" adapter, "LAST" last_seq,
    "STATE" => |conversation, _| if conversation.ended_at_ms.is_some() { "ended" } else { "open" }.to_owned(),
    "UPDATED" moment updated_at_ms, "AGE" age updated_at_ms, "THREAD" thread,
];

impl Conversation {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request_id = new_request_id();
        match self {
            Self::List { agent: owner, bound } => {
                let request = v1::ListConversationsRequest { owner, ..<_>::default() };
                list(client, &bound, request, CONVERSATIONS).await
            }
            Self::Show { conversation_id, after } => {
                let id = full_id(client, IdKind::CONVERSATION, conversation_id).await?;
                let (conversation, entries) = read(client, &id, after).await?;
                let mut json = json::value(&conversation);
                json["entries"] = json::value(&entries);
                let view = &client.view;
                let shown = [
                    ("conversation_id", conversation.conversation_id),
                    ("owner", conversation.owner),
                    ("with", conversation.party),
                    ("adapter", conversation.adapter),
                    ("thread", conversation.thread),
                    ("started", view.when(conversation.created_at_ms)),
                ];
                let mut text = fields(view.screen, &shown);
                text.extend(entries.iter().map(|entry| entry_text(entry, view)));
                Ok(Answer::new(&json, text))
            }
            Self::Handoff { conversation_id, agent_id, reason } => {
                let conversation_id = full_id(client, IdKind::CONVERSATION, conversation_id).await?;
                let reason = optional_text(reason)?;
                let request = v1::HandoffConversationRequest { request_id, conversation_id, agent_id, reason };
                let now = client.call(request).await?;
                let text = format!("conversation {} now belongs to {}", now.conversation_id, now.owner);
                Ok(Answer::new(&now, text))
            }
            Self::End { conversation_id, reason } => {
                let conversation_id = full_id(client, IdKind::CONVERSATION, conversation_id).await?;
                let request =
                    v1::EndConversationRequest { request_id, conversation_id, reason: optional_text(reason)? };
                let ended = client.call(request).await?;
                Ok(Answer::new(&ended, format!("conversation {} has ended", ended.conversation_id)))
            }
            Self::Redeliver { conversation_id, seq } => {
                let conversation_id = full_id(client, IdKind::CONVERSATION, conversation_id).await?;
                let request = v1::RedeliverRequest { request_id, conversation_id, seq };
                let entry = client.call(request).await?;
                let which = format!("message {} of conversation {}", entry.seq, entry.conversation_id);
                Ok(Answer::new(&entry, format!("{which} will be delivered again")))
            }
        }
    }
}

/// Entries per request.
const PAGE: u32 = 500;

/// Reads all entries after the entry `after`, page by page.
async fn read(client: &Client, id: &str, after: i64) -> Result<(v1::Conversation, Vec<ConversationEntry>), Failure> {
    let mut entries: Vec<ConversationEntry> = Vec::new();
    loop {
        let after_seq = Some(entries.last().map_or(after, |entry| entry.seq));
        let request = v1::GetConversationRequest { conversation_id: id.to_owned(), after_seq, limit: PAGE };
        let page = client.call(request).await?;
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

#[derive(Debug, clap::Subcommand)]
pub enum Session {
    /// List the sessions of an agent, last active first
    ///
    /// Examples:
    ///   ghostctl session list lead
    ///   ghostctl session list lead --since 1h
    #[command(verbatim_doc_comment)]
    List {
        /// Agent id
        agent_id: String,
        /// Show only sessions that were active since this time or in this duration
        #[arg(long = "since", id = "since_at_ms", value_name = "TIME", value_parser = since, allow_hyphen_values = true)]
        since: Option<i64>,
        /// Show at most this many sessions
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Show what was said and done in a session of an agent, oldest first
    ///
    /// SESSION is `own` for the agent's own work, otherwise the id of a conversation.
    ///
    /// Examples:
    ///   ghostctl session show lead own
    ///   ID=$(ghostctl --json conversation list | jq -r '.[0].conversation_id')
    ///   ghostctl session show lead $ID --limit 5
    #[command(verbatim_doc_comment)]
    Show {
        /// Agent id
        agent_id: String,
        /// `own`, or a conversation id
        session: String,
        /// Show at most this many turns
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
        limit: u32,
        /// Show only turns before this one
        #[arg(long = "before", id = "before_turn_id", value_name = "TURN")]
        before: Option<String>,
    },
    /// Begin a session of an agent anew
    ///
    /// Later prompts of the session hold nothing of what was before. Nothing is deleted: turns, journals and the
    /// conversation stay.
    ///
    /// Examples:
    ///   ghostctl session reset lead own
    #[command(verbatim_doc_comment)]
    Reset {
        /// Agent id
        agent_id: String,
        /// `own`, or a conversation id
        session: String,
    },
}

const SESSIONS: &[Column<v1::Session>] = columns![
    "SESSION" session, "TURNS" turns, "LAST" moment last_at_ms, "AGE" age last_at_ms,
];

impl Session {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List { agent_id, since: since_at_ms, limit } => {
                let request = v1::ListSessionsRequest { agent_id, since_at_ms, limit };
                let sessions = client.call(request).await?.sessions;
                Ok(Rows::from(sessions).answer(&client.view, SESSIONS))
            }
            Self::Show { agent_id, session, limit, before } => {
                let session = full_session(client, session).await?;
                let before_turn_id = full_id_if_given(client, IdKind::TURN, before).await?;
                let request = v1::GetSessionRequest { agent_id, session, before_turn_id, limit };
                let found = client.call(request).await?;
                let mut text: String = found.entries.iter().map(|entry| said(entry, &client.view)).collect();
                if text.is_empty() {
                    text = "The session has no turns.\n".to_owned();
                }
                if found.truncated {
                    text.insert_str(0, "Some entries are left out, because there are too many; use --limit.\n\n");
                }
                if let Some(earlier) = &found.earlier_turn_id {
                    text.push_str(&format!("\nThe session has earlier turns: --before {earlier}\n"));
                }
                Ok(Answer::new(&found, text))
            }
            Self::Reset { agent_id, session } => {
                let session = full_session(client, session).await?;
                let begun = format!("session {session} of {agent_id} begins anew");
                let request = v1::ResetSessionRequest { request_id: new_request_id(), agent_id, session };
                let done = client.call(request).await?;
                let text = if done.changed { begun } else { "the session has nothing to leave behind".to_owned() };
                Ok(Answer::new(&done, text))
            }
        }
    }
}

fn said(entry: &SessionEntry, view: &View) -> String {
    let tool = entry.tool.as_ref().map(|tool| format!(" {tool}")).unwrap_or_default();
    format!("{}  {}{tool}\n{}\n\n", view.moment(entry.at_ms), entry.author, entry.text)
}
