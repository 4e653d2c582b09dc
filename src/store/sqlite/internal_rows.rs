//! Row types that have no counterpart in the domain.

use ghost_domain::{ScheduleId, TaskEvent, Timestamp, WatchSnapshot};

/// A row of `world_meta`: a fact about the world.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) key: String,
    pub(super) value: String,
}

/// A row with its sequence number, for a table that only grows.
#[derive(Clone, Debug)]
pub(super) struct Numbered<T> {
    pub(super) seq: i64,
    pub(super) row: T,
}

/// The last snapshot of a watch.
#[derive(Clone, Debug)]
pub(super) struct WatchSnapshotRow {
    pub(super) schedule_id: ScheduleId,
    pub(super) snapshot: WatchSnapshot,
}

/// A history row of a task, with its sequence number.
#[derive(Clone, Debug)]
pub(super) struct TaskHistory {
    pub(super) seq: i64,
    pub(super) event: TaskEvent,
}

/// A prompt part, and the time of its last use.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) hash: String,
    pub(super) text: String,
    pub(super) at: Timestamp,
}
