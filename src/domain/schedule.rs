//! Schedules: timers, recurring jobs, watched paths and heartbeats, and the record of every run (SCHED-01..09, HB-01..07).

pub mod changes;
pub mod job_spec;
pub mod options;
pub mod slots;
pub mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::job_spec::JobSpec;
pub use self::options::{Deliver, JobOptions, Payload, Session, WakeMode};
use crate::envelope::text_enum;
use crate::ids::{AgentId, MessageId, RootId, ScheduleId};
use crate::party::Party;
use crate::time::Timestamp;

text_enum! {
    /// What sets a schedule off.
    ScheduleKind, "kind of schedule" {
        /// One instant.
        Timer = "timer",
        /// A recurring slot.
        Cron = "cron",
        /// A change of a file.
        Watch = "watch",
        /// The regular look around (HB-01).
        Heartbeat = "heartbeat",
    }
}

text_enum! {
    /// What becomes of a slot that passed while the daemon was down (SCHED-02).
    Missed, "policy for missed slots" {
        /// Nothing runs for it; the next slot does.
        Skip = "skip",
        /// One run stands for all that were missed.
        RunOnce = "run_once",
    }
}

text_enum! {
    /// How a run of a schedule went (SCHED-09).
    RunStatus, "status of a run" {
        /// Its mail lies in the inbox.
        Queued = "queued",
        /// The turn that took it ended well.
        Done = "done",
        /// The turn that took it failed.
        Failed = "failed",
        /// Its mail was refused by a bound.
        Refused = "refused",
        /// The slot passed while the daemon was down, the agent was busy, or there was nothing to look at.
        Skipped = "skipped",
    }
}

/// When a schedule goes off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum When {
    /// Once, at an instant.
    At {
        /// The instant.
        at: Timestamp,
    },
    /// At every multiple of an interval from an anchor.
    Every {
        /// The interval in milliseconds.
        every_ms: u64,
        /// Where counting begins.
        anchor: Timestamp,
    },
    /// At the slots of a cron expression of 5 or 6 fields, in a time zone.
    Cron {
        /// The expression.
        expression: String,
        /// An IANA zone; UTC if none.
        zone: Option<String>,
    },
    /// When a path below the workspace changes.
    Change {
        /// The path, relative to the workspace.
        path: String,
        /// Whether everything below it counts.
        recursive: bool,
        /// Which changes count.
        changes: Vec<Change>,
        /// Milliseconds within which changes are reported together.
        debounce_ms: u32,
    },
}

impl When {
    /// The rule for someone to read: as it is stored, with instants in ISO 8601.
    #[must_use]
    pub fn shown(&self) -> Value {
        match self {
            Self::At { at } => json!({ "type": "at", "at": at.rfc3339() }),
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
        /// It is there now.
        Created = "created",
        /// Its content is another.
        Modified = "modified",
        /// It is gone.
        Removed = "removed",
        /// It has another name.
        Renamed = "renamed",
    }
}

/// A schedule. `(agent_id, kind, name)` is unique among those that are there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its id.
    pub schedule_id: ScheduleId,
    /// What sets it off.
    pub kind: ScheduleKind,
    /// Whom it wakes.
    pub agent_id: AgentId,
    /// What its owner calls it.
    pub name: String,
    /// When it goes off.
    pub when: When,
    /// The text of the mail; for a heartbeat, where its alert goes (HB-04).
    pub message: String,
    /// What becomes of slots that were missed.
    pub missed: Missed,
    /// How a cron job runs; of every other kind this is the default.
    #[serde(default)]
    pub options: JobOptions,
    /// Whether it goes off at all.
    pub enabled: bool,
    /// The root that its mail belongs to; a cron slot and a heartbeat start one of their own.
    pub root_id: RootId,
    /// The hop of its mail.
    pub hop: u32,
    /// When it goes off next; nothing for a watch, and for what is disabled or over.
    pub next_at: Option<Timestamp>,
    /// When it last went off.
    pub last_at: Option<Timestamp>,
    /// How the last run went.
    pub last_status: Option<RunStatus>,
    /// Runs so far.
    pub runs: i64,
    /// Who made it.
    pub creator: Party,
    /// When.
    pub created_at: Timestamp,
}

/// One run of a schedule, skipped slots included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRun {
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// Which run of it, from 1.
    pub run: i64,
    /// The agent.
    pub agent_id: AgentId,
    /// The slot that it stands for.
    pub slot_at: Timestamp,
    /// When it went off.
    pub fired_at: Timestamp,
    /// Whether that was later than the slot because the daemon was down.
    pub late: bool,
    /// Slots that passed unseen before it.
    pub missed: u32,
    /// How it went.
    pub status: RunStatus,
    /// Its mail.
    pub message_id: Option<MessageId>,
    /// Why, if it was refused, skipped or failed, or if its last text could not be delivered.
    pub note: Option<String>,
    /// How it runs, if it is a turn of its own: its job may be changed or gone before that ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<JobOptions>,
}

/// What a watch last saw, so that changes made while nobody looked are found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchSnapshot {
    /// Files by path relative to the workspace.
    pub files: BTreeMap<String, FileStamp>,
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last change, in nanoseconds since 1970.
    pub changed_ns: i128,
    /// The file's identity on its file system; the same under another name is a rename.
    pub inode: u64,
}
