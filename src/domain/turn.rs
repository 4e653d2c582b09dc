//! The record of a turn: one unit of an agent's work. The agent takes mail, calls the model and
//! tools, and ends.

use serde::{Deserialize, Serialize};

use crate::budget::Scope;
use crate::budget::{CallReservation, Reservation, is_zero};
use crate::ids::{AgentId, ApprovalId, ConversationId, RootId, TurnId};
use crate::macros::{record, text_enum};
use crate::money::Money;
use crate::session::LogPlace;
use crate::time::Timestamp;

text_enum! {
    /// Status of a turn.
    TurnStatus, "turn status" {
        /// It runs, or waits to be resumed from its journal.
        Open = "open",
        /// It ended normally: the model made no further tool call.
        Finished = "finished",
        /// It ended early; `reason` says why, for example a provider error or a limit.
        Failed = "failed",
        /// It ended at its bound of time or of model calls; `reason` names the bound, `text` is what it said
        /// last.
        TimedOut = "timed_out",
        /// It was cancelled, or its agent was stopped.
        Cancelled = "cancelled",
        /// It crashed. Its mail went back to the inbox; each message is tried alone.
        Split = "split",
        /// It crashed too often. Its mail is in a dead letter.
        Dead = "dead",
    }
}

impl TurnStatus {
    /// Whether a turn with this status has processed its mail, so that it never changes again.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::TimedOut | Self::Cancelled)
    }
}

/// The cause for which a turn is parked (`docs/design.md`, "Outages, breakers and budgets").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum ParkCause {
    /// The model does not answer now.
    Model {
        /// Name of the provider in `world-config.yaml`.
        provider: String,
        /// Name of the model in `world-config.yaml`.
        model: String,
    },
    /// A budget is spent. The turn continues when an operator raises it or a new day begins.
    Budget {
        /// Scope of the budget.
        scope: Scope,
    },
}

/// Whether a parked turn blocks its agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitMode {
    /// The agent waits with the turn, because its other work would have to wait for the same cause.
    /// Mail stays in order.
    #[default]
    #[serde(rename = "in_line")]
    Blocking,
    /// Only the budget of the turn's root is spent. The agent continues with other work.
    #[serde(rename = "aside")]
    Background,
    /// The turn was [`Background`](Self::Background) and may continue. The agent continues it before it takes
    /// new mail.
    Ready,
}

/// Why an open turn is parked, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// The cause of the wait.
    #[serde(flatten)]
    pub cause: ParkCause,
    /// Description for people.
    pub reason: String,
    /// When the turn was parked.
    pub since: Timestamp,
    /// Whether the turn blocks its agent.
    #[serde(default, rename = "standing")]
    pub wait_mode: WaitMode,
    /// Failed rounds of attempts while the same model answered other turns. Above a limit, the turn
    /// itself is treated as faulty.
    #[serde(default)]
    pub alone: u32,
}

/// Mark at the end of a truncated answer, for the asker.
pub const CUT_MARK: &str = "[cut: the answer reached its token limit, or its provider paused it]";

/// Mark at the end of what a turn said last before it ended at a bound; `what` says which bound.
pub fn bound_mark(what: &str) -> String {
    format!("[cut off: {what}]")
}

record! {
    /// The durable record of a turn. Its steps are in the journal.
    pub struct Turn {
        /// Id of the turn.
        pub turn_id: TurnId,
        /// Agent that runs the turn.
        pub agent_id: AgentId,
        /// Incarnation of the agent (see [`crate::agent::Agent::incarnation`]).
        pub incarnation: u32 = 1,
        /// The root that the turn is charged to.
        pub root_id: RootId,
        /// The conversation whose session the turn belongs to; `None` for the agent's own work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub conversation_id: Option<ConversationId> = None,
        /// When the oldest turn ended that the prompt of this turn quotes from its session's log. Retention keeps it and
        /// all later ones while this turn is open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub log_from: Option<Timestamp> = None,
        /// Other roots whose mail the turn took.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub other_roots: Vec<RootId> = Vec::new(),
        /// The largest hop of the turn's mail.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub hop: u32 = 0,
        /// `mail` for a turn that mail opened, `cron` for a cron job's own turn, `operator` for a tool
        /// call from the control plane.
        pub source: String = "mail".to_owned(),
        /// First words of the mail that opened the turn. Lists show it, and later turns recall it.
        #[serde(default)]
        pub about: String = String::new(),
        /// Status of the turn.
        pub status: TurnStatus = TurnStatus::Open,
        /// Why the turn ended, if it did not finish normally.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String> = None,
        /// The model that answered last.
        pub model: Option<String> = None,
        /// Number of answered model calls.
        pub rounds: u32 = 0,
        /// Number of recorded tool calls.
        pub calls: u32 = 0,
        /// Input tokens. An interrupted call is counted with its reservation.
        pub input_tokens: u64 = 0,
        /// Output tokens, counted in the same way.
        pub output_tokens: u64 = 0,
        /// Cost of the tokens whose price is known.
        pub cost: Money = Money(0),
        /// Tokens of models without a known price; part of the tokens above.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub unpriced_tokens: u64 = 0,
        /// Reservation of the running model call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub held: Option<Reservation> = None,
        /// Reservations of running tool calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub held_calls: Vec<CallReservation> = Vec::new(),
        /// Approvals that running calls wait for in their middle. A call's own approval, before it runs, is not here.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub questions: Vec<ApprovalId> = Vec::new(),
        /// The turn's last text, once it has ended.
        pub text: Option<String> = None,
        /// Whether that text was cut off: the model reached its token limit, the provider paused it, or the turn ended at
        /// a bound.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub truncated: bool = false,
        /// When the turn was opened.
        pub started_at: Timestamp,
        /// When the turn ended.
        pub ended_at: Option<Timestamp> = None,
        /// How often the agent crashed in the turn.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub crashes: u32 = 0,
        /// Rounds plus calls plus one at the last start of the daemon; 0 if the turn was not open then.
        /// An equal value at the next start means that the turn made no progress.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub boot_mark: u32 = 0,
        /// Starts of the daemon in a row that found the turn without progress.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub stalled_boots: u32 = 0,
        /// Why the turn waits; set only while it is open and parked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parked: Option<Parked> = None,
    }

    /// An open turn for mail, which has done nothing yet, of the agent's first incarnation.
    pub fn new(turn_id: TurnId, agent_id: AgentId, root_id: RootId, started_at: Timestamp)
}

impl Turn {
    /// The turn's place in the log of its session, once it has ended.
    pub fn log_place(&self) -> LogPlace {
        LogPlace { ended_at: self.ended_at.unwrap_or(self.started_at), turn_id: self.turn_id }
    }

    /// Whether an ended turn is in the log of its session. It is not if no model has answered it, or if its mail was
    /// tried again or became a dead letter: such mail must not reach later prompts.
    pub fn is_in_log(&self) -> bool {
        self.status.is_final() && self.rounds > 0
    }

    /// Whether the agent continues with other work while this turn is parked.
    pub fn is_in_background(&self) -> bool {
        self.status == TurnStatus::Open
            && self.parked.as_ref().is_some_and(|parked| parked.wait_mode != WaitMode::Blocking)
    }

    /// Whether the turn was parked as [`WaitMode::Background`] and may continue.
    pub fn is_ready(&self) -> bool {
        self.is_in_background() && self.parked.as_ref().is_some_and(|parked| parked.wait_mode == WaitMode::Ready)
    }
}
