//! Mail: the messages in an agent's inbox and their kinds, which of them one turn takes, and the letters that crashed
//! their agent too often. `docs/design.md` has a table of the kinds, and says which mail shares a turn.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::conversation::ChannelContext;
use crate::ids::{AgentId, AskId, ConversationId, DeadLetterId, MessageId, RootId, TurnId};
use crate::macros::{record, text_enum};
use crate::party::Party;
use crate::time::Timestamp;

text_enum! {
    /// The kind of a message in an inbox. It decides whether the message merges with other mail and
    /// whether it expects a reply.
    Kind, "kind of mail" {
        /// An ask: the asker waits for the turn's last text.
        Ask = "ask",
        /// A message from outside. The turn's last text goes to its conversation.
        Conversation = "conversation",
        /// A message from one party to one agent. No reply is expected.
        Message = "message",
        /// A message from one agent to all others.
        Broadcast = "broadcast",
        /// A task was assigned or changed.
        Task = "task",
        /// A conversation was handed over to the agent.
        Handoff = "handoff",
        /// A droid ended.
        DroidDone = "droid_done",
        /// A timer fired.
        Timer = "timer",
        /// A cron job ran.
        Cron = "cron",
        /// A cron job ran that has a turn of its own.
        CronTurn = "cron_turn",
        /// A watched path changed.
        Watch = "watch",
        /// A wake-up for messages in a chat channel, or a chat message that an operator delivered.
        Chat = "chat",
        /// A heartbeat: the regular wake-up of an agent.
        Heartbeat = "heartbeat",
        /// A message from the daemon: a note, a correction, a first goal.
        System = "system",
    }
}

impl Kind {
    /// Whether the turn that takes this message sends its last text as a reply.
    pub fn expects_reply(self) -> bool {
        matches!(self, Self::Ask | Self::Conversation)
    }

    /// Whether the message may join a turn that another envelope opened.
    pub fn merges(self) -> bool {
        !matches!(self, Self::Ask | Self::Heartbeat | Self::Conversation | Self::CronTurn)
    }
}

text_enum! {
    /// State of a message in an inbox.
    MailState, "state of mail" {
        /// In the inbox.
        Pending = "pending",
        /// Taken by an open turn.
        Taken = "taken",
        /// Its turn has ended.
        Consumed = "consumed",
        /// Part of a dead letter; see [`crate::mail`].
        Dead = "dead",
    }
}

record! {
    /// One message in an agent's durable inbox.
    pub struct Envelope {
        /// Id of the message.
        pub message_id: MessageId,
        /// Sequence number in the order of all mail of the world; 0 until the store has assigned it.
        pub seq: i64 = 0,
        /// Receiver.
        pub to: AgentId,
        /// Sender.
        pub from: Party,
        /// Kind of the message.
        pub kind: Kind,
        /// Subject line, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub subject: Option<String> = None,
        /// Text of the message.
        pub body: String,
        /// Paths of attached files, relative to the workspace.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub attachments: Vec<String> = Vec::new(),
        /// Id of the ask, if the message is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ask_id: Option<AskId> = None,
        /// The conversation that started the chain of work, if one did. It is the session of the turn that takes the
        /// message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub conversation_id: Option<ConversationId> = None,
        /// Root of the chain of work that the message belongs to.
        pub root_id: RootId,
        /// Number of turns between the root and this message.
        pub hop: u32 = 0,
        /// Whether the message wakes the agent.
        pub wake: bool = true,
        /// When the message was accepted.
        pub created_at: Timestamp,
        /// When a turn last took the message; `None` if none has, or if an older version did not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub read_at: Option<Timestamp> = None,
        /// State of the message.
        pub state: MailState = MailState::Pending,
        /// The last turn that took the message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub turn_id: Option<TurnId> = None,
        /// How often the agent crashed in a turn with this message.
        pub crashes: u32 = 0,
    }

    /// Pending mail that wakes its receiver, at the start of a chain.
    pub fn new(
        message_id: MessageId,
        (from, to): (Party, AgentId),
        (kind, body): (Kind, String),
        root_id: RootId,
        created_at: Timestamp,
    )
}

impl Envelope {
    /// Whether the message is only a wake-up for new messages in a chat channel. The turn reads
    /// those itself, from the member's cursor.
    pub fn is_chat_wake(&self) -> bool {
        self.kind == Kind::Chat && self.body.is_empty()
    }
}

text_enum! {
    /// State of a dead letter.
    DeadLetterStatus, "dead letter status" {
        /// Waiting for an operator.
        Held = "held",
        /// An operator sent the mail to the agent again.
        Retried = "retried",
        /// An operator dropped the mail.
        Dropped = "dropped",
    }
}

/// A dead letter: the mail, the turn that crashed on it, and the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Id of the dead letter.
    pub dead_letter_id: DeadLetterId,
    /// Id of the agent that received the mail.
    pub agent_id: AgentId,
    /// Turn that crashed on the mail. Its journal is kept for a retry.
    pub turn_id: TurnId,
    /// Ids of the mail.
    pub messages: Vec<MessageId>,
    /// Description of the last crash.
    pub reason: String,
    /// Number of crashes.
    pub crashes: u32,
    /// State of the dead letter.
    pub status: DeadLetterStatus,
    /// When the mail became a dead letter.
    pub created_at: Timestamp,
    /// When an operator retried or dropped it.
    pub resolved_at: Option<Timestamp>,
}

/// Bytes that an envelope needs in a prompt besides its own text (an estimate).
const ENVELOPE_BYTES: usize = 200;

/// The capacity of one turn for mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Maximum envelopes; at least 1.
    pub envelopes: usize,
    /// Maximum bytes of all envelopes together. A single envelope may be larger.
    pub bytes: usize,
}

/// Bytes that an envelope needs in a turn.
pub fn bytes_of(envelope: &Envelope) -> usize {
    let named = envelope.attachments.iter().map(String::len).sum::<usize>();
    ENVELOPE_BYTES + envelope.subject.as_ref().map_or(0, String::len) + envelope.body.len() + named
}

/// Chooses the mail of the next turn from `pending`, which is in inbox order. Empty if no mail
/// wakes the agent.
///
/// - The first waking envelope decides the turn. A turn has at most one envelope that expects a
///   reply; several messages of one conversation count as one.
/// - A heartbeat runs only if no other mail wakes the agent. It takes only quiet mail of cron jobs,
///   which waits for it.
/// - The mail of a cron job with a turn of its own runs alone.
/// - Mail that a turn crashed on, or that an operator retried, runs alone. So a poisoned message
///   does not affect other messages.
/// - All mail of a turn belongs to one session.
/// - `jobs` are the roots of main jobs. Waking mail of such a root does not share a turn with
///   waking mail of another root: a turn is charged to one root, and the cost of a job must be
///   known.
/// - The turn takes no more than `room`, its capacity; the rest waits in order. The deciding
///   envelope is always taken. If the oldest envelope alone is larger than the capacity, it is
///   taken too.
pub fn plan_turn<'m>(pending: &'m [Envelope], room: Room, jobs: &BTreeSet<RootId>) -> Vec<&'m Envelope> {
    let max = room.envelopes;
    let waking = |e: &&Envelope| e.wake;
    let Some(first) =
        pending.iter().filter(waking).find(|e| e.kind != Kind::Heartbeat).or_else(|| pending.iter().find(waking))
    else {
        return Vec::new();
    };
    if runs_alone(first) {
        let waited = |e: &&Envelope| {
            first.kind == Kind::Heartbeat
                && is_fresh(first)
                && waits_for_heartbeat(e)
                && session_of(e) == session_of(first)
        };
        let mut used = bytes_of(first);
        let fits = |envelope: &&Envelope| {
            used += bytes_of(envelope);
            used <= room.bytes
        };
        let waiting = pending.iter().filter(waited).take(max.saturating_sub(1));
        let mut taken: Vec<&Envelope> = waiting.take_while(fits).collect();
        taken.push(first);
        taken.sort_by_key(|envelope| envelope.seq);
        return taken;
    }
    let mut replies_to = first.kind.expects_reply().then_some(first);
    let mut taken = Vec::new();
    // Capacity is reserved for the deciding envelope.
    let (mut used, mut full) = (bytes_of(first), false);
    for envelope in pending {
        if taken.len() + 1 > max.max(1) {
            break;
        }
        if envelope.message_id == first.message_id {
            taken.push(envelope);
            continue;
        }
        let first_is_in = taken.iter().any(|e: &&Envelope| e.message_id == first.message_id);
        if !first_is_in && taken.len() + 2 > max.max(1) {
            continue;
        }
        if session_of(envelope) != session_of(first) {
            continue;
        }
        let other = envelope.root_id != first.root_id;
        if other && envelope.wake && (jobs.contains(&envelope.root_id) || jobs.contains(&first.root_id)) {
            continue;
        }
        if full || runs_alone(envelope) || !(envelope.kind.merges() || joins(envelope, replies_to)) {
            continue;
        }
        let bytes = bytes_of(envelope);
        let too_large_ever = taken.is_empty() && bytes > room.bytes;
        if used + bytes > room.bytes && !too_large_ever {
            full = true;
            continue;
        }
        used += bytes;
        if !envelope.kind.merges() {
            replies_to = replies_to.or(Some(envelope));
        }
        taken.push(envelope);
    }
    taken
}

/// The conversation that a turn with this mail belongs to: the conversation that gets its reply,
/// otherwise the first conversation that this mail handed over. `mail` is the mail that opened the
/// turn, without mail that joined later.
pub fn channel_of<'m>(mail: impl IntoIterator<Item = &'m Envelope>) -> Option<ChannelContext> {
    let mut handed = None;
    for envelope in mail {
        let named = |replies| Some(ChannelContext { conversation_id: envelope.conversation_id?, replies });
        match envelope.kind {
            Kind::Conversation => return named(true),
            Kind::Handoff if handed.is_none() => handed = named(false),
            _ => {}
        }
    }
    handed
}

/// The session that an envelope belongs to: the conversation that started its chain; `None` is the agent's own
/// work. Chat belongs to the agent's own work: a digest holds the posts of all chains.
pub fn session_of(envelope: &Envelope) -> Option<ConversationId> {
    envelope.conversation_id.filter(|_| envelope.kind != Kind::Chat)
}

/// Whether an envelope must have a turn of its own. Pending mail that has a turn id was in a turn
/// that did not end normally.
pub fn runs_alone(envelope: &Envelope) -> bool {
    !is_fresh(envelope) || matches!(envelope.kind, Kind::Heartbeat | Kind::CronTurn)
}

/// Whether no turn has taken the envelope before.
fn is_fresh(envelope: &Envelope) -> bool {
    envelope.crashes == 0 && envelope.turn_id.is_none()
}

/// The quiet mail that stays behind when an agent takes `taken` from `pending`, and that no turn of another session would
/// ever take along. It must be roused, or it would wait for waking mail of its own session, perhaps for ever. Mail that
/// waits for a heartbeat waits on, unless `taken` is a heartbeat.
pub fn left_behind(pending: &[Envelope], taken: &[&Envelope]) -> Vec<MessageId> {
    let Some(first) = taken.first() else { return Vec::new() };
    let beats = taken.iter().any(|envelope| envelope.kind == Kind::Heartbeat && is_fresh(envelope));
    let quiet = pending.iter().filter(|envelope| !envelope.wake && session_of(envelope) != session_of(first));
    let released = quiet.filter(|envelope| beats || !waits_for_heartbeat(envelope));
    released.map(|envelope| envelope.message_id).collect()
}

/// Whether this is quiet mail of a cron job, which the next heartbeat takes too.
pub fn waits_for_heartbeat(envelope: &Envelope) -> bool {
    envelope.kind == Kind::Cron && !envelope.wake && is_fresh(envelope)
}

/// Whether an envelope that expects a reply may join a turn whose reply goes to `replies_to`.
fn joins(envelope: &Envelope, replies_to: Option<&Envelope>) -> bool {
    match replies_to {
        // The turn has one last text, so all its replies must go to the same conversation.
        Some(first) => {
            envelope.kind == Kind::Conversation
                && first.kind == Kind::Conversation
                && envelope.conversation_id == first.conversation_id
        }
        // An ask never joins a turn of other mail: the text would answer more than the question.
        None => false,
    }
}

#[cfg(test)]
#[path = "mail_tests.rs"]
mod tests;
