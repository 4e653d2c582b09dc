//! Plain rows of chat, conversations, knowledge, shared state and schedules, by name and number.

use std::collections::BTreeMap;

use ghost_domain::schedule::{FileStamp, Missed, When};
use ghost_domain::{
    AgentId, Artifact, ArtifactId, ChannelName, ChatChannel, ChatMember, ChatPost, Conversation, ConversationEntry,
    Delivery, Direction, Droid, DroidMode, DroidState, DroidTerms, DroidUse, Grant, GrantSource, Grantee,
    KnowledgeEntry, KnowledgeVersion, Party, Schedule, ScheduleKind, ScheduleRun, StateEntry, WatchSnapshot,
};
use serde_json::{Value, json};

use super::rows::{
    AWKWARD, LARGE, at, conversation_id, grant_id, id_of, message_id, root_id, schedule_id, turn_id, uuid,
};

pub(super) fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap()
}

pub(super) fn channel_name(channel: &str) -> ChannelName {
    channel.parse().unwrap()
}

/// An ungated channel whose last chat message is `last_seq`.
pub(super) fn channel(name: &str, last_seq: i64) -> ChatChannel {
    ChatChannel {
        channel: channel_name(name),
        creator: Party::System,
        gated: false,
        topic: None,
        members: 0,
        last_seq,
        created_at: at(1),
    }
}

pub(super) fn member(channel: &str, agent: &str, read_seq: i64) -> ChatMember {
    ChatMember { channel: channel_name(channel), agent_id: id_of(agent), read_seq, wake_id: None, joined_at: at(1) }
}

/// Chat message `seq` of a channel, at second `seq`.
pub(super) fn post(channel: &str, seq: u64) -> ChatPost {
    ChatPost {
        channel: channel_name(channel),
        seq: number(seq),
        message_id: message_id(seq),
        from: Party::Agent(id_of("a")),
        content: format!("post {seq}"),
        mentions: Vec::new(),
        reply_to: None,
        root_id: root_id(1),
        hop: 0,
        ts: at(seq),
    }
}

/// Conversation `n` of the control adapter, last active at second `n`.
pub(super) fn conversation(n: u64, owner: &str) -> Conversation {
    Conversation {
        conversation_id: conversation_id(n),
        adapter: "control".to_owned(),
        thread: format!("thread {n}"),
        owner: id_of(owner),
        party: Party::Outside("web".to_owned()),
        last_seq: 0,
        created_at: at(1),
        updated_at: at(n),
        heard: n,
        heard_at: (n > 1).then(|| at(n)),
        reacted: None,
        passed_on: Vec::new(),
        ended_at: None,
    }
}

/// Outgoing entry `seq` of conversation `n`, at second `seq`.
pub(super) fn entry(n: u64, seq: u64, delivery: Delivery) -> ConversationEntry {
    ConversationEntry {
        conversation_id: conversation_id(n),
        seq: number(seq),
        message_id: message_id(1_000 * n + seq),
        direction: Direction::Out,
        from: Party::Agent(id_of("a")),
        content: format!("entry {seq}"),
        attachments: Vec::new(),
        reply_to: None,
        external_id: None,
        turn_id: None,
        delivery,
        attempts: 0,
        next_at: None,
        error: None,
        at: at(seq),
        action: None,
        deleted: false,
    }
}

pub(super) fn knowledge(entry_id: &str, version: i64) -> KnowledgeEntry {
    KnowledgeEntry {
        entry_id: entry_id.to_owned(),
        title: format!("title of {entry_id}"),
        content: format!("version {version}"),
        tags: Vec::new(),
        readers: vec![Grantee::Everyone],
        writers: Vec::new(),
        version,
        creator: Party::System,
        updated_by: Party::System,
        created_at: at(1),
        updated_at: at(1),
        deleted: false,
    }
}

pub(super) fn version(entry_id: &str, version: i64) -> KnowledgeVersion {
    KnowledgeVersion {
        entry_id: entry_id.to_owned(),
        version,
        title: format!("title of {entry_id}"),
        content: format!("version {version}"),
        by: Party::System,
        at: at(1),
    }
}

pub(super) fn state(key: &str, value: Value) -> StateEntry {
    StateEntry { key: key.to_owned(), value: value.into(), version: 1, writer: Party::System, updated_at: at(1) }
}

/// Schedule `n`, due at second `n`; a watch is never due.
pub(super) fn schedule(n: u64, agent: &str, kind: ScheduleKind, name: &str) -> Schedule {
    Schedule {
        schedule_id: schedule_id(n),
        kind,
        agent_id: id_of(agent),
        name: name.to_owned(),
        when: When::At { at: at(n) },
        message: format!("schedule {n}"),
        missed: Missed::Skip,
        mode: ghost_domain::schedule::JobMode::default(),
        enabled: true,
        root_id: root_id(1),
        hop: 0,
        conversation_id: Some(conversation_id(3)),
        next_at: (kind != ScheduleKind::Watch).then(|| at(n)),
        last_at: None,
        last_status: None,
        runs: 0,
        creator: Party::System,
        created_at: at(1),
    }
}

/// Run `run` of schedule `n`, at second `run`. Each run has mail of its own.
pub(super) fn run(n: u64, run: u64) -> ScheduleRun {
    ScheduleRun {
        schedule_id: schedule_id(n),
        run: number(run),
        agent_id: id_of("a"),
        slot_at: at(run),
        fired_at: at(run),
        late: false,
        missed: 0,
        status: ghost_domain::schedule::RunStatus::Queued,
        message_id: Some(message_id(1_000 * n + run)),
        note: None,
        own_turn: None,
    }
}

pub(super) fn droid_id(n: u64) -> AgentId {
    id_of(&format!("droid-{n:08x}"))
}

/// Droid `n` of an agent, which ended at second `ended`.
pub(super) fn droid(n: u64, parent: &str, ended: Option<u64>) -> Droid {
    let terms = DroidTerms {
        tools: std::iter::once("workspace.read".to_owned()).collect(),
        groups: std::iter::once("ops".to_owned()).collect(),
        model: None,
        parent_model: "p/m".to_owned(),
        turn_seconds: 120,
        depth: 1,
    };
    Droid {
        droid_id: droid_id(n),
        parent_id: id_of(parent),
        label: None,
        task: AWKWARD.to_owned(),
        mode: DroidMode::Run,
        state: if ended.is_some() { DroidState::Succeeded } else { DroidState::Running },
        output_path: "droids/x/output.md".to_owned(),
        terms,
        root_id: root_id(1),
        conversation_id: None,
        hop: 1,
        created_at: at(0),
        deadline_at: at(n),
        ended_at: ended.map(at),
        error: None,
        result: None,
        used: DroidUse::default(),
    }
}

/// Grant `n`, which ends at second `n`.
pub(super) fn grant(n: u64, agent: &str) -> Grant {
    Grant {
        grant_id: grant_id(n),
        agent_id: id_of(agent),
        prefix: "output/".to_owned(),
        source: GrantSource::Manual,
        reason: Some(AWKWARD.to_owned()),
        created_by: Party::System,
        created_at: at(0),
        expires_at: at(n),
    }
}

/// Artifact `n` of agent `a`, indexed at second `n`.
pub(super) fn artifact(path: &str, n: u64) -> Artifact {
    Artifact {
        droid_id: None,
        artifact_id: ArtifactId(uuid(n)),
        path: path.to_owned(),
        kind: ghost_domain::ArtifactType::Report,
        agent_id: Some(id_of("a")),
        turn_id: Some(turn_id(n)),
        bytes: n,
        sha256: "00".to_owned(),
        created_at: at(n),
        updated_at: at(n),
    }
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
