//! What a turn is shown of the channels that its agent is in: one digest a channel, from the cursor to the newest post.
//! The cursor moves in the transaction that puts the digest into the turn's hands, so that no post is shown twice or lost.

use ghost_domain::mail::{Room, bytes_of};
use ghost_domain::text::cut_marked;
use ghost_domain::{AgentId, ChatChannel, ChatMember, ChatPost, Envelope, Kind, MailState, MessageId, TurnId};
use ghost_store::Writes;

use super::channel::CROWD;
use super::speaker::shown_name;
use crate::{Result, RuleContext};

/// Bytes of a digest that an agent was called for, however little room its turn has left.
const CALLED_BYTES: usize = 1_024;

/// What reading on gave a turn.
#[derive(Debug, Default)]
pub(crate) struct ReadOn {
    /// A digest for each channel that had something to read; they are in the store already, in the turn's hands.
    pub digests: Vec<Envelope>,
    /// Wake-ups that these digests have made needless, and that the turn must take besides those that it came with.
    pub spent: Vec<MessageId>,
}

/// Reads the channels of an agent on: those whose wake-ups are among `woken`, and of the others so many that there is
/// `room` for the digests. What is left is read by a later turn; what a digest has no room for, it says that it left out.
pub(crate) async fn read_on(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    agent_id: &AgentId,
    turn_id: TurnId,
    woken: &[MessageId],
    room: Room,
) -> Result<ReadOn> {
    let mut unread = w.chat_unread(agent_id).await?;
    let called = |member: &ChatMember| member.wake_id.is_some_and(|wake_id| woken.contains(&wake_id));
    unread.sort_by_key(|(member, _)| !called(member));
    let limits = ctx.limits();
    let (mut read, mut left) = (ReadOn::default(), room.bytes);
    for (member, channel) in unread {
        if (read.digests.len() >= room.envelopes || left < CALLED_BYTES) && !called(&member) {
            break;
        }
        let most = (limits.chat_digest_bytes as usize).min(left.max(CALLED_BYTES));
        // Its own words need not be shown to it; what lies between them does.
        let posts = w.chat_posts(&channel.channel, member.read_seq, 0, limits.chat_digest_posts).await?;
        if let Some(envelope) = digest(ctx, most, &member, &channel, &posts, turn_id) {
            left = left.saturating_sub(bytes_of(&envelope));
            w.message_append(&envelope).await?;
            read.digests.push(envelope);
        }
        read.spent.extend(member.wake_id.filter(|wake_id| !woken.contains(wake_id)));
        w.chat_member_put(&ChatMember { read_seq: channel.last_seq, wake_id: None, ..member }).await?;
    }
    Ok(read)
}

fn digest(
    ctx: &RuleContext,
    most: usize,
    member: &ChatMember,
    channel: &ChatChannel,
    posts: &[ChatPost],
    turn_id: TurnId,
) -> Option<Envelope> {
    let others: Vec<&ChatPost> = posts.iter().filter(|post| post.from.agent() != Some(&member.agent_id)).collect();
    let newest = others.last()?;
    let body = render(most, member, channel, posts, &others);
    Some(Envelope {
        message_id: MessageId(ctx.id()),
        seq: 0,
        to: member.agent_id.clone(),
        from: newest.from.clone(),
        kind: Kind::Chat,
        subject: Some(format!("#{}", channel.channel)),
        body,
        attachments: Vec::new(),
        ask_id: None,
        conversation_id: None,
        root_id: newest.root_id,
        hop: others.iter().map(|post| post.hop).max().unwrap_or(0),
        // In the hands of a turn nothing wakes. Given back by a crash, it must be tried like the rest of the turn's mail.
        wake: true,
        created_at: ctx.now(),
        state: MailState::Taken,
        turn_id: Some(turn_id),
        crashes: 0,
    })
}

fn render(most: usize, member: &ChatMember, channel: &ChatChannel, posts: &[ChatPost], others: &[&ChatPost]) -> String {
    let mut left_out = posts.first().map_or(0, |first| (first.seq - 1 - member.read_seq).max(0));
    let (mut entries, mut used) = (Vec::new(), 0);
    for (at, post) in others.iter().enumerate().rev() {
        let entry = entry(post, most);
        used += entry.len();
        if used > most && !entries.is_empty() {
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

/// One post. Its lines are indented, so that no text can pass for the head of another post or for a whisper.
fn entry(post: &ChatPost, most: usize) -> String {
    let reply = post.reply_to.map(|seq| format!(", answers #{seq}")).unwrap_or_default();
    let mut text = format!("#{} {} ({}{reply}):\n", post.seq, shown_name(&post.from), post.ts.rfc3339());
    for line in cut_marked(&post.content, most).0.lines() {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
    text
}
