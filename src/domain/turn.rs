//! A turn: the unit in which an agent takes mail, thinks, acts and answers.

use serde::{Deserialize, Serialize};

use crate::budget::{Reservation, no_tokens};
use crate::envelope::text_enum;
use crate::ids::{AgentId, RootId, TurnId};
use crate::money::Money;
use crate::scope::Scope;
use crate::time::Timestamp;

text_enum! {
    /// How far a turn is.
    TurnStatus, "turn status" {
        /// Under way, or to be resumed from its journal.
        Open = "open",
        /// The model made no further call.
        Finished = "finished",
        /// It ended with a reason: a budget, a provider, a limit.
        Failed = "failed",
        /// Someone cancelled it, or the agent was stopped.
        Cancelled = "cancelled",
        /// It crashed and its mail went back to the inbox, to be tried one at a time.
        Split = "split",
        /// It kept crashing; its mail is a dead letter.
        Dead = "dead",
    }
}

/// What a parked turn waits for (DESIGN.md section 2, "Transient causes").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum ParkCause {
    /// The model that it needs cannot be had now.
    Model {
        /// The provider's name in the world file.
        provider: String,
        /// The model's name there.
        model: String,
    },
    /// A budget is spent: someone raises it, or a new day begins.
    Budget {
        /// Which.
        scope: Scope,
    },
}

/// Whether a parked turn holds up its agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// What it waits for holds up all work of its agent, which waits with it, so that mail stays in order.
    #[default]
    InLine,
    /// Only its own root is spent: its agent goes on with other work.
    Aside,
    /// It was aside and may go on: its agent takes it up before new mail.
    Ready,
}

/// Why an open turn waits, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// What it waits for.
    #[serde(flatten)]
    pub cause: ParkCause,
    /// In words, for people.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
    /// Whether its agent waits with it.
    #[serde(default)]
    pub standing: Standing,
    /// Rounds of attempts that failed while the same model answered others. Too many, and the turn itself is at fault.
    #[serde(default)]
    pub alone: u32,
}

/// What stands behind an answer that was cut, for whoever asked.
pub const CUT_MARK: &str = "[cut: the answer reached its token limit, or its provider paused it]";

/// The durable record of a turn. Its content is in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its id.
    pub turn_id: TurnId,
    /// Whose it is.
    pub agent_id: AgentId,
    /// Which incarnation of the agent.
    pub incarnation: u32,
    /// The one root it is charged to.
    pub root_id: RootId,
    /// The other roots whose mail it took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_roots: Vec<RootId>,
    /// The largest hop of the mail it took.
    #[serde(default, skip_serializing_if = "is_none")]
    pub hop: u32,
    /// `mail` for a turn that mail opened, `cron` for one that a cron job has to itself, `operator` for a tool call made from
    /// the control plane.
    pub source: String,
    /// What it is about: the first words of the mail that opened it, for lists and for what later turns recall.
    #[serde(default)]
    pub about: String,
    /// How far it is.
    pub status: TurnStatus,
    /// Why it ended as it did, unless it finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The model that answered last.
    pub model: Option<String>,
    /// Model calls answered.
    pub rounds: u32,
    /// Tool calls recorded.
    pub calls: u32,
    /// Tokens read, as far as they are known; of a call that was cut off, as many as were held.
    pub input_tokens: u64,
    /// Tokens written, in the same way.
    pub output_tokens: u64,
    /// What they cost, those without a price left out.
    pub cost: Money,
    /// Of these tokens: those of models without a known price.
    #[serde(default, skip_serializing_if = "no_tokens")]
    pub unpriced_tokens: u64,
    /// The budget of its model call under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Reservation>,
    /// The last text, when it has ended.
    pub text: Option<String>,
    /// Whether that text was cut, because the model reached its token limit for one answer, or its provider paused it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// When it was opened.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How often its agent crashed in it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub crashes: u32,
    /// The count of journaled facts at the last boot, to tell progress from a loop of boots.
    #[serde(default, skip_serializing_if = "is_none")]
    pub boot_mark: u32,
    /// Boots in a row that found it without progress.
    #[serde(default, skip_serializing_if = "is_none")]
    pub stalled_boots: u32,
    /// Why it waits, if it is open and parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Parked>,
}

/// Whether a count is none: records leave it out.
// The form that serde wants.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_none(count: &u32) -> bool {
    *count == 0
}

impl Turn {
    /// Whether its agent goes on without it.
    #[must_use]
    pub fn is_aside(&self) -> bool {
        self.status == TurnStatus::Open
            && self.parked.as_ref().is_some_and(|parked| parked.standing != Standing::InLine)
    }

    /// Whether it was aside and may go on.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_aside() && self.parked.as_ref().is_some_and(|parked| parked.standing == Standing::Ready)
    }
}
