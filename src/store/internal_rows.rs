//! Row types that have no counterpart in the domain.

use ghost_domain::{ScheduleId, TaskEvent, Timestamp, WatchSnapshot};

/// A row of `world_meta`: a fact about the world.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// A row with its sequence number, for a table that only grows.
#[derive(Clone, Debug)]
pub(crate) struct Numbered<T> {
    pub(crate) seq: i64,
    pub(crate) row: T,
}

/// The last snapshot of a watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchSnapshotRow {
    pub(crate) schedule_id: ScheduleId,
    pub(crate) snapshot: WatchSnapshot,
}

/// A history row of a task, with its sequence number.
#[derive(Clone, Debug)]
pub(crate) struct TaskHistory {
    pub(crate) seq: i64,
    pub(crate) event: TaskEvent,
}

/// A prompt part, and the time of its last use.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) hash: String,
    pub(crate) text: String,
    pub(crate) at: Timestamp,
}
