//! Chat channels: one log per channel, read by cursor (CHAT-01..15, DESIGN.md section 2 "Chat").

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;
use crate::ids::{AgentId, ChannelName, MessageId, RootId};
use crate::party::Party;
use crate::time::Timestamp;

text_enum! {
    /// Whom a post in an ungated channel wakes (CHAT-11). Members of a channel of two are always woken.
    ChatWake, "chat wake rule" {
        /// Every other member.
        All = "all",
        /// Those whom the post names with `@id`.
        Mentions = "mentions",
        /// Nobody: posts wait for the next turn.
        None = "none",
    }
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatChannel {
    /// Its name, unique in the world.
    pub channel: ChannelName,
    /// Who created it, and alone may invite and remove (CHAT-07).
    pub creator: Party,
    /// Whether posts are stored and streamed only, and wake nobody (CHAT-04).
    pub gated: bool,
    /// What it is about.
    pub topic: Option<String>,
    /// How many members it has.
    pub members: u32,
    /// The sequence of its last post; 0 before the first. Never falls, whatever is pruned.
    pub last_seq: i64,
    /// When it was created.
    pub created_at: Timestamp,
}

/// One agent in one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatMember {
    /// The channel.
    pub channel: ChannelName,
    /// The member.
    pub agent_id: AgentId,
    /// The last post that the member was shown, or that was there when it joined.
    pub read_seq: i64,
    /// The mail that is to wake the member for this channel and that no turn has taken yet: one at most (CHAT-03).
    pub wake_id: Option<MessageId>,
    /// When it joined.
    pub joined_at: Timestamp,
}

/// One post.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatPost {
    /// The channel.
    pub channel: ChannelName,
    /// Its place there: rises by one from post to post, without a gap (CHAT-12).
    pub seq: i64,
    /// Its id.
    pub message_id: MessageId,
    /// Who wrote it.
    pub from: Party,
    /// The text, as written.
    pub content: String,
    /// Members whom it names, in order of id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mentions: Vec<AgentId>,
    /// The post that it answers.
    pub reply_to: Option<i64>,
    /// What it is charged to.
    pub root_id: RootId,
    /// How many turns lie between the root and it.
    pub hop: u32,
    /// When it was committed.
    pub ts: Timestamp,
}
