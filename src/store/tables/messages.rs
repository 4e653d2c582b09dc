//! The `messages` table: durable inboxes.

use ghost_domain::{AgentId, Envelope, HeldSkill, MailState, MessageId, RootId, Timestamp, TurnId};

use crate::error::Result;

/// Result of [`MessageReads::inbox_state`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InboxState {
    /// Mail that is ready ([`MessageReads::inbox_ready`]). If it is empty, the other fields are not
    /// filled in.
    pub mail: Vec<Envelope>,
    /// Whether the agent's chat channels have unread messages.
    pub unread: bool,
    /// The skills that the agent holds, in order of name.
    pub skills: Vec<HeldSkill>,
}

/// Reads of mail.
pub trait MessageReads {
    /// The message with this id.
    fn message_get(&mut self, message_id: MessageId) -> Result<Option<Envelope>>;

    /// The state of a message, its turn, and how often its agent crashed on it.
    fn message_state(&mut self, message_id: MessageId) -> Result<Option<(MailState, Option<TurnId>, u32)>>;

    /// Number of pending messages in an inbox.
    fn inbox_depth(&mut self, agent_id: &AgentId) -> Result<u32>;

    /// Number of pending messages in each of these inboxes, in the given order. A fan-out needs
    /// only one query.
    fn inbox_depths(&mut self, agent_ids: &[AgentId]) -> Result<Vec<u32>>;

    /// Pending mail of an inbox, in order, at most `limit`.
    fn inbox_pending(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>>;

    /// Pending mail of an inbox that is ready, in order, at most `limit`. If a turn of the agent is
    /// parked because the budget of its root is spent, further mail of that root is not ready: it
    /// waits for that turn.
    fn inbox_ready(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>>;

    /// The data that an agent needs to open a turn: its ready mail, as
    /// [`MessageReads::inbox_ready`] returns it, and the other fields of [`InboxState`]. One query,
    /// because every turn begins with it.
    fn inbox_state(&mut self, agent_id: &AgentId, limit: u32) -> Result<InboxState>;

    /// Agents with ready mail that wakes, in order of id.
    fn inbox_waiting(&mut self) -> Result<Vec<AgentId>>;

    /// The given agents that have ready mail that wakes, in order of id. Reads no envelopes.
    fn inbox_waiting_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>>;

    /// Agents with ready mail of this root that wakes, in order of id. Reads no envelopes, so the
    /// size of the mail does not matter.
    fn inbox_waiting_of(&mut self, root_id: RootId) -> Result<Vec<AgentId>>;

    /// Number of pending messages in the world.
    fn inbox_total(&mut self) -> Result<u64>;

    /// The mail that a turn took, in order.
    fn messages_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Envelope>>;

    /// The newest mail of an agent in any state, newest first, at most `limit`.
    fn messages_recent(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>>;
}

/// Writes of mail.
pub trait MessageWrites {
    /// Appends a message to the inbox of its receiver. The store assigns `seq` and ignores the one
    /// in the envelope. Checks nothing.
    fn message_append(&mut self, envelope: &Envelope) -> Result<()>;

    /// Sets state and turn of messages and adds `add_crashes` to their crash counts. Besides these,
    /// only the wake flag ([`MessageWrites::message_rouse`]) and the time of the last reading
    /// ([`MessageWrites::message_read`]) of an envelope ever change. Ids that do not exist are ignored.
    fn message_mark(
        &mut self,
        message_ids: &[MessageId],
        state: MailState,
        turn_id: Option<TurnId>,
        add_crashes: u32,
    ) -> Result<()>;

    /// Sets the time at which a turn took messages.
    fn message_read(&mut self, message_ids: &[MessageId], at: Timestamp) -> Result<()>;

    /// Sets the crash count of messages to 0, for an operator who retries them.
    fn message_forgive(&mut self, message_ids: &[MessageId]) -> Result<()>;

    /// Sets the wake flag of quiet messages: either the heartbeat that they waited for was removed,
    /// or they must be tried alone.
    fn message_rouse(&mut self, message_ids: &[MessageId]) -> Result<()>;
}
