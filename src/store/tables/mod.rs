//! The table traits: they write and read rows, one file for each family of tables. Method names
//! begin with the noun. A `put` inserts or replaces a row by key. An `append` adds a row whose
//! sequence number the store assigns, unless its comment says otherwise. Reads inside a command see
//! the command's own writes.
//!
//! A list that may be long is read in pages. `after` is the position of the last row of the previous
//! page; that row need not exist any more. `limit` is the largest number of rows: 0 means 100, and no
//! page has more than [`PAGE_MAX`]. Each page is read from an index, so its cost does not grow with
//! the table.
//!
//! These traits must never decide anything: the rules are in `ghost-operations`. They only limit how
//! many rows a read returns.

mod agents;
mod approvals;
mod artifacts;
mod asks;
mod budgets;
mod chat;
mod conversations;
mod dead_letters;
mod droids;
mod events;
mod grants;
mod ids;
mod jobs;
mod knowledge;
mod ledger;
mod messages;
mod prune;
mod requests;
mod roots;
mod schedules;
mod sessions;
mod shared_state;
mod skills;
mod tasks;
mod turns;

pub use agents::{AgentReads, AgentWrites};
pub use approvals::{ApprovalFilter, ApprovalReads, ApprovalWrites};
pub use artifacts::{ArtifactFilter, ArtifactReads, ArtifactWrites};
pub use asks::{AskReads, AskWrites};
pub use budgets::{BudgetFilter, BudgetReads, BudgetWrites, UsageFilter};
pub use chat::{ChatReads, ChatWrites};
pub use conversations::{ConversationReads, ConversationWrites};
pub use dead_letters::{DeadLetterReads, DeadLetterWrites};
pub use droids::{DroidReads, DroidWrites, LiveDroids};
pub use events::{EventReads, EventWrites};
pub use grants::{GrantReads, GrantWrites};
pub use ids::{IdKind, IdReads};
pub use jobs::{JobReads, JobWrites};
pub use knowledge::{KnowledgeReads, KnowledgeWrites};
pub use ledger::{LedgerFilter, LedgerReads, LedgerWrites};
pub use messages::{InboxState, MessageReads, MessageWrites};
pub use prune::{Family, PruneWrites};
pub use requests::{RequestReads, RequestWrites};
pub use roots::{RootReads, RootWrites};
pub use schedules::{SchedulePlace, ScheduleReads, ScheduleWrites};
pub use sessions::{SessionReads, SessionTurns, SessionWrites};
pub use shared_state::{StateReads, StateWrites};
pub use skills::{SkillReads, SkillWrites};
pub use tasks::{TaskFilter, TaskPlace, TaskReads, TaskWrites};
pub use turns::{PROMPT_USE, TurnFilter, TurnReads, TurnWrites};

pub use crate::error::Result;
use ghost_domain::ports::Signal;

/// The largest number of rows in one page of a list.
pub const PAGE_MAX: u32 = 1_000;

/// The number of rows to read for the `limit` of a list.
pub(crate) fn page_size(limit: u32) -> u32 {
    if limit == 0 { 100 } else { limit.min(PAGE_MAX) }
}

/// All reads of the store.
pub trait Reads:
    AgentReads
    + ApprovalReads
    + ArtifactReads
    + AskReads
    + BudgetReads
    + ChatReads
    + ConversationReads
    + DeadLetterReads
    + DroidReads
    + EventReads
    + GrantReads
    + IdReads
    + JobReads
    + KnowledgeReads
    + LedgerReads
    + MessageReads
    + RequestReads
    + RootReads
    + ScheduleReads
    + SessionReads
    + SkillReads
    + StateReads
    + TaskReads
    + TurnReads
    + Send
{
}

/// All reads and writes of one transaction.
pub trait Writes:
    Reads
    + AgentWrites
    + ApprovalWrites
    + ArtifactWrites
    + AskWrites
    + BudgetWrites
    + ChatWrites
    + ConversationWrites
    + DeadLetterWrites
    + DroidWrites
    + EventWrites
    + GrantWrites
    + JobWrites
    + KnowledgeWrites
    + LedgerWrites
    + MessageWrites
    + PruneWrites
    + RequestWrites
    + RootWrites
    + ScheduleWrites
    + SessionWrites
    + SkillWrites
    + StateWrites
    + TaskWrites
    + TurnWrites
{
    /// Sends a signal to the running world after the commit. If the command is undone, the signal
    /// is dropped.
    fn signal(&mut self, signal: Signal);
}
