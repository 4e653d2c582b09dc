//! The tools for chat channels: create, post, invite, remove, list, read
//! the history.

use ghost_domain::{ChannelName, ChatPost};
use ghost_operations::chat::{
    self as rules, ChannelView, HISTORY_DEFAULT, HistoryQuery, NewChannel, NewPost, Speaker, shown_name,
};

use super::common::*;

/// The largest history result, in bytes of JSON, so that the model gets it whole.
const HISTORY_BYTES: usize = 160 * 1024;
/// The largest number of members in one call. More members can be invited later.
const NAMES_MAX: usize = 10_000;

params! {
    pub(super) struct CreateParams {
        /// The name of the new channel, unique in this world: 1 to 64 of a-z, 0-9, '.', '_' and '-'.
        name: String,
        /// agent_ids of the members besides you.
        members: Vec<String>,
        /// Do not become a member yourself, for example as a moderator. You may still post, read, invite and remove.
        #[serde(default)]
        skip_creator: bool,
        /// Messages wake nobody: members read when they are asked to. Use it for three or more members.
        #[serde(default)]
        gated: bool,
        /// The topic of the channel, in one line.
        topic: Option<String>,
    }

    pub(super) struct SendParams {
        /// The channel to post in.
        channel: String,
        /// The text of the message. `@agent-id` wakes one member and `@all` wakes everyone, unless the channel is gated.
        content: String,
        /// seq of the message that this one answers.
        reply_to: Option<i64>,
    }

    pub(super) struct MemberParams {
        /// The name of the channel.
        channel: String,
        /// The agent to add or remove.
        agent_id: String,
    }

    pub(super) struct HistoryParams {
        /// The channel to read.
        channel: String,
        /// The largest number of messages, up to 500; 50 if absent.
        limit: Option<u32>,
        /// Only messages before this seq.
        before_seq: Option<i64>,
        /// Only messages after this seq, the oldest of them first.
        after_seq: Option<i64>,
    }
}

fn channel_name(text: &str) -> Result<ChannelName> {
    text.trim().trim_start_matches('#').parse()
}

fn view_json(view: &ChannelView) -> Value {
    let channel = &view.channel;
    let more = (channel.members as usize > view.members.len()).then_some(channel.members);
    without_nulls(json!({
        "channel": channel.channel, "members": view.members, "member_count": more, "gated": channel.gated,
        "creator": shown_name(&channel.creator), "topic": channel.topic, "last_seq": channel.last_seq,
    }))
}

fn post_json(post: &ChatPost) -> Value {
    let mentions: Vec<&str> = post.mentioned().collect();
    let mentions = (!mentions.is_empty()).then_some(mentions);
    without_nulls(json!({
        "seq": post.seq, "from": shown_name(&post.from), "content": post.content, "ts": post.ts.rfc3339(),
        "mentions": mentions, "reply_to": post.reply_to,
    }))
}

pub(super) fn create(call: &CallContext, params: CreateParams, w: &mut Tx) -> Result<Output> {
    if params.members.len() > NAMES_MAX {
        return Err(refusal!(InvalidArguments, "members may list {NAMES_MAX} agents at most")
            .hint("create the channel with some of them and invite the others"));
    }
    let members = agent_ids(w, &params.members)?;
    let new = NewChannel {
        channel: channel_name(&params.name)?,
        members,
        gated: params.gated,
        skip_creator: params.skip_creator,
        topic: params.topic,
    };
    let created = rules::create(w, &Speaker::from(call.party()), new)?;
    let mut content = view_json(&created.view);
    if let Some(advisory) = created.advisory {
        content["advisory"] = advisory.into();
    }
    Ok(content.into())
}

pub(super) fn send(call: &CallContext, params: SendParams, w: &mut Tx) -> Result<Output> {
    let new = NewPost {
        channel: channel_name(&params.channel)?,
        content: params.content,
        reply_to: params.reply_to,
        deliver: false,
        chain: call.chain(),
    };
    let wake = call.services.plan().chat_wake;
    let posted = rules::post(w, &Speaker::from(call.party()), wake, new)?;
    let skipped = posted.skipped.iter().map(
        |skipped| json!({ "agent_id": skipped.agent_id, "error_code": skipped.error_code, "reason": skipped.reason }),
    );
    let (skipped, all) = fitting(skipped, LIST_BYTES / 2);
    let content = json!({
        "message_id": posted.post.message_id, "seq": posted.post.seq, "delivered": posted.delivered,
        "woken": posted.woken, "skipped": skipped,
    });
    Ok(Output::cut(content, !all))
}

pub(super) fn invite(call: &CallContext, params: MemberParams, w: &mut Tx) -> Result<Output> {
    let (by, channel) = (Speaker::from(call.party()), channel_name(&params.channel)?);
    let member = agent_id(w, &params.agent_id)?;
    Ok(view_json(&rules::invite(w, &by, &channel, &member)?).into())
}

pub(super) fn remove(call: &CallContext, params: MemberParams, w: &mut Tx) -> Result<Output> {
    let (by, channel) = (Speaker::from(call.party()), channel_name(&params.channel)?);
    let member = agent_id(w, &params.agent_id)?;
    Ok(view_json(&rules::remove(w, &by, &channel, &member)?).into())
}

pub(super) async fn list(call: &CallContext, _: Nothing) -> Result<Output> {
    let own = call.caller.agent_id.clone();
    let views = call.services.store.read(move |r| rules::list(r, Some(&own))).await?;
    Ok(listed(views.iter().map(view_json)))
}

pub(super) async fn history(call: &CallContext, params: HistoryParams) -> Result<Output> {
    let query = HistoryQuery {
        channel: channel_name(&params.channel)?,
        limit: params.limit.unwrap_or(HISTORY_DEFAULT),
        before_seq: params.before_seq,
        after_seq: params.after_seq,
    };
    let forward = query.after_seq.is_some();
    let (reader, channel) = (call.party(), query.channel.clone());
    let posts = call.services.store.read(move |r| rules::history(r, &reader, &query)).await?;
    // If not all messages fit, the messages farthest from the start of the reading are dropped.
    let (messages, all) = if forward {
        fitting(posts.iter().map(post_json), HISTORY_BYTES)
    } else {
        let (mut rows, all) = fitting(posts.iter().rev().map(post_json), HISTORY_BYTES);
        rows.reverse();
        (rows, all)
    };
    let content = json!({ "channel": channel, "messages": messages });
    Ok(Output::cut(content, !all))
}
