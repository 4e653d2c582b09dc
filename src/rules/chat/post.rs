//! A post: one row in the log of its channel, one event, and a wake-up for whom it concerns (CHAT-03, CHAT-04, CHAT-11).

use ghost_domain::chat::{EVERYONE, check_content, mentions};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::text::nearest;
use ghost_domain::{
    AgentId, ChannelName, ChatChannel, ChatMember, ChatPost, ChatWake, Code, Envelope, Kind, MailState, MessageId,
    Party, Refusal,
};
use ghost_store::Writes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::channel::{channel_named, outsider};
use super::speaker::{Speaker, shown_name};
use crate::chain::Chain;
use crate::mail::hop_limit;
use crate::{Result, RuleContext, root_limits};

/// Agents in one post that are no members and of whom it is said that they do not see it.
const STRANGERS_MAX: usize = 32;

/// A post to be made.
#[derive(Clone, Debug)]
pub struct NewPost {
    /// Where.
    pub channel: ChannelName,
    /// The text.
    pub content: String,
    /// The sequence of the post that it answers.
    pub reply_to: Option<i64>,
    /// Whether an operator's post goes to the members of a gated channel all the same (CHAT-15).
    pub deliver: bool,
    /// The chain that it belongs to.
    pub chain: Chain,
}

/// What became of a post.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Posted {
    /// It.
    pub post: ChatPost,
    /// Members who see it in their next turn without asking.
    pub delivered: u32,
    /// Members for whom it put a wake-up into the inbox. One who has a wake-up for this channel already needs no other.
    pub woken: u32,
    /// Whom it did not reach, and why. The post stands all the same.
    pub skipped: Vec<Skipped>,
    /// Whether it waits to be read: the channel is gated, and nobody was handed it.
    #[serde(default)]
    pub held: bool,
}

/// Someone whom a post did not reach as it should.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// Who.
    pub agent_id: AgentId,
    /// Why, for programs.
    pub error_code: Code,
    /// Why, in words.
    pub reason: String,
}

/// Posts in a channel. In a gated one nothing more happens, unless an operator has it delivered. In an ungated one every
/// other member sees it in its next turn, and those whom `wake` says get a wake-up, one at most for all that is posted
/// until a turn takes it. A mention of nobody is refused.
pub async fn post(w: &mut dyn Writes, ctx: &RuleContext, by: &Speaker, wake: ChatWake, new: NewPost) -> Result<Posted> {
    post_with(w, ctx, by, wake, new, Nobody::Refused).await
}

/// The same for what an agent said last in a turn: it can no longer be told to say it otherwise, so that a mention of
/// nobody is text.
pub(crate) async fn post_last_words(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    by: &Speaker,
    wake: ChatWake,
    new: NewPost,
) -> Result<Posted> {
    post_with(w, ctx, by, wake, new, Nobody::Text).await
}

/// What a mention of nobody is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nobody {
    Refused,
    Text,
}

async fn post_with(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    by: &Speaker,
    wake: ChatWake,
    new: NewPost,
    nobody: Nobody,
) -> Result<Posted> {
    let limits = ctx.limits();
    check_content(&new.content, limits.chat_post_bytes)?;
    let mut channel = channel_named(w, &new.channel).await?;
    let members = w.chat_members(&channel.channel).await?;
    let own = by.party.agent().and_then(|agent_id| place(&members, agent_id));
    if !channel.admits(&by.party, own.is_some()) {
        return Err(outsider(&channel, &by.party, "post in it"));
    }
    if new.deliver && !matches!(by.party, Party::Operator(_) | Party::System) {
        return Err(Refusal::new(Code::AccessDenied, "only an operator may have a gated post delivered")
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
    let (named, mut skipped) = addressed(w, by, &channel, &members, &new.content, nobody).await?;
    channel.last_seq += 1;
    let post = ChatPost {
        channel: channel.channel.clone(),
        seq: channel.last_seq,
        message_id: MessageId(ctx.id()),
        from: by.party.clone(),
        content: new.content,
        mentions: named.names,
        reply_to: new.reply_to,
        root_id: new.chain.root_id,
        hop: new.chain.hop,
        ts: ctx.now(),
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
    // All that may refuse comes before anything is written: a caller may go on after a refusal.
    let chain = new.chain;
    if between_two {
        for member in &others {
            root_limits::echoed(w, ctx, &by.party, &member.agent_id, &post.content, chain).await?;
        }
    }
    let handed_out = !channel.gated || new.deliver;
    let called = others.iter().filter(|member| handed_out && member.wake_id.is_none() && wakes(member)).count();
    root_limits::sent(w, ctx, &by.party, chain, 1 + u64::try_from(called).unwrap_or(u64::MAX)).await?;
    w.chat_post_append(&post).await?;
    w.chat_channel_put(&channel).await?;
    if let Some(own) = mine
        && own.read_seq == post.seq - 1
    {
        // What it wrote itself it need not be shown.
        w.chat_member_put(&ChatMember { read_seq: post.seq, ..own }).await?;
    }
    let reached = if !channel.gated {
        wake_up(w, ctx, &post, &others, wakes, &mut skipped).await?
    } else if new.deliver {
        hand_out(w, ctx, &post, &others, wakes, &mut skipped).await?
    } else {
        Reached::default()
    };
    if let Some(member) = others.first().filter(|_| reached.woken > 0) {
        root_limits::last_hop(w, ctx, &by.party, &member.agent_id, chain).await?;
    }
    let event = NewEvent::new(
        EventKind::ChatMessage,
        json!({
            "seq": post.seq, "message_id": post.message_id, "from": shown_name(&post.from), "content": post.content,
            "mentions": post.mentioned().collect::<Vec<_>>(), "mentions_all": named.all, "reply_to": post.reply_to, "gated": channel.gated,
            "hop": post.hop, "delivered": reached.delivered, "woken": reached.woken, "waiting": reached.waiting,
            "skipped": skipped.len(), "via": by.via,
        }),
    )
    .channel(&channel.channel)
    .correlation(post.root_id);
    ctx.emit_at(
        w,
        post.ts,
        match by.party.agent() {
            Some(agent_id) => event.agent(agent_id),
            None => event,
        },
    )
    .await?;
    Ok(Posted { post, delivered: reached.delivered, woken: reached.woken, skipped, held: !handed_out })
}

/// The place of an agent among members in order of id.
fn place(members: &[ChatMember], agent_id: &AgentId) -> Option<usize> {
    members.binary_search_by(|member| member.agent_id.cmp(agent_id)).ok()
}

/// Whom a post names.
struct Named {
    /// Members, in order, without its author.
    names: Vec<AgentId>,
    /// Whether it names them all.
    all: bool,
}

/// Tells members from agents that are none, and both from nobody.
async fn addressed(
    w: &mut dyn Writes,
    by: &Speaker,
    channel: &ChatChannel,
    members: &[ChatMember],
    content: &str,
    nobody: Nobody,
) -> Result<(Named, Vec<Skipped>)> {
    let found = mentions(content);
    let others = found.names.into_iter().filter(|agent_id| by.party.agent() != Some(agent_id));
    let (names, strangers): (Vec<AgentId>, Vec<AgentId>) =
        others.partition(|agent_id| place(members, agent_id).is_some());
    let mut skipped = Vec::new();
    if !strangers.is_empty() {
        // One look at all that it names, which may be thousands, and at no others.
        let agents = w.agents_among(&strangers).await?;
        for agent_id in strangers {
            if agents.binary_search(&agent_id).is_err() {
                match nobody {
                    Nobody::Refused => return Err(nobody_there(&agent_id)),
                    Nobody::Text => continue,
                }
            }
            if skipped.len() < STRANGERS_MAX {
                let reason = format!("{agent_id} is no member of #{} and does not see the post", channel.channel);
                skipped.push(Skipped { agent_id, error_code: Code::NotFound, reason });
            }
        }
    }
    Ok((Named { names, all: found.all }, skipped))
}

/// The nearest agent is looked for when the command is over, see [`with_nearest`](crate::mail::with_nearest).
fn nobody_there(name: &AgentId) -> Refusal {
    let near = nearest(name.as_str(), [EVERYONE]);
    let suggestion = near.map(|near| format!("did you mean `@{near}`? ")).unwrap_or_default();
    Refusal::new(Code::InvalidArguments, format!("content mentions @{name}, and there is no agent of that id"))
        .hint(format!("{suggestion}write a name that is meant for nobody without the @, and code between backticks"))
        .details(json!({ "field": "content", "mention": name }))
}

/// How far a post went.
#[derive(Default)]
struct Reached {
    delivered: u32,
    woken: u32,
    /// Members with a wake-up for this channel that no turn has taken yet.
    waiting: u32,
}

/// Puts a wake-up into the inbox of whom `wakes` says, unless one waits there. The posts themselves are read by cursor when
/// the turn opens.
async fn wake_up(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    post: &ChatPost,
    others: &[ChatMember],
    wakes: impl Fn(&ChatMember) -> bool + Send,
    skipped: &mut Vec<Skipped>,
) -> Result<Reached> {
    let mut reached = Reached { delivered: count(others), ..Reached::default() };
    let (waiting, fresh): (Vec<&ChatMember>, Vec<&ChatMember>) =
        others.iter().filter(|member| wakes(member)).partition(|member| member.wake_id.is_some());
    reached.waiting = count(&waiting);
    let mut rooms = Rooms::look(w, ctx, fresh.iter().map(|member| &member.agent_id)).await?;
    for member in fresh {
        if let Some(full) = rooms.enter() {
            let reason = format!("{full}: {} is not woken, and sees the post in its next turn", member.agent_id);
            skipped.push(skipped_for(&member.agent_id, reason));
            reached.delivered -= 1;
            continue;
        }
        let envelope = envelope(ctx, post, &member.agent_id, String::new(), true);
        w.message_append(&envelope).await?;
        w.chat_member_put(&ChatMember { wake_id: Some(envelope.message_id), ..member.clone() }).await?;
        ctx.wake(w, &member.agent_id);
        reached.woken += 1;
    }
    Ok(reached)
}

/// Puts an operator's post itself into every inbox: no cursor leads to it, since gated posts are read on asking only.
async fn hand_out(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    post: &ChatPost,
    others: &[ChatMember],
    wakes: impl Fn(&ChatMember) -> bool + Send,
    skipped: &mut Vec<Skipped>,
) -> Result<Reached> {
    let mut reached = Reached::default();
    let mut rooms = Rooms::look(w, ctx, others.iter().map(|member| &member.agent_id)).await?;
    for member in others {
        if let Some(full) = rooms.enter() {
            skipped.push(skipped_for(&member.agent_id, format!("{full}: {} does not get the post", member.agent_id)));
            continue;
        }
        let wake = wakes(member);
        w.message_append(&envelope(ctx, post, &member.agent_id, post.content.clone(), wake)).await?;
        reached.delivered += 1;
        if wake {
            ctx.wake(w, &member.agent_id);
            reached.woken += 1;
        }
    }
    Ok(reached)
}

/// What still fits into inboxes, all looked at before the first of them changes.
struct Rooms {
    depths: std::vec::IntoIter<u32>,
    inbox_max: u32,
    /// How much mail the world still takes.
    world: u64,
}

impl Rooms {
    async fn look<'m>(
        w: &mut dyn Writes,
        ctx: &RuleContext,
        agents: impl Iterator<Item = &'m AgentId>,
    ) -> Result<Self> {
        let agents: Vec<AgentId> = agents.cloned().collect();
        let limits = ctx.limits();
        let (depths, world) = match agents.is_empty() {
            true => (Vec::new(), 0),
            false => {
                let waiting = w.inbox_total().await?;
                (w.inbox_depths(&agents).await?, u64::from(limits.world_mail_max).saturating_sub(waiting))
            }
        };
        Ok(Self { depths: depths.into_iter(), inbox_max: limits.inbox_max, world })
    }

    /// Takes a place in the next inbox, or says what is full.
    fn enter(&mut self) -> Option<String> {
        let depth = self.depths.next().unwrap_or(0);
        if depth >= self.inbox_max {
            return Some(format!("the inbox holds {depth} messages, which is its bound"));
        }
        if self.world == 0 {
            return Some("the world holds as much waiting mail as limits.world_mail_max allows".to_owned());
        }
        self.world -= 1;
        None
    }
}

fn skipped_for(agent_id: &AgentId, reason: String) -> Skipped {
    Skipped { agent_id: agent_id.clone(), error_code: Code::InboxFull, reason }
}

fn count<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

fn envelope(ctx: &RuleContext, post: &ChatPost, to: &AgentId, body: String, wake: bool) -> Envelope {
    Envelope {
        message_id: MessageId(ctx.id()),
        seq: 0,
        to: to.clone(),
        from: post.from.clone(),
        kind: Kind::Chat,
        subject: Some(format!("#{}", post.channel)),
        body,
        attachments: Vec::new(),
        ask_id: None,
        conversation_id: None,
        root_id: post.root_id,
        hop: post.hop,
        wake,
        created_at: post.ts,
        state: MailState::Pending,
        turn_id: None,
        crashes: 0,
    }
}
