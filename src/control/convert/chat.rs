//! Chat channels as wire messages. Text by agents is redacted.

use ghost_domain::ChatPost;
use ghost_domain::redact::Redactor;
use ghost_operations::chat::{ChannelView, Created, Posted, shown_name};
use ghost_proto::v1;

use super::texts::texts;

/// A channel with the first of its members.
#[must_use]
pub fn channel(view: &ChannelView, redactor: &Redactor) -> v1::Channel {
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
#[must_use]
pub fn created(created: Created, redactor: &Redactor) -> v1::CreateChannelResponse {
    v1::CreateChannelResponse { channel: Some(channel(&created.view, redactor)), advisory: created.advisory }
}

/// A post.
#[must_use]
pub fn message(post: &ChatPost, redactor: &Redactor) -> v1::ChatMessage {
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
#[must_use]
pub fn posted(posted: &Posted, redactor: &Redactor) -> v1::PostResponse {
    let skipped = posted.skipped.iter().map(|skipped| v1::SkippedMember {
        agent_id: skipped.agent_id.to_string(),
        error_code: skipped.error_code.as_str().to_owned(),
        reason: skipped.reason.clone(),
    });
    v1::PostResponse {
        message: Some(message(&posted.post, redactor)),
        delivered: posted.delivered,
        woken: posted.woken,
        skipped: skipped.collect(),
        held: posted.held,
    }
}
