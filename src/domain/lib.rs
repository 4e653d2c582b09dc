//! The data types of Ghost and the rules that need no IO: ids, mail, turns, budgets, restarts, tool
//! names, write rules, limits and events. Also the ports (clock, ids, random numbers, wake-ups):
//! traits that the daemon and the simulation implement in their own way.
//!
//! This crate must never use a file, a socket, a database, the wall clock or a source of random
//! numbers. Every function depends only on its arguments, so a simulation can repeat it exactly
//! (promise 8 in `docs/design.md`).

#![warn(missing_docs)]

pub mod admission;
pub mod agent;
pub mod approval;
pub mod artifact;
pub mod ask;
pub mod bearer;
pub mod budget;
pub mod chat;
pub mod conversation;
pub mod droid;
pub mod event;
pub mod fair_queue;
pub mod form;
pub mod grant;
pub mod ids;
pub mod image;
pub mod journal;
pub mod json_text;
pub mod knowledge;
pub mod limits;
pub mod macros;
pub mod mail;
pub mod model_facts;
pub mod money;
pub mod party;
pub mod ports;
pub mod redact;
pub mod refusal;
pub mod reply_tokens;
pub mod restart;
pub mod root_tally;
pub mod schedule;
pub mod session;
pub mod shared_state;
pub mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
pub mod time;
pub mod tool_catalogue;
pub mod transcript;
pub mod turn;
pub mod usage;
pub mod wall_clock;
pub mod write_acl;

pub use agent::{Activity, Agent, AgentKind, AgentStatus, Desired, HeldSkill};
pub use approval::{Approval, ApprovalPlan, ApprovalStatus, BoundFile};
pub use artifact::{Artifact, ArtifactType};
pub use ask::{Ask, AskStatus, Asker};
pub use budget::{Budget, BudgetLimits, CallReservation, Daily, Reservation, Scope, ScopeSort};
pub use chat::{ChatChannel, ChatMember, ChatPost, ChatWake, DeclaredChannel};
pub use conversation::{
    Action, ActionKind, Attachment, ChannelContext, Conversation, ConversationEntry, Delivery, Direction, Reactions,
};
pub use droid::{Droid, DroidMode, DroidState, DroidTerms, DroidUse};
pub use event::{Event, EventKind, EventPayload, NewEvent};
pub use grant::{Grant, GrantSource};
pub use ids::{
    AgentId, ApprovalId, ArtifactId, AskId, CallId, ChannelName, ConversationId, DeadLetterId, EventId, GrantId,
    MessageId, RequestId, ReservationId, RootId, ScheduleId, TaskId, TurnId,
};
pub use image::{ImageFile, MediaType};
pub use journal::{FilePlan, JournalRow, SeenTools, Step, ToolChanges};
pub use knowledge::{Grantee, KnowledgeEntry, KnowledgeSeed, KnowledgeVersion, Viewer};
pub use limits::Limits;
pub use macros::TextEnum;
pub use mail::{DeadLetter, DeadLetterStatus, Envelope, Kind, MailState};
pub use money::{Money, Price};
pub use party::{Party, RequestKey, StoredAnswer};
pub use refusal::{Code, Refusal};
pub use schedule::{Declared, DeclaredJob, Schedule, ScheduleKind, ScheduleRun, WatchSnapshot};
pub use session::{LogPlace, LogRange, LogStart, SessionStart, SessionSummary};
pub use shared_state::StateEntry;
pub use task::{Job, Task, TaskEvent, TaskStatus};
pub use time::{Clock, Timestamp};
pub use transcript::ToolSpec;
pub use turn::{Turn, TurnStatus};
pub use usage::{CallStatus, CallTotals, LedgerRow, UsageRow};
pub use write_acl::WorkspacePath;
