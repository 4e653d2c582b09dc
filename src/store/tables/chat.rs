//! Chat channels, their members and their chat messages. A chat message changes a row of every
//! member that it wakes. So the writer keeps in memory the members of a channel and the channels of
//! an agent.
//!
//! A member list must never stay in memory after an agent has joined or left the channel.

use ghost_domain::{AgentId, ChannelName, ChatChannel, ChatMember, ChatPost};

use super::prelude::*;

/// The count of channels.
const CHANNELS: &str = "chat_channels";

record! { channel: ChatChannel, "chat_channels"; key channel: ChannelName; gated, last_seq }

insert! {
    member: ChatMember, "chat_members",
    "ON CONFLICT (channel, agent_id) DO UPDATE SET read_seq = excluded.read_seq, wake_id = excluded.wake_id, joined_at = \
    excluded.joined_at";
    channel, agent_id, read_seq, wake_id, joined_at
}

impl Keyed for ChatMember {
    type Key = (ChannelName, AgentId);
    const SELECT: Sql = sql!(
        "SELECT read_seq, wake_id, joined_at, channel, agent_id FROM chat_members \
                                  WHERE channel = $1 AND agent_id = $2"
    );

    fn bind_key((channel, agent_id): &Self::Key, args: &mut Args) {
        (channel, agent_id).bind(args);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        member(row, get(Self::TABLE, row, 3)?, get(Self::TABLE, row, 4)?)
    }
}

/// Decodes a membership. The first three columns are cursor, wake-up and join time.
fn member(row: &ReadRow<'_>, channel: ChannelName, agent_id: AgentId) -> Result<ChatMember> {
    const TABLE: &str = ChatMember::TABLE;
    Ok(ChatMember {
        channel,
        agent_id,
        read_seq: get(TABLE, row, 0)?,
        wake_id: get(TABLE, row, 1)?,
        joined_at: get(TABLE, row, 2)?,
    })
}

insert! {
    post: ChatPost, "chat_posts";
    channel, seq, message_id, from_party = &post.from, content,
    mentions = match post.mentions.is_empty() {
        true => None,
        false => Some(to_json(Self::TABLE, post.seq, &post.mentions)?),
    },
    reply_to, root_id, hop, ts
}

/// Decodes a chat message of `channel`. The columns are those of its [`Row::WRITE`] without the
/// channel.
fn post(row: &ReadRow<'_>, channel: &ChannelName) -> Result<ChatPost> {
    const TABLE: &str = ChatPost::TABLE;
    let mentions = get::<Option<&str>>(TABLE, row, 4)?.map_or(Ok(Vec::new()), |text| from_json(TABLE, text))?;
    Ok(ChatPost {
        channel: channel.clone(),
        seq: get(TABLE, row, 0)?,
        message_id: get(TABLE, row, 1)?,
        from: get(TABLE, row, 2)?,
        content: get(TABLE, row, 3)?,
        mentions,
        reply_to: get(TABLE, row, 5)?,
        root_id: get(TABLE, row, 6)?,
        hop: get(TABLE, row, 7)?,
        ts: get(TABLE, row, 8)?,
    })
}

impl Tx {
    /// The channel with this name.
    pub fn chat_channel_get(&mut self, channel: &ChannelName) -> Result<Option<ChatChannel>> {
        self.get(channel)
    }

    /// All channels in order of name, at most 1,000.
    pub fn chat_channel_list(&mut self) -> Result<Vec<ChatChannel>> {
        self.list(sql!("SELECT record FROM chat_channels ORDER BY channel LIMIT 1000"), args![])
    }

    /// Number of channels.
    pub fn chat_channel_count(&mut self) -> Result<u32> {
        self.counted(CHANNELS)
    }

    /// The membership of an agent in a channel.
    pub fn chat_member_get(&mut self, channel: &ChannelName, agent_id: &AgentId) -> Result<Option<ChatMember>> {
        self.get(&(channel.clone(), agent_id.clone()))
    }

    /// All members of a channel, in order of id.
    pub fn chat_members(&mut self, channel: &ChannelName) -> Result<Vec<ChatMember>> {
        let sql = sql!(
            "SELECT read_seq, wake_id, joined_at, agent_id FROM chat_members WHERE channel = $1 ORDER BY agent_id"
        );
        let read = |row: &ReadRow<'_>| member(row, channel.clone(), get(ChatMember::TABLE, row, 3)?);
        self.rows(sql, args![channel], read)
    }

    /// All memberships of an agent, in order of channel.
    pub fn chat_memberships(&mut self, agent_id: &AgentId) -> Result<Vec<ChatMember>> {
        let sql =
            sql!("SELECT read_seq, wake_id, joined_at, channel FROM chat_members WHERE agent_id = $1 ORDER BY channel");
        let read = |row: &ReadRow<'_>| member(row, get(ChatMember::TABLE, row, 3)?, agent_id.clone());
        self.rows(sql, args![agent_id], read)
    }

    /// The ungated channels in which an agent has chat messages after its cursor, each with the
    /// agent's membership, in order of channel.
    pub fn chat_unread(&mut self, agent_id: &AgentId) -> Result<Vec<(ChatMember, ChatChannel)>> {
        // CROSS JOIN fixes the order: first the agent's few memberships, then the channel of each.
        let sql = sql!(
            "SELECT m.read_seq, m.wake_id, m.joined_at, c.record FROM chat_members AS m \
                   CROSS JOIN chat_channels AS c WHERE m.agent_id = $1 AND c.channel = m.channel AND c.gated = 0 \
                   AND c.last_seq > m.read_seq ORDER BY m.channel"
        );
        self.rows(sql, args![agent_id], |row| {
            let channel: ChatChannel = from_json(ChatChannel::TABLE, get(ChatChannel::TABLE, row, 3)?)?;
            Ok((member(row, channel.channel.clone(), agent_id.clone())?, channel))
        })
    }

    /// The newest chat messages of a channel with `after < seq < before`, at most `limit`, in order
    /// of sequence. A `before` of 0 means no upper bound.
    pub fn chat_posts(&mut self, channel: &ChannelName, after: i64, before: i64, limit: u32) -> Result<Vec<ChatPost>> {
        let before = if before == 0 { i64::MAX } else { before };
        let sql = sql!(
            "SELECT seq, message_id, from_party, content, mentions, reply_to, root_id, hop, ts FROM chat_posts \
                   WHERE channel = $1 AND seq > $2 AND seq < $3 ORDER BY seq DESC {limit $4}"
        );
        let mut posts = self.rows(sql, args![channel, after, before, limit], |row| post(row, channel))?;
        posts.reverse();
        Ok(posts)
    }

    /// Inserts or replaces a channel.
    pub fn chat_channel_put(&mut self, channel: &ChatChannel) -> Result<()> {
        let stored = sql!("SELECT 'chat_channels' FROM chat_channels WHERE channel = $1");
        self.put_counted(channel, &channel.channel, stored, Some(CHANNELS))
    }

    /// Inserts or replaces a membership.
    pub fn chat_member_put(&mut self, member: &ChatMember) -> Result<()> {
        self.put(member)
    }

    /// Removes a membership. Does nothing if it does not exist.
    pub fn chat_member_delete(&mut self, channel: &ChannelName, agent_id: &AgentId) -> Result<()> {
        let sql = sql!("DELETE FROM chat_members WHERE channel = $1 AND agent_id = $2");
        self.execute(sql, args![channel, agent_id]).map(drop)
    }

    /// Appends a chat message. The caller has taken its sequence from the channel.
    pub fn chat_post_append(&mut self, post: &ChatPost) -> Result<()> {
        self.put(post)
    }
}
