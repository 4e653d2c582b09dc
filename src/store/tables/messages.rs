//! The `messages` table: durable inboxes.

use async_trait::async_trait;
use ghost_domain::{AgentId, Envelope, HeldSkill, MailState, MessageId, RootId, TurnId};

use crate::error::Result;

/// See [`MessageReads::inbox_state`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InboxState {
    /// Its mail that is ready ([`MessageReads::inbox_ready`]). Without any, nothing else is looked at.
    pub mail: Vec<Envelope>,
    /// Whether its chat channels have something that it has not been shown.
    pub unread: bool,
    /// The skills that it holds, in order of name.
    pub skills: Vec<HeldSkill>,
}

/// Reading mail.
#[async_trait]
pub trait MessageReads {
    /// One piece of mail.
    async fn message_get(&mut self, message_id: MessageId) -> Result<Option<Envelope>>;

    /// How a piece of mail stands now: its state, its turn, and how often its agent crashed on it.
    async fn message_standing(&mut self, message_id: MessageId) -> Result<Option<(MailState, Option<TurnId>, u32)>>;

    /// How much pending mail an inbox holds.
    async fn inbox_depth(&mut self, agent_id: &AgentId) -> Result<u32>;

    /// How much pending mail each of these inboxes holds, in their order: one look for a fan-out.
    async fn inbox_depths(&mut self, agent_ids: &[AgentId]) -> Result<Vec<u32>>;

    /// Pending mail of an inbox in order, at most `limit`.
    async fn inbox_pending(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>>;

    /// Pending mail of an inbox that is ready, in order, at most `limit`. While a turn of the agent is aside, because the budget
    /// of its root is spent, further mail of that root is not ready: it waits for that turn.
    async fn inbox_ready(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>>;

    /// What an agent finds when it looks for work: its mail, as [`MessageReads::inbox_ready`] gives it, and what its turn
    /// over it needs besides. One query, because every turn begins with it.
    async fn inbox_state(&mut self, agent_id: &AgentId, limit: u32) -> Result<InboxState>;

    /// Agents that have mail that is ready and wakes, in order of id.
    async fn inbox_waiting(&mut self) -> Result<Vec<AgentId>>;

    /// Those among these agents that have mail that is ready and wakes, in order of id. None of it is read out.
    async fn inbox_waiting_among(&mut self, agent_ids: &[AgentId]) -> Result<Vec<AgentId>>;

    /// Agents that have mail of this root that is ready and wakes, in order of id. However much mail there is, none of it is
    /// read out.
    async fn inbox_waiting_of(&mut self, root_id: RootId) -> Result<Vec<AgentId>>;

    /// Pending mail in the whole world.
    async fn inbox_total(&mut self) -> Result<u64>;

    /// The mail that a turn took, in order.
    async fn messages_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Envelope>>;

    /// The newest mail of an agent whatever its state, newest first, at most `limit`.
    async fn messages_recent(&mut self, agent_id: &AgentId, limit: u32) -> Result<Vec<Envelope>>;
}

/// Writing mail.
#[async_trait]
pub trait MessageWrites {
    /// Appends mail to its receiver's inbox; the store gives `seq`, whatever the envelope says. No check is made here.
    async fn message_append(&mut self, envelope: &Envelope) -> Result<()>;

    /// Sets state, turn and crash count of mail; of the rest of an envelope only whether it wakes ever changes
    /// ([`MessageWrites::message_rouse`]). Ids that do not exist are passed over.
    async fn message_mark(
        &mut self,
        message_ids: &[MessageId],
        state: MailState,
        turn_id: Option<TurnId>,
        add_crashes: u32,
    ) -> Result<()>;

    /// Sets the crash count of mail to 0: an operator gives it a new chance.
    async fn message_forgive(&mut self, message_ids: &[MessageId]) -> Result<()>;

    /// Makes mail wake that was quiet: what it waited for will not come, or it must be tried alone.
    async fn message_rouse(&mut self, message_ids: &[MessageId]) -> Result<()>;
}
