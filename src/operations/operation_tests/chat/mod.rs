//! Tests of chat channels: membership, posts, wake-ups, digests in turns, and history.

mod channels;
mod posts;
mod random;
mod turns;

use super::operation_world::*;
use crate::chat::{ChannelView, Created, Posted};

fn name(channel: &str) -> ChannelName {
    channel.parse().unwrap()
}

/// The speaker of this name: an agent, or the operator if the name is empty.
fn speaker(who: &str) -> Speaker {
    if who.is_empty() { operator().into() } else { party(who).into() }
}

impl World {
    async fn open_channel(&self, by: &str, channel: &str, members: &[&str], gated: bool) -> Result<Created> {
        self.create(by, NewChannel { gated, ..new_channel(channel, members) }).await
    }

    async fn create(&self, by: &str, new: NewChannel) -> Result<Created> {
        let by = speaker(by);
        run!(self, |w| chat::create(w, &by, new))
    }

    async fn post_in(&self, by: &str, channel: &str, content: &str) -> Result<Posted> {
        self.post_with(by, ChatWake::Mentions, self.new_post(channel, content)).await
    }

    fn new_post(&self, channel: &str, content: &str) -> NewPost {
        NewPost {
            channel: name(channel),
            content: content.to_owned(),
            reply_to: None,
            deliver: false,
            chain: Chain::root(&self.ctx),
        }
    }

    async fn post_with(&self, by: &str, wake: ChatWake, new: NewPost) -> Result<Posted> {
        let by = speaker(by);
        match run!(self, |w| chat::post(w, &by, wake, new)) {
            Err(refusal) => Err(self.with_suggestion(refusal).await),
            posted => posted,
        }
    }

    async fn invite(&self, by: &str, channel: &str, agent: &str) -> Result<ChannelView> {
        let (by, channel, agent) = (speaker(by), name(channel), id(agent));
        run!(self, |w| chat::invite(w, &by, &channel, &agent))
    }

    async fn expel(&self, by: &str, channel: &str, agent: &str) -> Result<ChannelView> {
        let (by, channel, agent) = (speaker(by), name(channel), id(agent));
        run!(self, |w| chat::remove(w, &by, &channel, &agent))
    }

    async fn history(&self, by: &str, query: HistoryQuery) -> Result<Vec<i64>> {
        let party = speaker(by).party;
        let posts = self.store.read(move |r| chat::history(r, &party, &query)).await?;
        Ok(posts.into_iter().map(|post| post.seq).collect())
    }

    async fn member(&self, channel: &str, agent: &str) -> Option<ChatMember> {
        let (channel, agent) = (name(channel), id(agent));
        read!(self, |r| r.chat_member_get(&channel, &agent)?)
    }
}

fn names(members: &[AgentId]) -> Vec<&str> {
    members.iter().map(AgentId::as_str).collect()
}

fn codes(posted: &Posted) -> Vec<(&str, Code)> {
    posted.skipped.iter().map(|skipped| (skipped.agent_id.as_str(), skipped.error_code)).collect()
}

/// The texts of the digests, without wake-ups.
fn digests(mail: &[Envelope]) -> Vec<&str> {
    mail.iter()
        .filter(|envelope| envelope.kind == Kind::Chat && !envelope.is_chat_wake())
        .map(|envelope| envelope.body.as_str())
        .collect()
}
