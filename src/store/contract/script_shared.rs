//! The part of the random scripts for chat, conversations, knowledge, shared state and schedules.
//!
//! A script must never break a rule of these tables (a chat message's sequence, unique names),
//! because the behaviour of a backend is then undefined.

use crate::Tx;
use ghost_domain::schedule::RunStatus;
use ghost_domain::{
    AgentId, Artifact, ChannelName, ChatChannel, ChatMember, ChatPost, Conversation, ConversationEntry, Delivery,
    Grant, KnowledgeEntry, Schedule, ScheduleKind, ScheduleRun, StateEntry,
};
use serde_json::json;

use super::random::{AGENTS, OpNumbers, moment, one_of};
use super::rows::{id_of, message_id, turn_id};
use super::rows_shared::{
    artifact, channel, channel_name, conversation, conversation_id, droid, droid_id, entry, grant, grant_id, knowledge,
    member, post, run, schedule, schedule_id, snapshot, state, version,
};

use crate::tables::{ArtifactFilter, Result};

const CHANNELS: [&str; 3] = ["a", "a-b", "b"];
const KNOWN: [&str; 4] = ["k", "k/1", "k/2", "l"];
const KEYS: [&str; 5] = ["a", "a.b", "a.c", "a_b", "b"];
const PREFIXES: [&str; 4] = ["", "a", "a.", "a_"];

/// The kind of an operation on these tables.
#[derive(Clone, Copy, Debug)]
pub(super) enum SharedOp {
    PutChannel,
    PutMember,
    RemoveMember,
    AppendPost,
    PutConversation,
    PutEntry,
    PutKnowledge,
    PutVersion,
    PruneVersions,
    PutState,
    PutSchedule,
    RemoveSchedule,
    PutRun,
    PutSnapshot,
    GetByKey,
    ScanChat,
    ScanConversations,
    ScanKnowledge,
    ScanState,
    ScanSchedules,
    PutGrant,
    RemoveGrant,
    PutArtifact,
    ScanGrants,
    PutDroid,
    ScanDroids,
}

impl SharedOp {
    pub(super) const ALL: [Self; 26] = [
        Self::PutChannel,
        Self::PutMember,
        Self::RemoveMember,
        Self::AppendPost,
        Self::PutConversation,
        Self::PutEntry,
        Self::PutKnowledge,
        Self::PutVersion,
        Self::PruneVersions,
        Self::PutState,
        Self::PutSchedule,
        Self::RemoveSchedule,
        Self::PutRun,
        Self::PutSnapshot,
        Self::GetByKey,
        Self::ScanChat,
        Self::ScanConversations,
        Self::ScanKnowledge,
        Self::ScanState,
        Self::ScanSchedules,
        Self::PutGrant,
        Self::RemoveGrant,
        Self::PutArtifact,
        Self::ScanGrants,
        Self::PutDroid,
        Self::ScanDroids,
    ];

    /// Runs the operation. Returns what it read, as text.
    pub(super) fn run(self, w: &mut Tx, numbers: OpNumbers) -> Result<String> {
        if let Some(done) = self.chat_and_conversations(w, numbers) {
            return done.map(|()| String::new());
        }
        if let Some(done) = self.knowledge_and_schedules(w, numbers) {
            return done.map(|()| String::new());
        }
        self.compare(w, numbers)
    }

    fn chat_and_conversations(self, w: &mut Tx, numbers: OpNumbers) -> Option<Result<()>> {
        let OpNumbers { n, a, b, c } = numbers;
        let (in_channel, agent) = (one_of(&CHANNELS, a), one_of(&AGENTS, b));
        let number = a % 4;
        Some(match self {
            Self::PutChannel => put_channel(w, in_channel, c.is_multiple_of(3), 0).map(|_| ()),
            Self::PutMember => {
                let wake_id = c.is_multiple_of(2).then(|| message_id(n));
                let read_seq = i64::try_from(c % 4).unwrap();
                w.chat_member_put(&ChatMember { wake_id, ..member(in_channel, agent, read_seq) })
            }
            Self::RemoveMember => w.chat_member_delete(&channel_name(in_channel), &id_of(agent)),
            Self::AppendPost => append_post(w, numbers, in_channel, agent),
            Self::PutConversation => {
                let updated_at = moment(n);
                w.conversation_put(&Conversation { updated_at, ..conversation(number, agent) })
            }
            Self::PutEntry => {
                let row = ConversationEntry {
                    // Few different times, so that some are equal.
                    next_at: (!c.is_multiple_of(3)).then(|| moment(c % 8)),
                    turn_id: b.is_multiple_of(2).then(|| turn_id(c % 6)),
                    content: format!("{n}"),
                    at: moment(n),
                    ..entry(number, 1 + b % 5, one_of(Delivery::ALL, c))
                };
                w.conversation_entry_put(&row)
            }
            _ => return None,
        })
    }

    fn knowledge_and_schedules(self, w: &mut Tx, numbers: OpNumbers) -> Option<Result<()>> {
        let OpNumbers { n, a, b, c } = numbers;
        let (agent, known) = (one_of(&AGENTS, b), one_of(&KNOWN, a));
        Some(match self {
            Self::PutKnowledge => {
                let row = knowledge(known, i64::try_from(n).unwrap());
                w.knowledge_put(&KnowledgeEntry { deleted: c.is_multiple_of(3), ..row })
            }
            Self::PutVersion => {
                let row = version(known, i64::try_from(b % 8).unwrap());
                w.knowledge_version_put(&ghost_domain::KnowledgeVersion { title: format!("{n}"), ..row })
            }
            Self::PruneVersions => w.knowledge_versions_prune(known, i64::try_from(b % 8).unwrap()),
            Self::PutState => {
                if c.is_multiple_of(4) {
                    return Some(w.state_remove(one_of(&KEYS, a)).map(drop));
                }
                let row = state(one_of(&KEYS, a), json!({ "n": n }));
                w.state_put(&StateEntry { version: i64::try_from(n).unwrap(), ..row })
            }
            Self::PutSchedule => put_schedule(w, numbers, agent),
            Self::RemoveSchedule => w.schedule_delete(schedule_id(a % 8)),
            Self::PutRun => {
                let row = run(a % 8, 1 + b % 4);
                let row = ScheduleRun {
                    message_id: row.message_id.filter(|_| !c.is_multiple_of(3)),
                    status: one_of(RunStatus::ALL, c),
                    fired_at: moment(n),
                    ..row
                };
                w.schedule_run_put(&row)
            }
            Self::PutDroid => w.droid_put(&droid(a % 6, agent, c.is_multiple_of(2).then_some(n))),
            Self::PutGrant => {
                let row = Grant { expires_at: moment(n), ..grant(a % 6, agent) };
                w.grant_put(&row)
            }
            Self::RemoveGrant => w.grant_remove(grant_id(a % 6)).map(drop),
            Self::PutArtifact => {
                let path = format!("output/{}", one_of(&KEYS, a));
                if c.is_multiple_of(4) {
                    return Some(w.artifact_remove(&path).map(drop));
                }
                w.artifact_put(&Artifact { agent_id: Some(id_of(agent)), bytes: n, ..artifact(&path, a) })
            }
            Self::PutSnapshot => w.watch_snapshot_put(schedule_id(a % 8), &snapshot(c % 3)),
            _ => return None,
        })
    }

    fn compare(self, w: &mut Tx, numbers: OpNumbers) -> Result<String> {
        let OpNumbers { n, a, b, c } = numbers;
        let (in_channel, agent) = (channel_name(one_of(&CHANNELS, a)), id_of(one_of(&AGENTS, b)));
        let limit = u32::try_from(1 + c % 5).unwrap();
        Ok(match self {
            Self::GetByKey => {
                let found = (
                    w.chat_channel_get(&in_channel)?,
                    w.chat_member_get(&in_channel, &agent)?,
                    w.conversation_get(conversation_id(a % 4))?,
                    w.conversation_find("control", &format!("thread {}", b % 4))?,
                    w.knowledge_get(one_of(&KNOWN, a))?,
                    w.state_get(one_of(&KEYS, c))?,
                    w.schedule_get(schedule_id(a % 8))?,
                    w.schedule_find(&agent, one_of(ScheduleKind::ALL, c), &name(a))?,
                    w.schedule_run_of(message_id(1_000 * (a % 8) + 1 + b % 4))?,
                    w.watch_snapshot_get(schedule_id(c % 8))?,
                );
                format!("{found:?}")
            }
            Self::ScanChat => chat(w, &in_channel, &agent, i64::try_from(c % 5).unwrap(), limit)?,
            Self::ScanConversations => {
                let owner = c.is_multiple_of(2).then_some(&agent);
                let found = (
                    w.conversation_list(
                        owner,
                        b.is_multiple_of(3).then(|| (moment(c % 9), conversation_id(a % 4))),
                        limit,
                    )?,
                    w.conversation_entries(conversation_id(a % 4), i64::try_from(b % 4).unwrap(), limit)?,
                    w.conversation_entries_of_turn(turn_id(c % 6))?,
                    w.deliveries_due(moment(if c.is_multiple_of(4) { n } else { c % 9 }), &[], limit)?,
                    w.delivery_next_at()?,
                );
                format!("{found:?}")
            }
            Self::ScanKnowledge => {
                let (after, of) = (if c.is_multiple_of(2) { "" } else { one_of(&KNOWN, b) }, one_of(&KNOWN, a));
                let listed = (w.knowledge_list(after, limit)?, w.knowledge_count()?);
                format!("{listed:?} {:?}", w.knowledge_versions(of)?)
            }
            Self::ScanState => {
                let after = if c.is_multiple_of(2) { "" } else { one_of(&KEYS, b) };
                let listed = w.state_list(one_of(&PREFIXES, a), after, limit)?;
                format!("{listed:?} {}", w.state_count()?)
            }
            Self::ScanDroids => {
                let after = c.is_multiple_of(2).then(|| droid_id(a % 6));
                let parent = b.is_multiple_of(2).then_some(&agent);
                let found = (
                    w.droid_get(&droid_id(a % 6))?,
                    w.droids_live()?,
                    w.droids_live_count(&agent)?,
                    w.droid_list(parent, after.as_ref(), limit)?,
                );
                format!("{found:?}")
            }
            Self::ScanGrants => {
                let prefix = format!("output/{}", one_of(&PREFIXES, a));
                let agent_id = c.is_multiple_of(2).then(|| agent.clone());
                let after = format!("output/{}", one_of(&KEYS, b));
                let found = (
                    w.grants_live(&agent, moment(n.saturating_sub(b % 9)))?,
                    w.grant_list(c.is_multiple_of(2).then(|| grant_id(a % 6)), limit)?,
                    w.grant_get(grant_id(a % 6))?,
                    w.artifact_get(&after)?,
                    w.artifact_list(&ArtifactFilter { prefix, agent_id, after, limit })?,
                );
                format!("{found:?}")
            }
            _ => {
                let (of, kind) = (c.is_multiple_of(2).then_some(&agent), one_of(ScheduleKind::ALL, a));
                let after = b.is_multiple_of(2).then(|| (agent.clone(), kind, name(c)));
                let found = (
                    w.schedule_list(of, b.is_multiple_of(3).then_some(kind), after.as_ref())?,
                    w.schedule_count(&agent, kind)?,
                    w.schedules_due(moment(c % 9), limit)?,
                    w.schedule_next_at()?,
                    w.schedule_runs(schedule_id(a % 8), limit)?,
                );
                format!("{found:?}")
            }
        })
    }
}

fn name(random: u64) -> String {
    one_of(&["x", "y"], random).to_owned()
}

/// Writes a channel whose sequence does not decrease. Returns the sequence that is `more` higher.
fn put_channel(w: &mut Tx, in_channel: &str, gated: bool, more: i64) -> Result<i64> {
    let seq = w.chat_channel_get(&channel_name(in_channel))?.map_or(0, |found| found.last_seq) + more;
    w.chat_channel_put(&ChatChannel { gated, ..channel(in_channel, seq) })?;
    Ok(seq)
}

fn append_post(w: &mut Tx, numbers: OpNumbers, in_channel: &str, agent: &str) -> Result<()> {
    let seq = put_channel(w, in_channel, numbers.c.is_multiple_of(5), 1)?;
    let mentions = if numbers.c.is_multiple_of(2) { vec![id_of(agent)] } else { Vec::new() };
    let row = post(in_channel, u64::try_from(seq).unwrap());
    w.chat_post_append(&ChatPost { message_id: message_id(numbers.n), mentions, ts: moment(numbers.n), ..row })
}

/// Replaces the schedule with this name, or adds one with a random id.
fn put_schedule(w: &mut Tx, numbers: OpNumbers, agent: &str) -> Result<()> {
    let OpNumbers { n, a, c, .. } = numbers;
    let (kind, name) = (one_of(ScheduleKind::ALL, c), name(a));
    let number = match w.schedule_find(&id_of(agent), kind, &name)? {
        Some(found) => u64::try_from(found.schedule_id.0.as_u128()).unwrap(),
        // If another schedule has this id, it is renamed.
        None => a % 8,
    };
    let next_at = (!c.is_multiple_of(3)).then(|| moment(c % 8));
    let row = Schedule { next_at, runs: i64::try_from(n).unwrap(), ..schedule(number, agent, kind, &name) };
    w.schedule_put(&row)
}

fn chat(r: &mut Tx, in_channel: &ChannelName, agent: &AgentId, cursor: i64, limit: u32) -> Result<String> {
    let found = (
        r.chat_channel_list()?,
        r.chat_channel_count()?,
        r.chat_members(in_channel)?,
        r.chat_memberships(agent)?,
        r.chat_unread(agent)?,
        r.chat_posts(in_channel, cursor, 0, limit)?,
        r.chat_posts(in_channel, 0, cursor, limit)?,
    );
    Ok(format!("{found:?}"))
}

/// Everything that can be read from these tables, one fact per line.
pub(super) fn observe(r: &mut Tx) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for in_channel in CHANNELS {
        for agent in AGENTS {
            lines.push(chat(r, &channel_name(in_channel), &id_of(agent), 0, 10_000)?);
        }
    }
    lines.push(format!("{:?}", r.conversation_list(None, None, 1_000)?));
    for n in 0..4 {
        let found = r.conversation_find("control", &format!("thread {n}"))?;
        lines.push(format!("{found:?} {:?}", r.conversation_entries(conversation_id(n), 0, 10_000)?));
    }
    for n in 0..6 {
        lines.push(format!("{:?}", r.conversation_entries_of_turn(turn_id(n))?));
    }
    let due = r.deliveries_due(ghost_domain::Timestamp(i64::MAX), &[], 10_000)?;
    lines.push(format!("{due:?} {:?}", r.delivery_next_at()?));
    lines.push(format!("{:?} {}", r.knowledge_list("", 10_000)?, r.knowledge_count()?));
    for known in KNOWN {
        lines.push(format!("{:?} {:?}", r.knowledge_get(known)?, r.knowledge_versions(known)?));
    }
    for prefix in PREFIXES {
        lines.push(format!("{:?} {}", r.state_list(prefix, "", 10_000)?, r.state_count()?));
    }
    lines.push(format!("{:?}", r.droid_list(None, None, 1_000)?));
    lines.push(format!("{:?}", r.grant_list(None, 1_000)?));
    let all = ArtifactFilter { limit: 1_000, ..ArtifactFilter::default() };
    lines.push(format!("{:?}", r.artifact_list(&all)?));
    lines.push(format!("{:?}", r.schedule_list(None, None, None)?));
    let due = r.schedules_due(ghost_domain::Timestamp(i64::MAX), 10_000)?;
    lines.push(format!("{due:?} {:?}", r.schedule_next_at()?));
    for agent in AGENTS {
        for kind in ScheduleKind::ALL {
            lines.push(format!("{agent} {kind} {}", r.schedule_count(&id_of(agent), *kind)?));
        }
    }
    for n in 0..8 {
        lines.push(format!(
            "{:?} {:?}",
            r.schedule_runs(schedule_id(n), 10_000)?,
            r.watch_snapshot_get(schedule_id(n))?
        ));
        for number in 1..=4 {
            lines.push(format!("{:?}", r.schedule_run_of(message_id(1_000 * n + number))?));
        }
    }
    Ok(lines)
}
