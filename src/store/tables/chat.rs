//! The `chat_channels`, `chat_members` and `chat_posts` tables.

use ghost_domain::{AgentId, ChannelName, ChatChannel, ChatMember, ChatPost};

use crate::error::Result;

/// Reads of chat.
pub trait ChatReads {
    /// The channel with this name.
    fn chat_channel_get(&mut self, channel: &ChannelName) -> Result<Option<ChatChannel>>;

    /// All channels in order of name, at most 1,000.
    fn chat_channel_list(&mut self) -> Result<Vec<ChatChannel>>;

    /// Number of channels.
    fn chat_channel_count(&mut self) -> Result<u32>;

    /// The membership of an agent in a channel.
    fn chat_member_get(&mut self, channel: &ChannelName, agent_id: &AgentId) -> Result<Option<ChatMember>>;

    /// All members of a channel, in order of id.
    fn chat_members(&mut self, channel: &ChannelName) -> Result<Vec<ChatMember>>;

    /// All memberships of an agent, in order of channel.
    fn chat_memberships(&mut self, agent_id: &AgentId) -> Result<Vec<ChatMember>>;

    /// The ungated channels in which an agent has chat messages after its cursor, each with the
    /// agent's membership, in order of channel.
    fn chat_unread(&mut self, agent_id: &AgentId) -> Result<Vec<(ChatMember, ChatChannel)>>;

    /// The newest chat messages of a channel with `after < seq < before`, at most `limit`, in order
    /// of sequence. A `before` of 0 means no upper bound.
    fn chat_posts(&mut self, channel: &ChannelName, after: i64, before: i64, limit: u32) -> Result<Vec<ChatPost>>;
}

/// Writes of chat.
pub trait ChatWrites {
    /// Inserts or replaces a channel.
    fn chat_channel_put(&mut self, channel: &ChatChannel) -> Result<()>;

    /// Inserts or replaces a membership.
    fn chat_member_put(&mut self, member: &ChatMember) -> Result<()>;

    /// Removes a membership. Does nothing if it does not exist.
    fn chat_member_delete(&mut self, channel: &ChannelName, agent_id: &AgentId) -> Result<()>;

    /// Appends a chat message. The caller has taken its sequence from the channel.
    fn chat_post_append(&mut self, post: &ChatPost) -> Result<()>;
}
