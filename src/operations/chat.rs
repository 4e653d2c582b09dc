//! Chat channels: their members and their chat messages. A channel is one log. Each
//! member has a read cursor and at most one pending wake-up, so a busy channel fills no inbox.
//!
//! These rules must never read or write a row for each member where one query for all of them is
//! enough.

mod post;
mod read;

pub use ghost_domain::chat::TOPIC_MAX;
pub(crate) use post::post_last_text;
pub use post::{NewPost, Posted, post};
pub use read::{HISTORY_DEFAULT, HISTORY_MAX, HistoryQuery, Speaker, channel_named, history, shown_name};
pub(crate) use read::{ReadOn, read_on};

pub use crate::mail::Skipped;

use ghost_domain::chat::check_topic;

use crate::lookup::agent_for;
use crate::prelude::*;
use crate::root_limits;
use read::CROWD;

/// Maximum members that an answer about one channel lists.
pub const MEMBERS_SHOWN: usize = 1_000;
/// Maximum members that a list of channels shows for each channel.
pub const MEMBERS_LISTED: usize = 100;
/// Up to this number, agents are looked up one by one. For a larger number, the list of all agents
/// is read.
const LOOKUPS_MAX: usize = 32;

/// The parameters of a new channel.
#[derive(Clone, Debug)]
pub struct NewChannel {
    /// Name of the channel.
    pub channel: ChannelName,
    /// Its members. Duplicates are ignored.
    pub members: Vec<AgentId>,
    /// Whether the channel is gated: chat messages wake nobody.
    pub gated: bool,
    /// Whether the creating agent is no member.
    pub skip_creator: bool,
    /// Its topic.
    pub topic: Option<String>,
}

/// A channel with the first of its members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChannelView {
    /// The channel.
    pub channel: ChatChannel,
    /// Its members ordered by id, truncated to the number that an answer lists. `channel.members`
    /// is the full number.
    pub members: Vec<AgentId>,
}

/// The result of creating a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Created {
    /// The channel.
    pub view: ChannelView,
    /// A warning about an ungated channel with many members.
    pub advisory: Option<String>,
}

/// Creates a channel. Its name must be free and its members must exist. With `skip_creator`, the
/// creating agent must not be among them.
pub fn create(w: &mut Tx, by: &Speaker, new: NewChannel) -> Result<Created> {
    let limits = w.ctx.limits();
    if w.chat_channel_get(&new.channel)?.is_some() {
        return Err(refusal!(Conflict, "there is a channel `{}` already", new.channel)
            .hint("choose another name, or ask its creator to invite you"));
    }
    let topic = new.topic.as_deref().map(check_topic).transpose()?;
    let mut members: BTreeSet<AgentId> = new.members.into_iter().collect();
    if let Party::Agent(creator) = &by.party {
        if !new.skip_creator {
            members.insert(creator.clone());
        } else if members.contains(creator) {
            let what =
                format!("members names {creator}, who creates the channel and is to stay out of it (skip_creator)");
            return wrong_members(what, format!("leave {creator} out of members, or leave out skip_creator"));
        }
    }
    if members.is_empty() {
        return wrong_members("the channel would have no members".into(), "name at least one agent in members".into());
    }
    let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
    fits(w, &new.channel, count)?;
    let channels = w.chat_channel_count()?;
    let words = ("channels are in this world", "post in an existing channel");
    root_limits::room(w, "chat_channels_max", channels, limits.chat_channels_max, words)?;
    all_exist(w, by, &members)?;
    let channel = ChatChannel {
        channel: new.channel,
        creator: by.party.clone(),
        gated: new.gated,
        topic,
        members: count,
        last_seq: 0,
        created_at: w.ctx.now(),
    };
    w.chat_channel_put(&channel)?;
    for agent_id in &members {
        join(w, &channel, agent_id)?;
    }
    let members: Vec<AgentId> = members.into_iter().take(MEMBERS_SHOWN).collect();
    let facts = json!({
        "creator": shown_name(&channel.creator), "gated": channel.gated, "topic": channel.topic,
        "members": members, "member_count": count,
    });
    emit(w, EventKind::ChatCreated, &channel.channel, by, by.party.agent(), facts)?;
    let advisory = (!channel.gated && count >= CROWD).then(|| {
        format!(
            "#{} is ungated and has {count} members: a post can start turns of several of them at once, each unaware of \
             the others' answers. For a discussion, create it with `gated: true` and give the floor to one member at a \
             time; the skill moderator-open-mic shows how.",
            channel.channel
        )
    });
    Ok(Created { view: ChannelView { channel, members }, advisory })
}

fn wrong_members<T>(what: String, hint: String) -> Result<T> {
    Err(Refusal::new(Code::InvalidArguments, what).hint(hint).details(json!({ "field": "members" })))
}

/// Checks that a channel has room for `count` members.
fn fits(w: &Tx, channel: &ChannelName, count: u32) -> Result<()> {
    let limit = w.ctx.limits().chat_members_max;
    if count <= limit {
        return Ok(());
    }
    Err(refusal!(RateLimited, "#{channel} would have {count} members; limits.chat_members_max is {limit}")
        .hint("distribute them over several channels"))
}

fn all_exist(w: &mut Tx, by: &Speaker, members: &BTreeSet<AgentId>) -> Result<()> {
    if members.len() <= LOOKUPS_MAX {
        for agent_id in members {
            agent_for(w, by.reader(), agent_id)?;
        }
        return Ok(());
    }
    let agents = w.agent_list(false)?;
    let known: BTreeSet<&AgentId> = agents.iter().map(|agent| &agent.agent_id).collect();
    match members.iter().find(|agent_id| !known.contains(agent_id)) {
        Some(unknown) => agent_for(w, by.reader(), unknown).map(drop),
        None => Ok(()),
    }
}

/// Adds an agent. Its turns show chat messages from now on, and it may read earlier ones.
fn join(w: &mut Tx, channel: &ChatChannel, agent_id: &AgentId) -> Result<()> {
    let member = ChatMember {
        channel: channel.channel.clone(),
        agent_id: agent_id.clone(),
        read_seq: channel.last_seq,
        wake_id: None,
        joined_at: w.ctx.now(),
    };
    Ok(w.chat_member_put(&member)?)
}

/// Adds a member on behalf of the creator or an operator. An agent that is a member
/// already is not changed.
pub fn invite(w: &mut Tx, by: &Speaker, name: &ChannelName, agent_id: &AgentId) -> Result<ChannelView> {
    let mut channel = run_by(w, by, name, "invite")?;
    agent_for(w, by.reader(), agent_id)?;
    if w.chat_member_get(&channel.channel, agent_id)?.is_none() {
        let members = channel.members.saturating_add(1);
        fits(w, name, members)?;
        join(w, &channel, agent_id)?;
        channel.members = members;
        w.chat_channel_put(&channel)?;
        let facts = json!({ "agent_id": agent_id, "members": channel.members });
        emit(w, EventKind::ChatMemberAdded, &channel.channel, by, Some(agent_id), facts)?;
    }
    view(w, channel, MEMBERS_SHOWN)
}

/// Checks whether all of `joining` can be [invited](invite) after all of `leaving` have left.
/// Writes nothing. A caller that invites several agents checks this first, so that either all of
/// them are added or none.
pub(crate) fn has_room(
    w: &mut Tx,
    by: &Speaker,
    channel: &ChannelName,
    joining: &BTreeSet<AgentId>,
    leaving: &BTreeSet<AgentId>,
) -> Result<()> {
    let channel = run_by(w, by, channel, "invite")?;
    all_exist(w, by, joining)?;
    let (mut new, mut left) = (0_u32, channel.members);
    for agent_id in joining {
        new = new.saturating_add(u32::from(w.chat_member_get(&channel.channel, agent_id)?.is_none()));
    }
    for agent_id in leaving {
        left = left.saturating_sub(u32::from(w.chat_member_get(&channel.channel, agent_id)?.is_some()));
    }
    if new == 0 { Ok(()) } else { fits(w, &channel.channel, left.saturating_add(new)) }
}

/// Removes a member on behalf of the creator, an operator or itself. It loses all access.
pub fn remove(w: &mut Tx, by: &Speaker, name: &ChannelName, agent_id: &AgentId) -> Result<ChannelView> {
    let mut channel = match by.party.agent() {
        Some(own) if own == agent_id => channel_named(w, name)?,
        _ => run_by(w, by, name, "remove others")?,
    };
    let Some(member) = w.chat_member_get(&channel.channel, agent_id)? else {
        let members = w.chat_members(&channel.channel)?;
        let near = nearest(agent_id.as_str(), members.iter().map(|member| member.agent_id.as_str()));
        let what = format!("member of #{name}");
        return Err(not_among(&what, agent_id.as_str(), near, "the list of channels shows their members"));
    };
    leave(w, by, &mut channel, member, "removed")?;
    view(w, channel, MEMBERS_SHOWN)
}

/// Changes whether a channel is gated, and its topic, on behalf of its creator or an operator.
pub fn change(w: &mut Tx, by: &Speaker, channel: &ChannelName, gated: bool, topic: Option<&str>) -> Result<()> {
    let mut channel = run_by(w, by, channel, "change its settings")?;
    let topic = topic.map(check_topic).transpose()?;
    if channel.gated == gated && channel.topic == topic {
        return Ok(());
    }
    channel.gated = gated;
    channel.topic = topic;
    w.chat_channel_put(&channel)?;
    let facts = json!({ "gated": channel.gated, "topic": channel.topic });
    emit(w, EventKind::ChatChanged, &channel.channel, by, None, facts)
}

fn leave(w: &mut Tx, by: &Speaker, channel: &mut ChatChannel, member: ChatMember, reason: &str) -> Result<()> {
    // A pending wake-up for a channel that the agent may no longer read would open an empty turn.
    if let Some(wake_id) = member.wake_id
        && matches!(w.message_state(wake_id)?, Some((MailState::Pending, ..)))
    {
        w.message_mark(&[wake_id], MailState::Consumed, None, 0)?;
    }
    w.chat_member_delete(&channel.channel, &member.agent_id)?;
    channel.members = channel.members.saturating_sub(1);
    w.chat_channel_put(channel)?;
    let facts = json!({ "agent_id": member.agent_id, "members": channel.members, "reason": reason });
    emit(w, EventKind::ChatMemberRemoved, &channel.channel, by, Some(&member.agent_id), facts)
}

/// Removes a deleted agent from every channel. Channels that it created belong to the operators
/// from then on, so that a later agent with the same id does not inherit its rights.
pub(crate) fn leave_all(w: &mut Tx, by: &Party, agent_id: &AgentId) -> Result<()> {
    let by = Speaker::from(by.clone());
    for member in w.chat_memberships(agent_id)? {
        if let Some(mut channel) = w.chat_channel_get(&member.channel)? {
            leave(w, &by, &mut channel, member, "deleted")?;
        }
    }
    for mut channel in w.chat_channel_list()? {
        if channel.creator.agent() == Some(agent_id) {
            channel.creator = Party::System;
            w.chat_channel_put(&channel)?;
        }
    }
    Ok(())
}

/// The channel of this name, if its rules let `by` do `what` there: its creator and operators may.
fn run_by(r: &mut StoreTx, by: &Speaker, name: &ChannelName, what: &str) -> Result<ChatChannel> {
    let channel = channel_named(r, name)?;
    if channel.is_run_by(&by.party) {
        return Ok(channel);
    }
    let hint = match channel.creator.agent() {
        Some(creator) => format!("its creator {creator} may, and operators; ask {creator}"),
        None => "operators may".to_owned(),
    };
    Err(refusal!(AccessDenied, "{} may not {what} in #{name}", shown_name(&by.party)).hint(hint))
}

/// Lists channels ordered by name: all, or the channels that an agent is in or has created.
pub fn list(r: &mut StoreTx, of: Option<&AgentId>) -> Result<Vec<ChannelView>> {
    Ok(list_after(r, of, "", usize::MAX)?.0)
}

/// Like [`list`], at most `limit` channels whose names come after `after`. Also returns whether
/// more follow. Members are read only for these channels.
pub fn list_after(
    r: &mut StoreTx,
    of: Option<&AgentId>,
    after: &str,
    limit: usize,
) -> Result<(Vec<ChannelView>, bool)> {
    let mut channels = r.chat_channel_list()?;
    if let Some(agent_id) = of {
        let joined: BTreeSet<ChannelName> =
            r.chat_memberships(agent_id)?.into_iter().map(|member| member.channel).collect();
        channels.retain(|channel| joined.contains(&channel.channel) || channel.creator.agent() == Some(agent_id));
    }
    channels.retain(|channel| channel.channel.as_str() > after);
    let more = channels.len() > limit;
    channels.truncate(limit);
    let mut views = Vec::with_capacity(channels.len());
    for channel in channels {
        views.push(view(r, channel, MEMBERS_LISTED)?);
    }
    Ok((views, more))
}

fn view(r: &mut StoreTx, channel: ChatChannel, limit: usize) -> Result<ChannelView> {
    let members = r.chat_members(&channel.channel)?;
    let members = members.into_iter().take(limit).map(|member| member.agent_id).collect();
    Ok(ChannelView { channel, members })
}

fn emit(
    w: &mut Tx,
    kind: EventKind,
    channel: &ChannelName,
    by: &Speaker,
    about: Option<&AgentId>,
    mut facts: Value,
) -> Result<()> {
    facts["by"] = by.party.to_string().into();
    if let Some(via) = &by.via {
        facts["via"] = via.to_string().into();
    }
    w.emit(NewEvent { agent_id: about.cloned(), ..NewEvent::new(kind, facts).channel(channel) })
}
