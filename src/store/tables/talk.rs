//! Chat channels, their members and their chat messages; conversations with people and programs outside the world, and their
//! entries.

use ghost_domain::{
    AgentId, ChannelName, ChatChannel, ChatMember, ChatPost, Conversation, ConversationEntry, ConversationId, Delivery,
    Timestamp, TurnId,
};

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
    Ok(fields!(TABLE, row, 0, ChatMember { read_seq, wake_id, joined_at; channel: channel, agent_id: agent_id }))
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

/// Decodes a chat message of `channel`.
fn post(row: &ReadRow<'_>, channel: &ChannelName) -> Result<ChatPost> {
    const TABLE: &str = ChatPost::TABLE;
    let mentions = get::<Option<&str>>(TABLE, row, 8)?.map_or(Ok(Vec::new()), |text| from_json(TABLE, text))?;
    Ok(fields!(TABLE, row, 0, ChatPost {
        seq, message_id, from, content, reply_to, root_id, hop, ts; mentions: mentions, channel: channel.clone()
    }))
}

functions! {
    /// The channel with this name.
    get chat_channel_get(channel: &ChannelName) -> Option<ChatChannel>: channel;
    /// The membership of an agent in a channel.
    get chat_member_get(channel: &ChannelName, agent_id: &AgentId) -> Option<ChatMember>:
        &(channel.clone(), agent_id.clone());
    /// All channels in order of name, at most 1,000.
    list chat_channel_list() -> Vec<ChatChannel>: "SELECT record FROM chat_channels ORDER BY channel LIMIT 1000";
    /// Inserts or replaces a channel.
    put_counted chat_channel_put(channel: &ChatChannel) -> (): &channel.channel,
        "SELECT 'chat_channels' FROM chat_channels WHERE channel = $1", Some(CHANNELS);
    /// Number of channels.
    counted chat_channel_count() -> u32: CHANNELS;
    /// Inserts or replaces a membership.
    put chat_member_put(member: &ChatMember) -> (): member;
    /// Appends a chat message. The caller has taken its sequence from the channel.
    put chat_post_append(post: &ChatPost) -> (): post;
    /// Removes a membership. Does nothing if it does not exist.
    change chat_member_delete(channel: &ChannelName, agent_id: &AgentId) -> ():
        "DELETE FROM chat_members WHERE channel = $1 AND agent_id = $2";
}

impl Tx {
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
            "SELECT seq, message_id, from_party, content, reply_to, root_id, hop, ts, mentions FROM chat_posts \
                   WHERE channel = $1 AND seq > $2 AND seq < $3 ORDER BY seq DESC {limit $4}"
        );
        let mut posts = self.rows(sql, args![channel, after, before, limit], |row| post(row, channel))?;
        posts.reverse();
        Ok(posts)
    }
}

/// The count of conversations.
pub(super) const CONVERSATIONS: &str = "conversations";

record! {
    conversation: Conversation, "conversations"; key conversation_id: ConversationId;
    adapter, thread, owner, updated_at
}

record! {
    entry: ConversationEntry, "conversation_entries"; key conversation_id: ConversationId, seq: i64;
    turn_id, message_id, delivery,
    // A waiting entry without a due time is due from the time it was written.
    next_at = (entry.delivery == Delivery::Pending).then(|| entry.next_at.unwrap_or(entry.at)),
    at
}

/// One page of the list of conversations, latest activity first.
pub(super) fn conversations(
    owner: Option<&AgentId>,
    after: Option<(Timestamp, ConversationId)>,
    limit: u32,
) -> (Statement, Args) {
    Conditions::new("SELECT record FROM conversations")
        .when(owner, "owner = $1")
        .when(after, "(updated_at, conversation_id) < ($1, $2)")
        .order("updated_at DESC, conversation_id DESC", list_limit(limit))
}

functions! {
    /// Conversations with the latest activity first (then by id, highest first); only those of this
    /// owner, if given.
    page conversation_list(owner: Option<&AgentId>, after: Option<(Timestamp, ConversationId)>, limit: u32)
        -> Vec<Conversation>: conversations(owner, after, limit);
    /// The conversation with this id.
    get conversation_get(conversation_id: ConversationId) -> Option<Conversation>: &conversation_id;
    /// The conversation with this adapter and thread name.
    first conversation_find(adapter: &str, thread: &str) -> Option<Conversation>:
        "SELECT record FROM conversations WHERE adapter = $1 AND thread = $2";
    /// Inserts or replaces a conversation.
    put_counted conversation_put(conversation: &Conversation) -> (): &conversation.conversation_id,
        "SELECT 'conversations' FROM conversations WHERE conversation_id = $1", Some(CONVERSATIONS);
    /// Number of conversations.
    counted conversation_count() -> u32: CONVERSATIONS;
    /// Entries of a conversation after the sequence `after`, in order, at most `limit`.
    list conversation_entries(conversation_id: ConversationId, after: i64, limit: u32) -> Vec<ConversationEntry>:
        "SELECT record FROM conversation_entries WHERE conversation_id = $1 AND seq > $2 ORDER BY seq {limit $3}";
    /// Entries that a turn wrote, in order of conversation and sequence.
    list conversation_entries_of_turn(turn_id: TurnId) -> Vec<ConversationEntry>:
        "SELECT record FROM conversation_entries WHERE turn_id = $1 ORDER BY conversation_id, seq";
    /// Inserts or replaces an entry. The caller has taken its sequence from the conversation.
    put conversation_entry_put(entry: &ConversationEntry) -> (): entry;
}

impl Tx {
    /// Entries that wait for delivery and are due at `now`, in order of due time (then conversation
    /// and sequence), at most `limit`. Conversations of the adapters in `passing` are omitted. A
    /// waiting entry without a due time is due from the time it was written.
    pub fn deliveries_due(&mut self, now: Timestamp, passing: &[String], limit: u32) -> Result<Vec<ConversationEntry>> {
        if passing.is_empty() {
            let sql = sql!(
                "SELECT record FROM conversation_entries WHERE delivery = 'pending' AND next_at <= $1 \
                       ORDER BY next_at, conversation_id, seq {limit $2}"
            );
            return self.list(sql, args![now, limit]);
        }
        let sql = sql!(
            "SELECT record FROM conversation_entries AS e WHERE delivery = 'pending' AND next_at <= $1 \
                   AND NOT EXISTS (SELECT 1 FROM conversations AS c WHERE c.conversation_id = e.conversation_id \
                   AND c.adapter {in $2}) \
                   ORDER BY next_at, conversation_id, seq {limit $3}"
        );
        self.list(sql, args![now, to_json(Conversation::TABLE, "passing", &passing)?, limit])
    }

    /// When the next waiting entry is due; `None` if no entry waits.
    pub fn delivery_next_at(&mut self) -> Result<Option<Timestamp>> {
        let sql = sql!("SELECT min(next_at) FROM conversation_entries WHERE delivery = 'pending'");
        Ok(self.row(sql, args![], |row| get(ConversationEntry::TABLE, row, 0))?.flatten())
    }
}
