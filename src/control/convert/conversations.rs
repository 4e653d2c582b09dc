//! Conversations with someone outside, redacted on their way out.

use ghost_domain::redact::Redactor;
use ghost_domain::{Attachment, Conversation, ConversationEntry};
use ghost_proto::v1;

/// A conversation.
#[must_use]
pub fn conversation(conversation: &Conversation) -> v1::Conversation {
    v1::Conversation {
        conversation_id: conversation.conversation_id.to_string(),
        adapter: conversation.adapter.clone(),
        thread: conversation.thread.clone(),
        owner: conversation.owner.to_string(),
        party: conversation.party.to_string(),
        last_seq: conversation.last_seq,
        created_at_ms: conversation.created_at.0,
        updated_at_ms: conversation.updated_at.0,
    }
}

/// One thing said, redacted.
#[must_use]
pub fn entry(entry: &ConversationEntry, redactor: &Redactor) -> v1::ConversationEntry {
    v1::ConversationEntry {
        conversation_id: entry.conversation_id.to_string(),
        seq: entry.seq,
        message_id: entry.message_id.to_string(),
        direction: entry.direction.as_str().to_owned(),
        from: entry.from.to_string(),
        content: redactor.redact(&entry.content),
        attachments: entry.attachments.iter().map(attachment).collect(),
        reply_to: entry.reply_to.clone(),
        delivery: entry.delivery.as_str().to_owned(),
        attempts: entry.attempts,
        error: entry.error.as_deref().map(|error| redactor.redact(error)),
        at_ms: entry.at.0,
        turn_id: entry.turn_id.map(|id| id.to_string()),
    }
}

fn attachment(file: &Attachment) -> v1::Attachment {
    v1::Attachment {
        path: file.path.clone(),
        name: file.name.clone(),
        mime_type: file.mime_type.clone(),
        bytes: file.bytes,
    }
}
