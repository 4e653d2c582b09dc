//! The records of schedules: timers, cron jobs, watches and heartbeats, and of their runs; and what `world-config.yaml`
//! declares of them.

pub mod changes;
pub mod mode;
pub mod slots;
pub mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::mode::{Deliver, JobOptions, Payload, Session, WakeMode};
pub use self::mode::{JobMode, OwnTurn, Target};
use crate::chat::DeclaredChannel;
use crate::ids::{AgentId, ConversationId, MessageId, RootId, ScheduleId};
use crate::macros::text_enum;
use crate::party::Party;
use crate::time::Timestamp;

text_enum! {
    /// Kind of a schedule.
    ScheduleKind, "kind of schedule" {
        /// It runs once, at one instant.
        Timer = "timer",
        /// A cron job: it runs repeatedly.
        Cron = "cron",
        /// A watch: it runs when files change.
        Watch = "watch",
        /// A heartbeat: the regular wake-up of an agent.
        Heartbeat = "heartbeat",
    }
}

text_enum! {
    /// What happens to a slot that passed while the daemon was down.
    Missed, "policy for missed slots" {
        /// It is skipped. The next slot runs.
        Skip = "skip",
        /// One run replaces all missed slots.
        RunOnce = "run_once",
    }
}

text_enum! {
    /// Status of a run of a schedule.
    RunStatus, "status of a run" {
        /// Its mail is in the inbox.
        Queued = "queued",
        /// The turn that took its mail finished.
        Done = "done",
        /// The turn that took its mail failed.
        Failed = "failed",
        /// Its mail was refused because of a limit.
        Refused = "refused",
        /// The slot passed without a run: the daemon was down, the agent was busy, or there was
        /// nothing to report.
        Skipped = "skipped",
    }
}

/// When a schedule runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum When {
    /// Once, at an instant.
    At {
        /// The instant.
        at: Timestamp,
    },
    /// Once, some time after an anchor: unlike `At` no date, but a duration.
    After {
        /// The duration in milliseconds.
        after_ms: u64,
        /// Its start. It moves with a jump of the clock.
        anchor: Timestamp,
    },
    /// At every multiple of an interval from an anchor.
    Every {
        /// The interval in milliseconds.
        every_ms: u64,
        /// Start of the first interval.
        anchor: Timestamp,
    },
    /// At the slots of a cron expression with 5 or 6 fields, in a time zone.
    Cron {
        /// The cron expression.
        expression: String,
        /// IANA name of the time zone; `None` is UTC.
        zone: Option<String>,
    },
    /// When a path in the workspace changes.
    Change {
        /// The path, relative to the workspace.
        path: String,
        /// Whether changes in subdirectories count.
        recursive: bool,
        /// Kinds of changes that count.
        changes: Vec<Change>,
        /// Milliseconds without a further change before the changes are reported.
        debounce_ms: u32,
    },
}

impl When {
    /// Once, some time from `now`.
    pub fn after(time: Duration, now: Timestamp) -> Self {
        Self::After { after_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX), anchor: now }
    }

    /// The instant of a rule that runs once.
    pub fn once_at(&self) -> Option<Timestamp> {
        match self {
            Self::At { at } => Some(*at),
            Self::After { after_ms, anchor } => Some(anchor.plus(Duration::from_millis(*after_ms))),
            Self::Every { .. } | Self::Cron { .. } | Self::Change { .. } => None,
        }
    }

    /// The rule as JSON for people: as it is stored, but with instants in ISO 8601.
    pub fn shown(&self) -> Value {
        match self {
            Self::At { .. } | Self::After { .. } => {
                json!({ "type": "at", "at": self.once_at().map(Timestamp::rfc3339) })
            }
            Self::Every { every_ms, anchor } => {
                json!({ "type": "every", "every_ms": every_ms, "anchor": anchor.rfc3339() })
            }
            Self::Cron { expression, zone } => json!({ "type": "cron", "expression": expression, "zone": zone }),
            Self::Change { path, recursive, changes, debounce_ms } => json!({
                "type": "change", "path": path, "recursive": recursive, "changes": changes, "debounce_ms": debounce_ms,
            }),
        }
    }
}

text_enum! {
    /// What happened to a watched file.
    Change, "kind of change" {
        /// A new file.
        Created = "created",
        /// The file changed.
        Modified = "modified",
        /// The file no longer exists.
        Removed = "removed",
        /// The file has a new path.
        Renamed = "renamed",
    }
}

/// The record of a schedule. `(agent_id, kind, name)` is unique among the existing schedules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Id of the schedule.
    pub schedule_id: ScheduleId,
    /// Kind of the schedule.
    pub kind: ScheduleKind,
    /// Agent that gets its mail.
    pub agent_id: AgentId,
    /// Name of the schedule.
    pub name: String,
    /// When it runs.
    pub when: When,
    /// Text of the mail; for a heartbeat the target of its alerts.
    pub message: String,
    /// What happens to missed slots.
    pub missed: Missed,
    /// How a cron job runs; the default for every other kind.
    #[serde(default, rename = "options")]
    pub mode: JobMode,
    /// Whether it runs at all.
    pub enabled: bool,
    /// Root of its mail. Each run of a cron job and each heartbeat starts a new root instead.
    pub root_id: RootId,
    /// Hop of its mail.
    pub hop: u32,
    /// The conversation in which the schedule was made, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// Time of the next run; `None` for a watch and for a schedule that is disabled or over.
    pub next_at: Option<Timestamp>,
    /// Time of the last run.
    pub last_at: Option<Timestamp>,
    /// Status of the last run.
    pub last_status: Option<RunStatus>,
    /// Number of runs so far.
    pub runs: i64,
    /// Party that created it.
    pub creator: Party,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The record of one run of a schedule. Skipped slots also have one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRun {
    /// Id of the schedule.
    pub schedule_id: ScheduleId,
    /// Number of the run, from 1.
    pub run: i64,
    /// Agent of the schedule.
    pub agent_id: AgentId,
    /// Slot of the run.
    pub slot_at: Timestamp,
    /// When the run started.
    pub fired_at: Timestamp,
    /// Whether the run was late because the daemon was down.
    pub late: bool,
    /// Number of missed slots before this one.
    pub missed: u32,
    /// Status of the run.
    pub status: RunStatus,
    /// Id of its mail, if it has any.
    pub message_id: Option<MessageId>,
    /// Why the run was refused, skipped or failed, or why its last text was not delivered.
    pub note: Option<String>,
    /// The run's own turn, if it has one. The job may change or end before that turn ends.
    #[serde(default, rename = "options", skip_serializing_if = "Option::is_none")]
    pub own_turn: Option<OwnTurn>,
}

/// The files of a watch at its last check. It shows changes that happened while the daemon was
/// down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchSnapshot {
    /// Stamps of the files by path, relative to the workspace.
    pub files: BTreeMap<String, FileStamp>,
}

/// Identifies one state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileStamp {
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last change, in nanoseconds since 1970.
    pub changed_ns: i128,
    /// Inode number. The same stamp under another path is a rename.
    pub inode: u64,
}

/// A cron job that `world-config.yaml` declares. `(agent_id, name)` is unique in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclaredJob {
    /// Agent that the job sends mail to.
    pub agent_id: AgentId,
    /// Name of the job.
    pub name: String,
    /// When the job runs. An interval counts from 1970, so each reading of the file gives the same
    /// slots.
    pub when: When,
    /// Text of the mail.
    pub message: String,
    /// What happens to slots that passed while the daemon was down.
    pub missed: Missed,
    /// How the job runs.
    #[serde(rename = "options")]
    pub mode: JobMode,
    /// Whether the job runs at all.
    pub enabled: bool,
}

/// All channels and cron jobs of `world-config.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    /// Chat channels, sorted by name.
    pub channels: Vec<DeclaredChannel>,
    /// Cron jobs, in the order of the file.
    pub jobs: Vec<DeclaredJob>,
}
