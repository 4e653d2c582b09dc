//! Conversations with people outside the world, as JSON objects.

use ghost_proto::v1;
use serde_json::{Value, json};

use crate::text::rfc3339;

/// A conversation as JSON, without its entries.
pub fn conversation(conversation: &v1::Conversation) -> Value {
    json!({
        "conversation_id": conversation.conversation_id,
        "adapter": conversation.adapter,
        "thread": conversation.thread,
        "owner": conversation.owner,
        "party": conversation.party,
        "last_seq": conversation.last_seq,
        "created_at": rfc3339(conversation.created_at_ms),
        "updated_at": rfc3339(conversation.updated_at_ms),
    })
}

/// An entry of a conversation as JSON.
pub fn entry(entry: &v1::ConversationEntry) -> Value {
    let attachments: Vec<Value> = entry.attachments.iter().map(attachment).collect();
    json!({
        "conversation_id": entry.conversation_id,
        "seq": entry.seq,
        "message_id": entry.message_id,
        "direction": entry.direction,
        "from": entry.from,
        "content": entry.content,
        "attachments": attachments,
        "reply_to": entry.reply_to,
        "delivery": entry.delivery,
        "attempts": entry.attempts,
        "error": entry.error,
        "turn_id": entry.turn_id,
        "ts": rfc3339(entry.at_ms),
        "action": entry.action.as_deref().map(action),
        "deleted": entry.deleted,
    })
}

fn action(action: &v1::ConversationAction) -> Value {
    json!({
        "kind": action.kind,
        "message_id": action.message_id,
        "emoji": action.emoji,
        "removed": action.removed,
        "options": action.options,
    })
}

fn attachment(file: &v1::Attachment) -> Value {
    json!({ "path": file.path, "name": file.name, "mime_type": file.mime_type, "bytes": file.bytes })
}
