//! What is said and kept as wire messages: mail, chat, conversations, knowledge, shared state, events. Text by agents is
//! redacted.

use ghost_domain::redact::Redactor;
use ghost_domain::{
    Action, Attachment, ChatPost, Conversation, ConversationEntry, DeadLetter, Envelope, Event, KnowledgeEntry,
    KnowledgeVersion, StateEntry,
};
use ghost_operations::chat::{ChannelView, Created, Posted, shown_name};
use ghost_proto::v1;

/// A mail envelope, redacted.
pub(crate) fn envelope(envelope: &Envelope, redactor: &Redactor) -> v1::Envelope {
    v1::Envelope {
        message_id: envelope.message_id.to_string(),
        seq: envelope.seq,
        to: envelope.to.to_string(),
        from: envelope.from.to_string(),
        kind: envelope.kind.as_str().to_owned(),
        subject: envelope.subject.as_deref().map(|subject| redactor.redact(subject)),
        body: redactor.redact(&envelope.body),
        attachments: envelope.attachments.clone(),
        ask_id: envelope.ask_id.map(|id| id.to_string()),
        conversation_id: envelope.conversation_id.map(|id| id.to_string()),
        root_id: envelope.root_id.to_string(),
        hop: envelope.hop,
        wake: envelope.wake,
        created_at_ms: envelope.created_at.0,
        state: envelope.state.as_str().to_owned(),
        turn_id: envelope.turn_id.map(|id| id.to_string()),
        crashes: envelope.crashes,
        read_at_ms: envelope.read_at.map(|at| at.0),
    }
}

/// A dead letter.
pub(crate) fn dead_letter(letter: &DeadLetter) -> v1::DeadLetter {
    v1::DeadLetter {
        dead_letter_id: letter.dead_letter_id.to_string(),
        agent_id: letter.agent_id.to_string(),
        turn_id: letter.turn_id.to_string(),
        messages: texts(&letter.messages),
        reason: letter.reason.clone(),
        crashes: letter.crashes,
        status: letter.status.as_str().to_owned(),
        created_at_ms: letter.created_at.0,
        resolved_at_ms: letter.resolved_at.map(|at| at.0),
    }
}

/// An event of the feed.
#[must_use]
pub fn event(event: &Event) -> v1::Event {
    v1::Event {
        seq: event.seq,
        event_id: event.event_id.to_string(),
        ts_ms: event.ts.0,
        kind: event.kind.as_str().to_owned(),
        agent_id: event.agent_id.as_ref().map(ToString::to_string),
        channel: event.channel.clone(),
        correlation_id: event.correlation_id.clone(),
        payload_json: event.payload.text().to_owned(),
    }
}

/// A channel with the first of its members.
pub(crate) fn channel(view: &ChannelView, redactor: &Redactor) -> v1::Channel {
    let channel = &view.channel;
    v1::Channel {
        channel: channel.channel.to_string(),
        members: texts(&view.members),
        member_count: channel.members,
        gated: channel.gated,
        creator: channel.creator.to_string(),
        topic: channel.topic.as_deref().map(|topic| redactor.redact(topic)),
        last_seq: channel.last_seq,
        created_at_ms: channel.created_at.0,
    }
}

/// The result of creating a channel.
pub(crate) fn created_channel(created: Created, redactor: &Redactor) -> v1::CreateChannelResponse {
    v1::CreateChannelResponse { channel: Some(channel(&created.view, redactor)), advisory: created.advisory }
}

/// A post.
pub(crate) fn chat_message(post: &ChatPost, redactor: &Redactor) -> v1::ChatMessage {
    v1::ChatMessage {
        channel: post.channel.to_string(),
        seq: post.seq,
        message_id: post.message_id.to_string(),
        from: shown_name(&post.from),
        content: redactor.redact(&post.content),
        ts_ms: post.ts.0,
        mentions: post.mentioned().map(str::to_owned).collect(),
        reply_to: post.reply_to,
    }
}

/// The result of a post.
pub(crate) fn posted(posted: &Posted, redactor: &Redactor) -> v1::PostResponse {
    let skipped = posted.skipped.iter().map(|skipped| v1::SkippedMember {
        agent_id: skipped.agent_id.to_string(),
        error_code: skipped.error_code.as_str().to_owned(),
        reason: skipped.reason.clone(),
    });
    v1::PostResponse {
        message: Some(chat_message(&posted.post, redactor)),
        delivered: posted.delivered,
        woken: posted.woken,
        skipped: skipped.collect(),
        held: posted.held,
    }
}

/// A conversation.
pub(crate) fn conversation(conversation: &Conversation) -> v1::Conversation {
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
pub(crate) fn conversation_entry(entry: &ConversationEntry, redactor: &Redactor) -> v1::ConversationEntry {
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
pub(crate) fn attachment(file: &Attachment) -> v1::Attachment {
    v1::Attachment {
        path: file.path.clone(),
        name: file.name.clone(),
        mime_type: file.mime_type.clone(),
        bytes: file.bytes,
    }
}

/// An entry, redacted. Lists leave its text out.
pub(crate) fn knowledge_entry(entry: &KnowledgeEntry, redactor: &Redactor, with_text: bool) -> v1::KnowledgeEntry {
    v1::KnowledgeEntry {
        entry_id: entry.entry_id.clone(),
        title: redactor.redact(&entry.title),
        content: if with_text { redactor.redact(&entry.content) } else { String::new() },
        tags: entry.tags.iter().map(|tag| redactor.redact(tag)).collect(),
        readers: texts(&entry.readers),
        writers: texts(&entry.writers),
        version: entry.version,
        creator: entry.creator.to_string(),
        updated_by: entry.updated_by.to_string(),
        created_at_ms: entry.created_at.0,
        updated_at_ms: entry.updated_at.0,
        deleted: entry.deleted,
    }
}

/// An earlier version of an entry, redacted.
pub(crate) fn knowledge_version(version: &KnowledgeVersion, redactor: &Redactor) -> v1::KnowledgeVersion {
    v1::KnowledgeVersion {
        version: version.version,
        title: redactor.redact(&version.title),
        content: redactor.redact(&version.content),
        by: version.by.to_string(),
        at_ms: version.at.0,
    }
}

/// A value, redacted. A value without a secret is sent exactly as it was written, with all digits of
/// its numbers.
pub(crate) fn state_entry(entry: &StateEntry, redactor: &Redactor) -> v1::StateEntry {
    let value = entry.value.value();
    let clean = redactor.redact_json(&value);
    v1::StateEntry {
        key: entry.key.clone(),
        value_json: if clean == value { entry.value.to_string() } else { clean.to_string() },
        version: entry.version,
        writer: entry.writer.to_string(),
        updated_at_ms: entry.updated_at.0,
    }
}

/// The string form of each id.
pub(super) fn texts<T: ToString>(ids: &[T]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
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
