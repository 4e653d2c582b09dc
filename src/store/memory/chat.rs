//! Chat channels, their members and their chat messages.

use std::ops::Bound;
use std::sync::Arc;

use ghost_domain::{AgentId, ChannelName, ChatChannel, ChatMember, ChatPost, Timestamp};

use super::session::{LIST_MAX, Session, bound, count};
use super::tables::{Pair, Tables};
use crate::StoreError;
use crate::tables::{ChatReads, ChatWrites, Result};

/// The start of the range of pairs whose first name is `name`.
fn first_of(name: Arc<str>) -> Pair {
    (name, Arc::from(""))
}

impl Tables {
    /// Memberships of an agent in order of channel.
    fn memberships<'a>(&'a self, agent_id: &'a AgentId) -> impl Iterator<Item = &'a ChatMember> {
        self.chat_members_by_agent
            .range(first_of(agent_id.shared())..)
            .take_while(|((member, _), ())| **member == *agent_id.as_str())
            .filter_map(|((member, channel), ())| self.chat_members.get(&(channel.clone(), member.clone())))
    }

    /// Deletes old chat messages. In each channel only the oldest messages are deleted, so that the
    /// rest has no gap even if the clock went backwards.
    pub(super) fn prune_chat_posts(&mut self, before: Timestamp, limit: usize) -> usize {
        let mut cut_up_to = None;
        let old: Vec<(ChannelName, i64)> = self
            .chat_posts
            .iter()
            .filter(|((channel, _), post)| {
                if post.ts >= before {
                    cut_up_to = Some(channel);
                }
                cut_up_to != Some(channel)
            })
            .take(limit)
            .map(|(key, _)| key.clone())
            .collect();
        old.iter().filter(|key| self.chat_posts.remove(key)).count()
    }
}

impl ChatReads for Session<'_> {
    fn chat_channel_get(&mut self, channel: &ChannelName) -> Result<Option<ChatChannel>> {
        Ok(self.tables.chat_channels.get(channel).cloned())
    }

    fn chat_channel_list(&mut self) -> Result<Vec<ChatChannel>> {
        Ok(self.tables.chat_channels.values().take(LIST_MAX).cloned().collect())
    }

    fn chat_channel_count(&mut self) -> Result<u32> {
        Ok(count(self.tables.chat_channels.iter().len()))
    }

    fn chat_member_get(&mut self, channel: &ChannelName, agent_id: &AgentId) -> Result<Option<ChatMember>> {
        Ok(self.tables.chat_members.get(&(channel.shared(), agent_id.shared())).cloned())
    }

    fn chat_members(&mut self, channel: &ChannelName) -> Result<Vec<ChatMember>> {
        Ok(self
            .tables
            .chat_members
            .range(first_of(channel.shared())..)
            .take_while(|((of, _), _)| **of == *channel.as_str())
            .map(|(_, member)| member.clone())
            .collect())
    }

    fn chat_memberships(&mut self, agent_id: &AgentId) -> Result<Vec<ChatMember>> {
        Ok(self.tables.memberships(agent_id).cloned().collect())
    }

    fn chat_unread(&mut self, agent_id: &AgentId) -> Result<Vec<(ChatMember, ChatChannel)>> {
        Ok(self
            .tables
            .memberships(agent_id)
            .filter_map(|member| Some((member, self.tables.chat_channels.get(&member.channel)?)))
            .filter(|(member, channel)| !channel.gated && channel.last_seq > member.read_seq)
            .map(|(member, channel)| (member.clone(), channel.clone()))
            .collect())
    }

    fn chat_posts(&mut self, channel: &ChannelName, after: i64, before: i64, limit: u32) -> Result<Vec<ChatPost>> {
        let to = if before == 0 { i64::MAX } else { before.saturating_sub(1) };
        if after >= to {
            return Ok(Vec::new());
        }
        let from = Bound::Excluded((channel.clone(), after));
        let posts = self.tables.chat_posts.range((from, Bound::Included((channel.clone(), to))));
        let mut newest: Vec<ChatPost> = posts.rev().take(bound(limit)).map(|(_, post)| post.clone()).collect();
        newest.reverse();
        Ok(newest)
    }
}

impl ChatWrites for Session<'_> {
    fn chat_channel_put(&mut self, channel: &ChatChannel) -> Result<()> {
        self.tables.chat_channels.put(channel.channel.clone(), channel.clone());
        Ok(())
    }

    fn chat_member_put(&mut self, member: &ChatMember) -> Result<()> {
        let (channel, agent_id) = (member.channel.shared(), member.agent_id.shared());
        self.tables.chat_members_by_agent.put((agent_id.clone(), channel.clone()), ());
        self.tables.chat_members.put((channel, agent_id), member.clone());
        Ok(())
    }

    fn chat_member_delete(&mut self, channel: &ChannelName, agent_id: &AgentId) -> Result<()> {
        let (channel, agent_id) = (channel.shared(), agent_id.shared());
        self.tables.chat_members_by_agent.remove(&(agent_id.clone(), channel.clone()));
        self.tables.chat_members.remove(&(channel, agent_id));
        Ok(())
    }

    fn chat_post_append(&mut self, post: &ChatPost) -> Result<()> {
        let key = (post.channel.clone(), post.seq);
        if self.tables.chat_posts.contains(&key) {
            return Err(StoreError::Row {
                table: "chat_posts",
                key: format!("{} {}", post.channel, post.seq),
                what: "a post of this sequence was appended before".to_owned(),
            });
        }
        self.tables.chat_posts.put(key, post.clone());
        Ok(())
    }
}
