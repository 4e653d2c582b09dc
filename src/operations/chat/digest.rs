//! The digests of unread chat messages that a turn shows: one for each channel, from the read
//! cursor to the newest message. The cursor moves in the transaction that gives the digest to the
//! turn, so no message is shown twice or lost.

use ghost_domain::mail::{Room, bytes_of};
use ghost_domain::text::cut_marked;

use super::channel::{CROWD, shown_name};
use crate::mail::NewMessage;
use crate::prelude::*;

/// Minimum capacity, in bytes, for the digest of a channel that woke the agent, however full its
/// turn is.
const CALLED_BYTES: usize = 1_024;

/// The result of reading the channels.
#[derive(Debug, Default)]
pub(crate) struct ReadOn {
    /// A digest for each channel with unread chat messages. The digests are stored and belong to
    /// the turn.
    pub digests: Vec<Envelope>,
    /// Pending wake-ups of these channels. The turn must take them, because the digests make them
    /// unnecessary.
    pub spent: Vec<MessageId>,
}

/// Reads the unread chat messages of an agent: of all channels whose wake-ups are among `woken`,
/// and of other channels up to the capacity `room`. The other channels wait for a later turn. A
/// digest that omits messages says so.
pub(crate) fn read_on(
    w: &mut Tx,
    agent_id: &AgentId,
    turn_id: TurnId,
    woken: &[MessageId],
    room: Room,
) -> Result<ReadOn> {
    let mut unread = w.chat_unread(agent_id)?;
    let called = |member: &ChatMember| member.wake_id.is_some_and(|wake_id| woken.contains(&wake_id));
    unread.sort_by_key(|(member, _)| !called(member));
    let limits = w.ctx.limits();
    let (mut read, mut left) = (ReadOn::default(), room.bytes);
    for (member, channel) in unread {
        if (read.digests.len() >= room.envelopes || left < CALLED_BYTES) && !called(&member) {
            break;
        }
        let max_bytes = (limits.chat_digest_bytes as usize).min(left.max(CALLED_BYTES));
        // The agent's own messages are not shown to it, but the messages between them are.
        let posts = w.chat_posts(&channel.channel, member.read_seq, 0, limits.chat_digest_posts)?;
        if let Some(envelope) = digest(w.ctx, max_bytes, &member, &channel, &posts, turn_id) {
            left = left.saturating_sub(bytes_of(&envelope));
            w.message_append(&envelope)?;
            read.digests.push(envelope);
        }
        read.spent.extend(member.wake_id.filter(|wake_id| !woken.contains(wake_id)));
        w.chat_member_put(&ChatMember { read_seq: channel.last_seq, wake_id: None, ..member })?;
    }
    Ok(read)
}

fn digest(
    ctx: &Context,
    max_bytes: usize,
    member: &ChatMember,
    channel: &ChatChannel,
    posts: &[ChatPost],
    turn_id: TurnId,
) -> Option<Envelope> {
    let others: Vec<&ChatPost> = posts.iter().filter(|post| post.from.agent() != Some(&member.agent_id)).collect();
    let newest = others.last()?;
    let body = render(max_bytes, member, channel, posts, &others);
    let hop = others.iter().map(|post| post.hop).max().unwrap_or(0);
    let chain = Chain { root_id: newest.root_id, hop, conversation_id: None };
    // An envelope in a turn wakes nobody. But if a crash returns it to the inbox, it must be tried like the turn's other
    // mail, so it keeps the wake-up that a new message has.
    let new = NewMessage::new(&member.agent_id, newest.from.clone(), Kind::Chat, body, chain)
        .subject(format!("#{}", channel.channel));
    let (state, turn_id, read_at) = (MailState::Taken, Some(turn_id), Some(ctx.now()));
    Some(Envelope { state, turn_id, read_at, ..new.envelope(ctx) })
}

fn render(
    max_bytes: usize,
    member: &ChatMember,
    channel: &ChatChannel,
    posts: &[ChatPost],
    others: &[&ChatPost],
) -> String {
    let mut left_out = posts.first().map_or(0, |first| (first.seq - 1 - member.read_seq).max(0));
    let (mut entries, mut used) = (Vec::new(), 0);
    for (at, post) in others.iter().enumerate().rev() {
        let entry = entry(post, max_bytes);
        used += entry.len();
        if used > max_bytes && !entries.is_empty() {
            left_out += i64::try_from(at + 1).unwrap_or(i64::MAX);
            break;
        }
        entries.push(entry);
    }
    let mut text = String::with_capacity(used + 400);
    if left_out > 0 {
        text.push_str(&format!("{left_out} earlier posts: read them with syscall.chat.history.\n"));
    }
    entries.iter().rev().for_each(|entry| text.push_str(entry));
    if channel.members >= CROWD && !others.iter().any(|post| post.addresses(&member.agent_id)) {
        text.push_str(
            "(A whisper from the world, which no speaker hears: none of this is addressed to you, so nobody waits for an \
             answer. Post only what the others lack.)\n",
        );
    }
    text
}

/// Formats one chat message. Its lines are indented, so that no text can look like the header of
/// another message or like a note from the world.
fn entry(post: &ChatPost, max_bytes: usize) -> String {
    let reply = post.reply_to.map(|seq| format!(", answers #{seq}")).unwrap_or_default();
    let mut text = format!("#{} {} ({}{reply}):\n", post.seq, shown_name(&post.from), post.ts.rfc3339());
    for line in cut_marked(&post.content, max_bytes).0.lines() {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
    text
}
