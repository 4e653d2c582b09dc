//! The `Chat` service.

use ghost_domain::{AgentId, ChannelName};
use ghost_operations::Tx;
use ghost_operations::chat::{self as rules, HISTORY_DEFAULT, HISTORY_MAX, HistoryQuery, NewChannel, NewPost};
use ghost_operations::mail::Chain;
use ghost_proto::v1;

use crate::act_as::Acting;
use crate::control::Control;
use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// Largest number of members that one request may name.
const NAMES_MAX: usize = 10_000;

fn new_channel(request: &v1::CreateChannelRequest) -> Result<NewChannel> {
    Ok(NewChannel {
        channel: input::parsed("channel", &request.channel)?,
        members: input::parsed_all("members", &request.members, NAMES_MAX)?,
        gated: request.gated,
        skip_creator: request.skip_creator,
        topic: input::line_if("topic", request.topic.as_deref(), rules::TOPIC_MAX)?,
    })
}

fn new_post(cx: &Control, request: v1::PostRequest) -> Result<NewPost> {
    Ok(NewPost {
        channel: input::parsed("channel", &request.channel)?,
        content: request.content,
        reply_to: request.reply_to,
        deliver: request.deliver,
        chain: Chain::root(cx.world.ctx()),
    })
}

/// Changes the members of a channel by a rule, as the caller or as the agent in `as_agent` with this tool.
async fn change_member(
    cx: Mutation,
    (channel, agent_id, as_agent): (&str, &str, Option<&str>),
    tool: &'static str,
    rule: fn(&mut Tx, &rules::Speaker, &ChannelName, &AgentId) -> Result<rules::ChannelView>,
) -> Result<v1::Channel> {
    let channel = input::parsed("channel", channel)?;
    let agent_id = input::parsed("agent_id", agent_id)?;
    let acting = Acting::read(&cx, as_agent)?;
    let changed = cx.once(move |w, by| {
        let by = acting.speaker(w, by, tool)?;
        rule(w, &by, &channel, &agent_id)
    });
    Ok(convert::channel(&changed.await?, cx.redactor()))
}

pub(crate) async fn list(cx: Query, request: v1::ListChannelsRequest) -> Result<v1::ListChannelsResponse> {
    let member = queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?;
    let store = cx.world.store();
    let after = input::unseal("channels", &request.cursor)?.to_owned();
    let limit = input::page(request.limit);
    let (views, more) = store.read(move |r| rules::list_after(r, member.as_ref(), &after, limit)).await?;
    let redactor = cx.redactor();
    let rows = views.iter().map(|view| convert::channel(view, redactor));
    let (channels, next_cursor) = queries::sealed("channels", rows, more, |last| &last.channel);
    Ok(v1::ListChannelsResponse { channels, next_cursor })
}

pub(crate) async fn history(cx: Query, request: v1::HistoryRequest) -> Result<v1::HistoryResponse> {
    let by = cx.by.clone();
    let acting = Acting::read(&cx, request.as_agent.as_deref())?;
    let query = HistoryQuery {
        channel: input::parsed("channel", &request.channel)?,
        limit: if request.limit == 0 { HISTORY_DEFAULT } else { request.limit.min(HISTORY_MAX) },
        before_seq: request.before_seq,
        after_seq: request.after_seq,
    };
    let forward = query.after_seq.is_some();
    let mut posts = cx
        .world
        .read(move |r| {
            let tool = "syscall.chat.history";
            let reader = acting.speaker(r, &by, tool)?;
            rules::history(r, &reader.party, &query)
        })
        .await?;
    // Chat messages that do not fit are omitted at the end of the reading direction.
    if !forward {
        posts.reverse();
    }
    let rows = posts.iter().map(|post| convert::chat_message(post, cx.redactor()));
    let (mut messages, cut) = queries::within_bytes(rows, false);
    if !forward {
        messages.reverse();
    }
    Ok(v1::HistoryResponse { messages, cut })
}

pub(crate) async fn create(cx: Mutation, request: v1::CreateChannelRequest) -> Result<v1::CreateChannelResponse> {
    let acting = Acting::read(&cx, request.as_agent.as_deref())?;
    let new = new_channel(&request)?;
    let created = cx
        .once(move |w, by| {
            let by = acting.speaker(w, by, "syscall.chat.create")?;
            rules::create(w, &by, new)
        })
        .await?;
    Ok(convert::created_channel(created, cx.redactor()))
}

pub(crate) async fn post(cx: Mutation, request: v1::PostRequest) -> Result<v1::PostResponse> {
    let acting = Acting::read(&cx, request.as_agent.as_deref())?;
    let new = new_post(&cx, request)?;
    let chat_wake = cx.world.plan().chat_wake;
    let posted = cx
        .once(move |w, by| {
            let by = acting.speaker(w, by, "syscall.chat.send")?;
            rules::post(w, &by, chat_wake, new)
        })
        .await?;
    Ok(convert::posted(&posted, cx.redactor()))
}

pub(crate) async fn invite(cx: Mutation, request: v1::InviteRequest) -> Result<v1::Channel> {
    let v1::InviteRequest { channel, agent_id, as_agent, .. } = &request;
    change_member(cx, (channel, agent_id, as_agent.as_deref()), "syscall.chat.invite", rules::invite).await
}

pub(crate) async fn remove(cx: Mutation, request: v1::RemoveMemberRequest) -> Result<v1::Channel> {
    let v1::RemoveMemberRequest { channel, agent_id, as_agent, .. } = &request;
    change_member(cx, (channel, agent_id, as_agent.as_deref()), "syscall.chat.remove", rules::remove).await
}
