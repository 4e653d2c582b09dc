//! Plain rows of chat, conversations, knowledge, shared state and schedules, by name and number.

use super::prelude::*;
use super::rows::{
    AWKWARD, LARGE, at, conversation_id, grant_id, id_of, message_id, root_id, row, schedule_id, turn_id, uuid,
};

pub(super) fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap()
}

pub(super) fn channel_name(channel: &str) -> ChannelName {
    channel.parse().unwrap()
}

/// An ungated channel whose last chat message is `last_seq`.
pub(crate) fn channel(name: &str, last_seq: i64) -> ChatChannel {
    row(json!({
        "channel": name, "creator": Party::System, "gated": false, "members": 0, "last_seq": last_seq, "created_at": at(1),
    }))
}

pub(super) fn member(channel: &str, agent: &str, read_seq: i64) -> ChatMember {
    ChatMember { channel: channel_name(channel), agent_id: id_of(agent), read_seq, wake_id: None, joined_at: at(1) }
}

/// Chat message `seq` of a channel, at second `seq`.
pub(super) fn post(channel: &str, seq: u64) -> ChatPost {
    row(json!({
        "channel": channel, "seq": seq, "message_id": message_id(seq), "from": Party::Agent(id_of("a")),
        "content": format!("post {seq}"), "root_id": root_id(1), "hop": 0, "ts": at(seq),
    }))
}

/// Conversation `n` of the control adapter, last active at second `n`.
pub(super) fn conversation(n: u64, owner: &str) -> Conversation {
    row(json!({
        "conversation_id": conversation_id(n), "adapter": "control", "thread": format!("thread {n}"), "owner": owner,
        "party": Party::Outside("web".to_owned()), "last_seq": 0, "created_at": at(1), "updated_at": at(n), "heard": n,
        "heard_at": (n > 1).then(|| at(n)),
    }))
}

/// Outgoing entry `seq` of conversation `n`, at second `seq`.
pub(super) fn entry(n: u64, seq: u64, delivery: Delivery) -> ConversationEntry {
    row(json!({
        "conversation_id": conversation_id(n), "seq": seq, "message_id": message_id(1_000 * n + seq), "direction": "out",
        "from": Party::Agent(id_of("a")), "content": format!("entry {seq}"), "delivery": delivery, "attempts": 0,
        "at": at(seq),
    }))
}

pub(super) fn knowledge(entry_id: &str, version: i64) -> KnowledgeEntry {
    row(json!({
        "entry_id": entry_id, "title": format!("title of {entry_id}"), "content": format!("version {version}"),
        "readers": [Grantee::Everyone], "writers": [], "version": version, "creator": Party::System,
        "updated_by": Party::System, "created_at": at(1), "updated_at": at(1), "deleted": false,
    }))
}

pub(super) fn version(entry_id: &str, version: i64) -> KnowledgeVersion {
    let (title, content) = (format!("title of {entry_id}"), format!("version {version}"));
    KnowledgeVersion { entry_id: entry_id.to_owned(), version, title, content, by: Party::System, at: at(1) }
}

pub(super) fn state(key: &str, value: Value) -> StateEntry {
    StateEntry { key: key.to_owned(), value: value.into(), version: 1, writer: Party::System, updated_at: at(1) }
}

/// Schedule `n`, due at second `n`; a watch is never due.
pub(super) fn schedule(n: u64, agent: &str, kind: ScheduleKind, name: &str) -> Schedule {
    row(json!({
        "schedule_id": schedule_id(n), "kind": kind, "agent_id": agent, "name": name, "when": When::At { at: at(n) },
        "message": format!("schedule {n}"), "missed": Missed::Skip, "enabled": true, "root_id": root_id(1), "hop": 0,
        "conversation_id": conversation_id(3), "next_at": (kind != ScheduleKind::Watch).then(|| at(n)), "runs": 0,
        "creator": Party::System, "created_at": at(1),
    }))
}

/// Run `run` of schedule `n`, at second `run`. Each run has mail of its own.
pub(super) fn run(n: u64, run: u64) -> ScheduleRun {
    row(json!({
        "schedule_id": schedule_id(n), "run": run, "agent_id": "a", "slot_at": at(run), "fired_at": at(run),
        "late": false, "missed": 0, "status": "queued", "message_id": message_id(1_000 * n + run),
    }))
}

pub(super) fn droid_id(n: u64) -> AgentId {
    id_of(&format!("droid-{n:08x}"))
}

/// Droid `n` of an agent, which ended at second `ended`.
pub(super) fn droid(n: u64, parent: &str, ended: Option<u64>) -> Droid {
    row(json!({
        "droid_id": droid_id(n), "parent_id": parent, "task": AWKWARD, "mode": "run",
        "state": if ended.is_some() { "succeeded" } else { "running" }, "output_path": "droids/x/output.md",
        "terms": {
            "tools": ["workspace.read"], "groups": ["ops"], "parent_model": "p/m", "turn_seconds": 120, "depth": 1,
        },
        "root_id": root_id(1), "hop": 1, "created_at": at(0), "deadline_at": at(n), "ended_at": ended.map(at),
    }))
}

/// Grant `n`, which ends at second `n`.
pub(super) fn grant(n: u64, agent: &str) -> Grant {
    row(json!({
        "grant_id": grant_id(n), "agent_id": agent, "prefix": "output/", "source": "manual", "reason": AWKWARD,
        "created_by": Party::System, "created_at": at(0), "expires_at": at(n),
    }))
}

/// Artifact `n` of agent `a`, indexed at second `n`.
pub(super) fn artifact(path: &str, n: u64) -> Artifact {
    row(json!({
        "artifact_id": uuid(n), "path": path, "type": "report", "agent_id": "a", "turn_id": turn_id(n), "bytes": n,
        "sha256": "00", "created_at": at(n), "updated_at": at(n),
    }))
}

/// A watch snapshot of `files` files. The first one changed long before 1970.
pub(super) fn snapshot(files: u64) -> WatchSnapshot {
    let stamp =
        |n| FileStamp { bytes: n, changed_ns: i128::from(n) * 1_000_000_007 - (1_i128 << 62), inode: u64::MAX - n };
    let files: BTreeMap<String, FileStamp> = (0..files).map(|n| (format!("dir/é {n}"), stamp(n))).collect();
    WatchSnapshot { files }
}

/// A value that a careless backend would break.
pub(super) fn deep() -> Value {
    json!({"n": LARGE, "list": [null, true, 1.5, -7], "text": AWKWARD, "empty": {}})
}
