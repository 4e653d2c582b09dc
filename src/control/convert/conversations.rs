//! Conversations as wire messages, redacted.

use ghost_domain::redact::Redactor;
use ghost_domain::{Action, Attachment, Conversation, ConversationEntry};
use ghost_operations::chat::shown_name;
use ghost_proto::v1;

/// A conversation.
#[must_use]
pub fn conversation(conversation: &Conversation) -> v1::Conversation {
    v1::Conversation {
        conversation_id: conversation.conversation_id.to_string(),
        adapter: conversation.adapter.clone(),
        thread: conversation.thread.clone(),
        owner: conversation.owner.to_string(),
        party: shown_name(&conversation.party),
        last_seq: conversation.last_seq,
        created_at_ms: conversation.created_at.0,
        updated_at_ms: conversation.updated_at.0,
        ended_at_ms: conversation.ended_at.map(|at| at.0),
    }
}

/// An entry of a conversation, redacted.
#[must_use]
pub fn entry(entry: &ConversationEntry, redactor: &Redactor) -> v1::ConversationEntry {
    v1::ConversationEntry {
        conversation_id: entry.conversation_id.to_string(),
        seq: entry.seq,
        message_id: entry.message_id.to_string(),
        direction: entry.direction.as_str().to_owned(),
        from: shown_name(&entry.from),
        content: redactor.redact(&entry.content),
        attachments: entry.attachments.iter().map(attachment).collect(),
        reply_to: entry.reply_to.clone(),
        delivery: entry.delivery.as_str().to_owned(),
        attempts: entry.attempts,
        error: entry.error.as_deref().map(|error| redactor.redact(error)),
        at_ms: entry.at.0,
        turn_id: entry.turn_id.map(|id| id.to_string()),
        action: entry.action.as_ref().map(|done| Box::new(action(done, redactor))),
        deleted: entry.deleted,
    }
}

fn action(action: &Action, redactor: &Redactor) -> v1::ConversationAction {
    let (emoji, removed) = match action {
        Action::React { emoji, remove, .. } => (Some(redactor.redact(emoji)), *remove),
        Action::Pin { remove, .. } => (None, *remove),
        Action::Delete { .. } | Action::Poll { .. } | Action::Thread { .. } => (None, false),
    };
    let options = match action {
        Action::Poll { options } => options.iter().map(|option| redactor.redact(option)).collect(),
        _ => Vec::new(),
    };
    v1::ConversationAction {
        kind: action.kind().as_str().to_owned(),
        message_id: action.message_id().map(str::to_owned),
        emoji,
        removed,
        options,
    }
}

/// A file of a conversation entry.
pub fn attachment(file: &Attachment) -> v1::Attachment {
    v1::Attachment {
        path: file.path.clone(),
        name: file.name.clone(),
        mime_type: file.mime_type.clone(),
        bytes: file.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_fields_are_redacted() {
        let redactor = Redactor::new(["hush-hush".to_owned()]);
        let poll = action(&Action::Poll { options: vec!["yes".into(), "no hush-hush".into()] }, &redactor);
        assert_eq!((poll.options.len(), poll.options[0].as_str()), (2, "yes"));
        let emoji = ":hush-hush:".to_owned();
        let react = Action::React { message_id: "m".into(), seq: 1, emoji, remove: false };
        let react = action(&react, &redactor);
        for text in [&poll.options[1], react.emoji.as_ref().unwrap()] {
            assert!(!text.contains("hush-hush"), "{text}");
        }
    }
}
