//! The data types of Ghost and the rules that need no IO: ids, mail, turns, budgets, restarts, tool
//! names, write rules, limits and events. Also the ports (clock, ids, random numbers, wake-ups):
//! traits that the daemon and the simulation implement in their own way.
//!
//! This crate must never use a file, a socket, a database, the wall clock or a source of random
//! numbers. Every function depends only on its arguments, so a simulation can repeat it exactly
//! (promise 8 in `docs/design.md`).

pub mod admission;
pub mod agent;
pub mod approval;
pub mod artifact;
pub mod ask;
pub mod bearer;
pub mod budget;
pub mod chat;
pub mod conversation;
pub mod dead_letter;
pub mod declared;
pub mod droid;
pub mod droid_id;
pub mod envelope;
pub mod event;
mod event_payload;
pub mod fair_queue;
pub mod form;
pub mod grant;
pub mod grantee;
pub mod idempotency;
pub mod ids;
pub mod image;
pub mod job;
pub mod journal;
pub mod json_text;
pub mod knowledge;
pub mod ledger;
pub mod limits;
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
pub mod scope;
pub mod seen_tools;
pub mod session;
pub mod shared_state;
pub mod skill;
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

pub use agent::{Activity, Agent, AgentKind, AgentStatus, Desired};
pub use approval::{Approval, ApprovalPlan, ApprovalStatus, BoundFile};
pub use artifact::{Artifact, ArtifactType};
pub use ask::{Ask, AskStatus, Asker};
pub use budget::{Budget, BudgetLimits, CallReservation, Reservation};
pub use chat::{ChatChannel, ChatMember, ChatPost, ChatWake};
pub use conversation::{
    Action, ActionKind, Attachment, ChannelContext, Conversation, ConversationEntry, Delivery, Direction, Reactions,
};
pub use dead_letter::{DeadLetter, DeadLetterStatus};
pub use declared::{Declared, DeclaredChannel, DeclaredJob};
pub use droid::{Droid, DroidMode, DroidState, DroidTerms, DroidUse};
pub use envelope::{Envelope, Kind, MailState, TextEnum};
pub use event::{Event, EventKind, NewEvent};
pub use event_payload::EventPayload;
pub use grant::{Grant, GrantSource};
pub use grantee::{Grantee, Viewer};
pub use idempotency::{RequestKey, StoredAnswer};
pub use ids::{
    AgentId, ApprovalId, ArtifactId, AskId, CallId, ChannelName, ConversationId, DeadLetterId, EventId, GrantId,
    MessageId, RequestId, ReservationId, RootId, ScheduleId, TaskId, TurnId,
};
pub use image::{ImageFile, MediaType};
pub use job::Job;
pub use journal::{JournalRow, Step};
pub use knowledge::{KnowledgeEntry, KnowledgeSeed, KnowledgeVersion};
pub use ledger::{CallStatus, CallTotals, LedgerRow};
pub use limits::Limits;
pub use money::{Money, Price};
pub use party::Party;
pub use refusal::{Code, Refusal};
pub use schedule::{Schedule, ScheduleKind, ScheduleRun, WatchSnapshot};
pub use scope::{Daily, Scope, ScopeSort};
pub use seen_tools::{SeenTools, ToolChanges};
pub use session::{LogPlace, LogRange, LogStart, SessionStart, SessionSummary};
pub use shared_state::StateEntry;
pub use skill::HeldSkill;
pub use task::{Task, TaskEvent, TaskStatus};
pub use time::{Clock, Timestamp};
pub use turn::{Turn, TurnStatus};
pub use usage::UsageRow;
