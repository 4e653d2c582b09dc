//! Reads channels: finds one, gives a turn the digests of its unread chat messages, and lists past ones.
//!
//! The cursor of a digest moves in the transaction that gives it to the turn, so no message is shown twice or lost. A cursor
//! before the oldest kept message or after the newest one is refused, so that a gap is never mistaken for silence.

use ghost_domain::mail::{Room, bytes_of};
use ghost_domain::text::cut_marked;

use crate::lookup::{self, Unknown};
use crate::mail::NewMessage;
use crate::prelude::*;

/// The number of members from which a new ungated channel gets a warning.
pub(super) const CROWD: u32 = 3;

/// Returns the channel of this name. The refusal gets a suggestion; see
/// [`with_nearest`](crate::mail::with_nearest).
pub fn channel_named(r: &mut StoreTx, channel: &ChannelName) -> Result<ChatChannel> {
    if let Some(found) = r.chat_channel_get(channel)? {
        return Ok(found);
    }
    let refusal = Refusal::not_found("channel", channel.as_str(), None).hint("the list of channels has their names");
    Err(lookup::unknown_name(r, refusal, Unknown::Channel(channel.clone()))?)
}

/// Builds the refusal for a party that is not in a channel and wants to do `what` there.
pub(super) fn not_a_member(channel: &ChatChannel, party: &Party, what: &str) -> Refusal {
    let creator = channel.creator.agent().map(|creator| format!(", its creator {creator}")).unwrap_or_default();
    refusal!(AccessDenied, "{} is no member of #{}", shown_name(party), channel.channel)
        .hint(format!("only its members{creator} and operators may {what}"))
}

/// The party that acts in a channel, and on whose behalf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// The party in whose name it acts, with that party's rights.
    pub party: Party,
    /// The operator on whose behalf the action happens, if an operator acts as an agent.
    pub via: Option<Party>,
}

impl Speaker {
    /// The party that reads the refusals. Their hints are written for it.
    #[must_use]
    pub fn reader(&self) -> &Party {
        self.via.as_ref().unwrap_or(&self.party)
    }
}

impl From<Party> for Speaker {
    fn from(party: Party) -> Self {
        Self { party, via: None }
    }
}

/// The name that is shown with a chat message: an agent's id, or the party as text.
#[must_use]
pub fn shown_name(party: &Party) -> String {
    party.agent().map_or_else(|| party.to_string(), ToString::to_string)
}

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

/// The default number of chat messages.
pub const HISTORY_DEFAULT: u32 = 50;
/// Maximum chat messages of one query.
pub const HISTORY_MAX: u32 = 500;

/// A query for chat messages.
#[derive(Clone, Debug)]
pub struct HistoryQuery {
    /// Name of the channel.
    pub channel: ChannelName,
    /// Maximum chat messages to return.
    pub limit: u32,
    /// Only messages before this sequence.
    pub before_seq: Option<i64>,
    /// Only messages after this sequence.
    pub after_seq: Option<i64>,
}

/// Returns chat messages in order of sequence: the newest ones, the newest before `before_seq`, or
/// the oldest after `after_seq`. Members, the creator and operators may read.
///
/// # Errors
/// `invalid_arguments` for a limit out of range, `cursor_ahead` for a cursor beyond the newest
/// message, `cursor_expired` for a cursor before the oldest kept message.
pub fn history(r: &mut StoreTx, reader: &Party, query: &HistoryQuery) -> Result<Vec<ChatPost>> {
    if !(1..=HISTORY_MAX).contains(&query.limit) {
        return Err(refusal!(InvalidArguments, "limit is {}; it must be 1 to {HISTORY_MAX}", query.limit)
            .hint("read on with before_seq or after_seq")
            .details(json!({ "field": "limit" })));
    }
    let channel = channel_named(r, &query.channel)?;
    let member = reader.agent().map(|agent_id| r.chat_member_get(&channel.channel, agent_id)).transpose()?.flatten();
    if !channel.admits(reader, member.is_some()) {
        return Err(not_a_member(&channel, reader, "read it"));
    }
    let last = channel.last_seq;
    for (field, cursor, least, most) in
        [("before_seq", query.before_seq, 1, last.saturating_add(1)), ("after_seq", query.after_seq, 0, last)]
    {
        let Some(cursor) = cursor else { continue };
        if cursor < least {
            return Err(refusal!(InvalidArguments, "{field} is {cursor}; it must be {least} or more")
                .hint(format!("the newest post is {last}"))
                .details(json!({ "field": field, "last_seq": last })));
        }
        if cursor > most {
            let name = &channel.channel;
            return Err(refusal!(CursorAhead, "{field} is {cursor}, and the newest post of #{name} is {last}")
                .hint("use a sequence that you got from this channel")
                .details(json!({ "field": field, "last_seq": last })));
        }
    }
    let (after, before) = (query.after_seq.unwrap_or(0), query.before_seq.unwrap_or(last.saturating_add(1)));
    // With `after_seq` alone it reads forwards, otherwise backwards, so that messages next to the
    // cursor come first.
    let end = match (query.after_seq, query.before_seq) {
        (Some(after), None) => before.min(after.saturating_add(i64::from(query.limit)).saturating_add(1)),
        _ => before,
    };
    let posts = match end.saturating_sub(after) > 1 {
        true => r.chat_posts(&channel.channel, after, end, query.limit)?,
        false => return Ok(Vec::new()),
    };
    let pruned = match (query.after_seq, query.before_seq) {
        (Some(after), _) if !is_kept(r, &channel, after + 1)? => Some("after_seq"),
        (None, Some(_)) if posts.is_empty() => Some("before_seq"),
        _ => None,
    };
    let Some(field) = pruned else { return Ok(posts) };
    let oldest = oldest_kept(r, &channel)?;
    let kept =
        oldest.map_or_else(|| "none are kept".to_owned(), |oldest| format!("the oldest that is kept is {oldest}"));
    Err(refusal!(CursorExpired, "{field} points to posts of #{} that are no longer kept", channel.channel)
        .hint(format!("{kept}; limits.chat_days says for how long"))
        .details(json!({ "field": field, "oldest_seq": oldest, "last_seq": last })))
}

fn is_kept(r: &mut StoreTx, channel: &ChatChannel, seq: i64) -> Result<bool> {
    Ok(!r.chat_posts(&channel.channel, seq - 1, seq.saturating_add(1), 1)?.is_empty())
}

/// Finds the oldest kept message. Pruning deletes the oldest first, so a binary search works.
fn oldest_kept(r: &mut StoreTx, channel: &ChatChannel) -> Result<Option<i64>> {
    let (mut gone, mut kept) = (0, channel.last_seq);
    if kept == 0 || !is_kept(r, channel, kept)? {
        return Ok(None);
    }
    while kept - gone > 1 {
        let middle = gone + (kept - gone) / 2;
        match is_kept(r, channel, middle)? {
            true => kept = middle,
            false => gone = middle,
        }
    }
    Ok(Some(kept))
}
