//! Chat channels, their members and their chat messages. A chat message changes a row of every
//! member that it wakes. So the writer keeps in memory the members of a channel and the channels of
//! an agent.
//!
//! A member list must never stay in memory after an agent has joined or left the channel.

use std::sync::Arc;

use ghost_domain::{AgentId, ChannelName, ChatChannel, ChatMember, ChatPost, MessageId, RootId, Timestamp};

use crate::StoreError;
use crate::sqlite::row::{
    Args, Keyed, Row, Shape, SqliteRow, from_record, get, get_count, get_id, get_maybe_id, get_parsed, to_json,
    unreadable,
};
use crate::sqlite::session::Session;
use crate::sqlite::table_list::table_set;
use crate::sqlite::write_buffer::WriteBuffer;
use crate::tables::{ChatReads, ChatWrites, Result};

impl Row for ChatChannel {
    const TABLE: &'static str = "chat_channels";
    const SHAPE: Shape = Shape {
        head: "INSERT INTO chat_channels (channel, gated, last_seq, record) VALUES ",
        columns: 4,
        tail: " ON CONFLICT (channel) DO UPDATE SET gated = excluded.gated, last_seq = excluded.last_seq, \
               record = excluded.record",
    };

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.text(self.channel.as_str()).put(self.gated).int(self.last_seq).put(to_json(
            Self::TABLE,
            &self.channel,
            self,
        )?);
        Ok(())
    }
}

impl Keyed for ChatChannel {
    type Key = ChannelName;
    const SELECT: &'static str = "SELECT record FROM chat_channels WHERE channel = ?";

    fn key(&self) -> ChannelName {
        self.channel.clone()
    }

    fn bind_key(key: &ChannelName, args: &mut Args) {
        args.text(key.as_str());
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Row for ChatMember {
    const TABLE: &'static str = "chat_members";
    const SHAPE: Shape = Shape {
        head: "INSERT INTO chat_members (channel, agent_id, read_seq, wake_id, joined_at) VALUES ",
        columns: 5,
        tail: " ON CONFLICT (channel, agent_id) DO UPDATE SET read_seq = excluded.read_seq, \
               wake_id = excluded.wake_id, joined_at = excluded.joined_at",
    };

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.text(self.channel.as_str())
            .text(self.agent_id.as_str())
            .int(self.read_seq)
            .maybe_id(self.wake_id.map(|id| id.0))
            .int(self.joined_at.0);
        Ok(())
    }
}

impl Keyed for ChatMember {
    type Key = (ChannelName, AgentId);
    const SELECT: &'static str = "SELECT read_seq, wake_id, joined_at, channel, agent_id FROM chat_members \
                                  WHERE channel = ? AND agent_id = ?";

    fn key(&self) -> Self::Key {
        (self.channel.clone(), self.agent_id.clone())
    }

    fn bind_key(key: &Self::Key, args: &mut Args) {
        args.text(key.0.as_str()).text(key.1.as_str());
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        member(row, get_parsed(Self::TABLE, row, 3)?, get_parsed(Self::TABLE, row, 4)?)
    }
}

/// Decodes a membership. The first three columns are cursor, wake-up and join time.
fn member(row: &SqliteRow, channel: ChannelName, agent_id: AgentId) -> Result<ChatMember> {
    const TABLE: &str = ChatMember::TABLE;
    Ok(ChatMember {
        channel,
        agent_id,
        read_seq: get(TABLE, row, 0)?,
        wake_id: get_maybe_id(TABLE, row, 1)?.map(MessageId),
        joined_at: Timestamp(get(TABLE, row, 2)?),
    })
}

impl Row for ChatPost {
    const TABLE: &'static str = "chat_posts";
    const SHAPE: Shape = Shape {
        head: "INSERT INTO chat_posts (channel, seq, message_id, from_party, content, mentions, reply_to, root_id, hop, \
               ts) VALUES ",
        columns: 10,
        tail: "",
    };

    fn bind(&self, args: &mut Args) -> Result<()> {
        let mentions = match self.mentions.is_empty() {
            true => None,
            false => Some(to_json(Self::TABLE, self.seq, &self.mentions)?),
        };
        args.text(self.channel.as_str())
            .int(self.seq)
            .id(self.message_id.0)
            .put(self.from.to_string())
            .text(&self.content)
            .put(mentions)
            .put(self.reply_to)
            .id(self.root_id.0)
            .int(i64::from(self.hop))
            .int(self.ts.0);
        Ok(())
    }
}

/// Decodes a chat message of `channel`. The columns are those of [`ChatPost::SHAPE`] without the
/// channel.
fn post(row: &SqliteRow, channel: &ChannelName) -> Result<ChatPost> {
    const TABLE: &str = ChatPost::TABLE;
    let mentions: Option<&str> = get(TABLE, row, 4)?;
    let mentions = match mentions {
        Some(text) => serde_json::from_str(text).map_err(|error| unreadable(TABLE, text, error))?,
        None => Vec::new(),
    };
    Ok(ChatPost {
        channel: channel.clone(),
        seq: get(TABLE, row, 0)?,
        message_id: MessageId(get_id(TABLE, row, 1)?),
        from: get_parsed(TABLE, row, 2)?,
        content: get(TABLE, row, 3)?,
        mentions,
        reply_to: get(TABLE, row, 5)?,
        root_id: RootId(get_id(TABLE, row, 6)?),
        hop: get_count(TABLE, row, 7)?,
        ts: Timestamp(get(TABLE, row, 8)?),
    })
}

/// The members of a channel, if the list and all rows are in memory.
fn known_members(buffer: &WriteBuffer, channel: &ChannelName) -> Option<Vec<ChatMember>> {
    let member_ids = buffer.facts.channel_members.get(channel)?.as_ref()?;
    let row = |agent_id: &AgentId| buffer.tables.chat_members.get(&(channel.clone(), agent_id.clone())).cloned();
    member_ids.iter().map(row).collect()
}

/// The memberships of an agent, if the list and all rows are in memory.
fn known_memberships(buffer: &WriteBuffer, agent_id: &AgentId) -> Option<Vec<ChatMember>> {
    let channels = buffer.facts.agent_channels.get(agent_id)?.as_ref()?;
    let row = |channel: &ChannelName| buffer.tables.chat_members.get(&(channel.clone(), agent_id.clone())).cloned();
    channels.iter().map(row).collect()
}

impl Session {
    /// Caches memberships read from SQL and merges them with pending ones. Returns all for which
    /// `wanted` is true, in order. `found` must contain every such row in SQL.
    fn merge_pending_members(
        &mut self,
        found: Vec<ChatMember>,
        wanted: impl Fn(&ChatMember) -> bool + Send,
    ) -> Result<Vec<ChatMember>> {
        let in_savepoint = self.in_savepoint();
        // A delete is written to SQL at once. So a pending row can add or replace a row, but never
        // remove one.
        let table = &mut self.buffer_mut()?.tables.chat_members;
        found.iter().for_each(|member| table.cache_row(member.clone(), in_savepoint));
        Ok(table.merge(found, wanted))
    }

    /// The sequence of the last chat message in a channel; 0 if there is none.
    fn last_post(&mut self, channel: &ChannelName) -> Result<i64> {
        if let Some(last) = self.buffer_mut()?.facts.last_posts.get(channel) {
            return Ok(*last);
        }
        self.flush_before_read(table_set::CHAT_POSTS)?;
        let mut args = Args::default();
        args.text(channel.as_str());
        let row = self.row("SELECT ifnull(max(seq), 0) FROM chat_posts WHERE channel = ?", args)?;
        row.map_or(Ok(0), |row| get(ChatPost::TABLE, &row, 0))
    }

    /// Whether a channel has a chat message with this sequence.
    fn has_post(&mut self, channel: &ChannelName, seq: i64) -> Result<bool> {
        self.flush_before_read(table_set::CHAT_POSTS)?;
        let mut args = Args::default();
        args.text(channel.as_str()).int(seq);
        let row = self.row("SELECT seq FROM chat_posts WHERE channel = ? AND seq = ?", args)?;
        Ok(row.is_some())
    }

    /// Drops the member lists that changed because an agent may have joined or left a channel.
    fn forget_member_lists(&mut self, channel: &ChannelName, agent_id: &AgentId) -> Result<()> {
        let buffer = self.buffer_mut()?;
        buffer.facts.channel_members.put(channel.clone(), None);
        buffer.facts.agent_channels.put(agent_id.clone(), None);
        Ok(())
    }
}

impl ChatReads for Session {
    fn chat_channel_get(&mut self, channel: &ChannelName) -> Result<Option<ChatChannel>> {
        self.get(channel)
    }

    fn chat_channel_list(&mut self) -> Result<Vec<ChatChannel>> {
        self.list("SELECT record FROM chat_channels ORDER BY channel LIMIT 1000", Args::default())
    }

    fn chat_channel_count(&mut self) -> Result<u32> {
        self.flush_before_read(table_set::CHAT_CHANNELS)?;
        let row = self.row("SELECT count(*) FROM chat_channels", Args::default())?;
        row.map_or(Ok(0), |row| get_count(ChatChannel::TABLE, &row, 0))
    }

    fn chat_member_get(&mut self, channel: &ChannelName, agent_id: &AgentId) -> Result<Option<ChatMember>> {
        if let Some(Some(member_ids)) = self.buffer().and_then(|buffer| buffer.facts.channel_members.get(channel))
            && member_ids.binary_search(agent_id).is_err()
        {
            return Ok(None);
        }
        self.get(&(channel.clone(), agent_id.clone()))
    }

    fn chat_members(&mut self, channel: &ChannelName) -> Result<Vec<ChatMember>> {
        if let Some(known) = self.buffer().and_then(|buffer| known_members(buffer, channel)) {
            return Ok(known);
        }
        let mut args = Args::default();
        args.text(channel.as_str());
        let sql = "SELECT read_seq, wake_id, joined_at, agent_id FROM chat_members WHERE channel = ? ORDER BY agent_id";
        let rows = self.rows(sql, args)?;
        let read = |row: &SqliteRow| member(row, channel.clone(), get_parsed(ChatMember::TABLE, row, 3)?);
        let found = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        if self.buffer().is_none() {
            return Ok(found);
        }
        let found = self.merge_pending_members(found, |member| member.channel == *channel)?;
        let member_ids: Arc<[AgentId]> = found.iter().map(|member| member.agent_id.clone()).collect();
        self.buffer_mut()?.facts.channel_members.put(channel.clone(), Some(member_ids));
        Ok(found)
    }

    fn chat_memberships(&mut self, agent_id: &AgentId) -> Result<Vec<ChatMember>> {
        if let Some(known) = self.buffer().and_then(|buffer| known_memberships(buffer, agent_id)) {
            return Ok(known);
        }
        let mut args = Args::default();
        args.text(agent_id.as_str());
        let sql = "SELECT read_seq, wake_id, joined_at, channel FROM chat_members WHERE agent_id = ? ORDER BY channel";
        let rows = self.rows(sql, args)?;
        let read = |row: &SqliteRow| member(row, get_parsed(ChatMember::TABLE, row, 3)?, agent_id.clone());
        let found = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        if self.buffer().is_none() {
            return Ok(found);
        }
        let found = self.merge_pending_members(found, |member| member.agent_id == *agent_id)?;
        let channels: Arc<[ChannelName]> = found.iter().map(|member| member.channel.clone()).collect();
        self.buffer_mut()?.facts.agent_channels.put(agent_id.clone(), Some(channels));
        Ok(found)
    }

    fn chat_unread(&mut self, agent_id: &AgentId) -> Result<Vec<(ChatMember, ChatChannel)>> {
        if self.buffer().is_some() {
            let mut unread = Vec::new();
            for member in self.chat_memberships(agent_id)? {
                if let Some(channel) = self.chat_channel_get(&member.channel)?
                    && !channel.gated
                    && channel.last_seq > member.read_seq
                {
                    unread.push((member, channel));
                }
            }
            return Ok(unread);
        }
        let mut args = Args::default();
        args.text(agent_id.as_str());
        // CROSS JOIN fixes the order: first the agent's few memberships, then the channel of each.
        let sql = "SELECT m.read_seq, m.wake_id, m.joined_at, c.record FROM chat_members AS m \
                   CROSS JOIN chat_channels AS c WHERE m.agent_id = ? AND c.channel = m.channel AND c.gated = 0 \
                   AND c.last_seq > m.read_seq ORDER BY m.channel";
        let rows = self.rows(sql, args)?;
        rows.iter()
            .map(|row| {
                let text: &str = get(ChatChannel::TABLE, row, 3)?;
                let channel: ChatChannel =
                    serde_json::from_str(text).map_err(|error| unreadable(ChatChannel::TABLE, text, error))?;
                Ok((member(row, channel.channel.clone(), agent_id.clone())?, channel))
            })
            .collect()
    }

    fn chat_posts(&mut self, channel: &ChannelName, after: i64, before: i64, limit: u32) -> Result<Vec<ChatPost>> {
        self.flush_before_read(table_set::CHAT_POSTS)?;
        let before = if before == 0 { i64::MAX } else { before };
        let mut args = Args::default();
        args.text(channel.as_str()).int(after).int(before).int(i64::from(limit));
        let sql = "SELECT seq, message_id, from_party, content, mentions, reply_to, root_id, hop, ts FROM chat_posts \
                   WHERE channel = ? AND seq > ? AND seq < ? ORDER BY seq DESC LIMIT ?+0";
        let rows = self.rows(sql, args)?;
        rows.iter().rev().map(|row| post(row, channel)).collect()
    }
}

impl ChatWrites for Session {
    fn chat_channel_put(&mut self, channel: &ChatChannel) -> Result<()> {
        self.put(channel.clone())
    }

    fn chat_member_put(&mut self, member: &ChatMember) -> Result<()> {
        // If the row is in memory, the known member lists contain it already.
        if self.buffer_mut()?.tables.chat_members.get(&member.key()).is_none() {
            self.forget_member_lists(&member.channel, &member.agent_id)?;
        }
        self.put(member.clone())
    }

    fn chat_member_delete(&mut self, channel: &ChannelName, agent_id: &AgentId) -> Result<()> {
        let mut args = Args::default();
        args.text(channel.as_str()).text(agent_id.as_str());
        let sql = "DELETE FROM chat_members WHERE channel = ? AND agent_id = ?";
        self.execute_now(table_set::CHAT_MEMBERS, sql, args)?;
        self.forget_member_lists(channel, agent_id)?;
        self.buffer_mut()?.tables.chat_members.forget_row(&(channel.clone(), agent_id.clone()));
        Ok(())
    }

    fn chat_post_append(&mut self, post: &ChatPost) -> Result<()> {
        let last = self.last_post(&post.channel)?;
        if post.seq <= last && self.has_post(&post.channel, post.seq)? {
            return Err(StoreError::Row {
                table: ChatPost::TABLE,
                key: format!("{} {}", post.channel, post.seq),
                what: "a post of this sequence was appended before".to_owned(),
            });
        }
        let buffer = self.buffer_mut()?;
        buffer.facts.last_posts.put(post.channel.clone(), last.max(post.seq));
        buffer.tables.chat_posts.push(post.clone());
        Ok(())
    }
}
