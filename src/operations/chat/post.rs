//! Posts a chat message: one row in the log of its channel, one event, and a wake-up for the
//! members that the message addresses.

use ghost_domain::chat::{EVERYONE, check_content, mentions};

use super::read::{Speaker, channel_named, not_a_member, shown_name};
use crate::mail::{NewMessage, Skipped, hop_limit};
use crate::prelude::*;
use crate::root_limits;

/// Maximum mentioned non-members that the result of a post reports.
const NON_MEMBERS_MAX: usize = 32;

/// The parameters of a new chat message.
#[derive(Clone, Debug)]
pub struct NewPost {
    /// Name of the channel.
    pub channel: ChannelName,
    /// Text of the chat message.
    pub content: String,
    /// Sequence of the chat message that this one answers.
    pub reply_to: Option<i64>,
    /// Whether an operator's message in a gated channel is delivered to its members.
    pub deliver: bool,
    /// The chain of work that the message belongs to.
    pub chain: Chain,
}

/// The result of posting a chat message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Posted {
    /// The stored chat message.
    pub post: ChatPost,
    /// Number of members whose next turn shows the message.
    pub delivered: u32,
    /// Number of members whose inbox received a wake-up. A member with a pending wake-up for this
    /// channel gets no other.
    pub woken: u32,
    /// The agents that the message did not reach, with reasons. It is stored nevertheless.
    pub skipped: Vec<Skipped>,
    /// Whether the message was only stored, because the channel is gated and the message was not
    /// delivered.
    #[serde(default)]
    pub held: bool,
}

/// Posts a chat message in a channel. In a gated channel it is only stored, unless an operator has
/// it delivered. In an ungated channel the next turn of every other member shows it, and `wake`
/// decides who also gets a wake-up. A mention of an unknown agent is refused.
pub fn post(w: &mut Tx, by: &Speaker, wake: ChatWake, new: NewPost) -> Result<Posted> {
    post_with(w, by, wake, new, UnknownMention::Refused)
}

/// Like [`post`], for the last text of a turn. The agent can no longer correct the text, so a
/// mention of an unknown agent is treated as text.
pub(crate) fn post_last_text(w: &mut Tx, by: &Speaker, wake: ChatWake, new: NewPost) -> Result<Posted> {
    post_with(w, by, wake, new, UnknownMention::Text)
}

/// How a mention of an unknown agent is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnknownMention {
    Refused,
    Text,
}

fn post_with(w: &mut Tx, by: &Speaker, wake: ChatWake, new: NewPost, unknown: UnknownMention) -> Result<Posted> {
    let limits = w.ctx.limits();
    check_content(&new.content, limits.chat_post_bytes)?;
    let mut channel = channel_named(w, &new.channel)?;
    let members = w.chat_members(&channel.channel)?;
    let own = by.party.agent().and_then(|agent_id| position(&members, agent_id));
    if !channel.admits(&by.party, own.is_some()) {
        return Err(not_a_member(&channel, &by.party, "post in it"));
    }
    if new.deliver && !matches!(by.party, Party::Operator(_) | Party::System) {
        return Err(refusal!(AccessDenied, "only an operator may have a gated post delivered")
            .hint("post without deliver, and ask whom you want to speak next with syscall.ask"));
    }
    if new.chain.hop > limits.hops_max && by.party != Party::System {
        return Err(hop_limit(new.chain.hop, limits.hops_max));
    }
    if let Some(reply_to) = new.reply_to
        && !(1..=channel.last_seq).contains(&reply_to)
    {
        return Err(Refusal::not_found(&format!("post in #{}", channel.channel), &reply_to.to_string(), None)
            .hint(format!("the newest post is {}", channel.last_seq))
            .details(json!({ "field": "reply_to", "last_seq": channel.last_seq })));
    }
    let (named, mut skipped) = addressed(w, by, &channel, &members, &new.content, unknown)?;
    channel.last_seq += 1;
    let post = ChatPost {
        channel: channel.channel.clone(),
        seq: channel.last_seq,
        message_id: MessageId(w.ctx.id()),
        from: by.party.clone(),
        content: new.content,
        mentions: named.names,
        reply_to: new.reply_to,
        root_id: new.chain.root_id,
        hop: new.chain.hop,
        ts: w.ctx.now(),
    };
    let mine = own.map(|at| members[at].clone());
    let others: Vec<ChatMember> =
        members.into_iter().enumerate().filter(|(at, _)| Some(*at) != own).map(|(_, member)| member).collect();
    let between_two = channel.is_between_two();
    let wakes = |member: &ChatMember| {
        between_two
            || match wake {
                ChatWake::All => true,
                ChatWake::Mentions => named.all || post.mentions.binary_search(&member.agent_id).is_ok(),
                ChatWake::None => false,
            }
    };
    // All checks come before the first write, because the caller may continue after a refusal.
    let chain = new.chain;
    if between_two {
        for member in &others {
            root_limits::echoed(w, &by.party, &member.agent_id, &post.content, chain)?;
        }
    }
    let handed_out = !channel.gated || new.deliver;
    let woken_count = others.iter().filter(|member| handed_out && member.wake_id.is_none() && wakes(member)).count();
    root_limits::sent(w, &by.party, chain, 1 + u64::try_from(woken_count).unwrap_or(u64::MAX))?;
    w.chat_post_append(&post)?;
    w.chat_channel_put(&channel)?;
    if let Some(own) = mine
        && own.read_seq == post.seq - 1
    {
        // The author's own message need not be shown to it.
        w.chat_member_put(&ChatMember { read_seq: post.seq, ..own })?;
    }
    let reached = match handed_out {
        true => put_into_inboxes(w, &post, &others, (channel.gated, wakes), &mut skipped)?,
        false => Reached::default(),
    };
    if let Some(member) = others.first().filter(|_| reached.woken > 0) {
        root_limits::last_hop(w, &by.party, &member.agent_id, chain)?;
    }
    let payload = json!({
        "seq": post.seq, "message_id": post.message_id, "from": shown_name(&post.from), "content": post.content,
        "mentions": post.mentioned().collect::<Vec<_>>(), "mentions_all": named.all, "reply_to": post.reply_to,
        "gated": channel.gated, "hop": post.hop, "delivered": reached.delivered, "woken": reached.woken,
        "waiting": reached.waiting, "skipped": skipped.len(), "via": by.via,
    });
    let event = NewEvent::new(EventKind::ChatMessage, payload).channel(&channel.channel).correlation(post.root_id);
    w.emit_at(post.ts, NewEvent { agent_id: by.party.agent().cloned(), ..event })?;
    Ok(Posted { post, delivered: reached.delivered, woken: reached.woken, skipped, held: !handed_out })
}

/// The index of an agent in a list of members ordered by id.
fn position(members: &[ChatMember], agent_id: &AgentId) -> Option<usize> {
    members.binary_search_by(|member| member.agent_id.cmp(agent_id)).ok()
}

/// The agents that a chat message mentions.
struct Named {
    /// Members, ordered by id, without the author.
    names: Vec<AgentId>,
    /// Whether the message mentions all members.
    all: bool,
}

/// Splits the mentioned names into members and agents that are no members. Unknown names are
/// refused or treated as text.
fn addressed(
    w: &mut StoreTx,
    by: &Speaker,
    channel: &ChatChannel,
    members: &[ChatMember],
    content: &str,
    unknown: UnknownMention,
) -> Result<(Named, Vec<Skipped>)> {
    let found = mentions(content);
    let others = found.names.into_iter().filter(|agent_id| by.party.agent() != Some(agent_id));
    let (names, non_members): (Vec<AgentId>, Vec<AgentId>) =
        others.partition(|agent_id| position(members, agent_id).is_some());
    let mut skipped = Vec::new();
    if !non_members.is_empty() {
        // One query for all mentioned names, which may be thousands.
        let agents = w.agents_among(&non_members)?;
        for agent_id in non_members {
            if agents.binary_search(&agent_id).is_err() {
                match unknown {
                    UnknownMention::Refused => return Err(unknown_agent(&agent_id)),
                    UnknownMention::Text => continue,
                }
            }
            if skipped.len() < NON_MEMBERS_MAX {
                let reason = format!("{agent_id} is no member of #{} and does not see the post", channel.channel);
                skipped.push(Skipped { agent_id, error_code: Code::NotFound, reason });
            }
        }
    }
    Ok((Named { names, all: found.all }, skipped))
}

/// A similar agent is searched after the command; see [`with_nearest`](crate::mail::with_nearest).
fn unknown_agent(name: &AgentId) -> Refusal {
    let near = nearest(name.as_str(), [EVERYONE]);
    let suggestion = near.map(|near| format!("did you mean `@{near}`? ")).unwrap_or_default();
    refusal!(InvalidArguments, "content mentions @{name}, and there is no agent of that id")
        .hint(format!("{suggestion}if you mean no agent, write the name without the @; put code between backticks"))
        .details(json!({ "field": "content", "mention": name }))
}

/// Number of members that a message reached.
#[derive(Default)]
struct Reached {
    delivered: u32,
    woken: u32,
    /// Members that already had a pending wake-up for this channel.
    waiting: u32,
}

/// Puts a wake-up into the inboxes of the members that `wakes` selects, unless one is pending: the chat messages are read
/// by cursor when the turn opens. With `whole`, every inbox gets the message itself, because members read gated messages
/// only on request.
fn put_into_inboxes(
    w: &mut Tx,
    post: &ChatPost,
    others: &[ChatMember],
    (whole, wakes): (bool, impl Fn(&ChatMember) -> bool + Send),
    skipped: &mut Vec<Skipped>,
) -> Result<Reached> {
    let (waiting, fresh): (Vec<&ChatMember>, Vec<&ChatMember>) =
        others.iter().filter(|member| whole || wakes(member)).partition(|member| !whole && member.wake_id.is_some());
    let mut reached = Reached { delivered: count(others), waiting: count(&waiting), woken: 0 };
    let mut free = FreeSpace::read(w, fresh.iter().map(|member| &member.agent_id))?;
    let missed = if whole { "does not get the post" } else { "is not woken, and sees the post in its next turn" };
    for member in fresh {
        if let Some(full) = free.take() {
            let reason = format!("{full}: {} {missed}", member.agent_id);
            skipped.push(Skipped { agent_id: member.agent_id.clone(), error_code: Code::InboxFull, reason });
            reached.delivered -= 1;
            continue;
        }
        let (body, wake) = (if whole { post.content.clone() } else { String::new() }, wakes(member));
        let chain = Chain { root_id: post.root_id, hop: post.hop, conversation_id: None };
        let new = NewMessage {
            subject: Some(format!("#{}", post.channel)),
            wake,
            ..NewMessage::new(&member.agent_id, post.from.clone(), Kind::Chat, body, chain)
        };
        let envelope = Envelope { created_at: post.ts, ..new.envelope(w.ctx) };
        w.message_append(&envelope)?;
        if !whole {
            w.chat_member_put(&ChatMember { wake_id: Some(envelope.message_id), ..member.clone() })?;
        }
        if wake {
            w.wake(&member.agent_id);
            reached.woken += 1;
        }
    }
    Ok(reached)
}

/// The free space of inboxes, read before the first of them changes.
struct FreeSpace {
    depths: std::vec::IntoIter<u32>,
    inbox_max: u32,
    /// Messages that the world still accepts.
    world: u64,
}

impl FreeSpace {
    fn read<'m>(w: &mut Tx, agents: impl Iterator<Item = &'m AgentId>) -> Result<Self> {
        let agents: Vec<AgentId> = agents.cloned().collect();
        let limits = w.ctx.limits();
        let (depths, waiting) = match agents.is_empty() {
            true => (Vec::new(), 0),
            false => (w.inbox_depths(&agents)?, w.inbox_total()?),
        };
        let world = u64::from(limits.world_mail_max).saturating_sub(waiting);
        Ok(Self { depths: depths.into_iter(), inbox_max: limits.inbox_max, world })
    }

    /// Reserves capacity in the next inbox, or returns the reason why there is none.
    fn take(&mut self) -> Option<String> {
        let depth = self.depths.next().unwrap_or(0);
        if depth >= self.inbox_max {
            return Some(format!("the inbox holds {depth} messages, which is the limit"));
        }
        if self.world == 0 {
            return Some("the world holds limits.world_mail_max waiting messages, which is the limit".to_owned());
        }
        self.world -= 1;
        None
    }
}

fn count<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}
