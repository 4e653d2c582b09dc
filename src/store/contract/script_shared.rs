//! The part of the random scripts for chat, conversations, knowledge, shared state and schedules.
//!
//! A script must never break a rule of these tables (a chat message's sequence, unique names),
//! because the behaviour of a backend is then undefined.

use super::random::{AGENTS, OpNumbers, Run, moment, one_of, operations, show};
use super::tools::*;

const CHANNELS: [&str; 3] = ["a", "a-b", "b"];
const KNOWN: [&str; 4] = ["k", "k/1", "k/2", "l"];
const KEYS: [&str; 5] = ["a", "a.b", "a.c", "a_b", "b"];
const PREFIXES: [&str; 4] = ["", "a", "a.", "a_"];

operations! {
    w, n, a, b, c;
    "put channel": put_channel(w, one_of(&CHANNELS, a), c.is_multiple_of(3), 0)?;
    "put member": {
        let row = member(one_of(&CHANNELS, a), one_of(&AGENTS, b), number(c % 4));
        w.chat_member_put(&ChatMember { wake_id: c.is_multiple_of(2).then(|| message_id(n)), ..row })?
    };
    "remove member": w.chat_member_delete(&channel_name(one_of(&CHANNELS, a)), &id_of(one_of(&AGENTS, b)))?;
    "append post": {
        let in_channel = one_of(&CHANNELS, a);
        let seq = put_channel(w, in_channel, c.is_multiple_of(5), 1)?;
        let mentions = if c.is_multiple_of(2) { vec![id_of(one_of(&AGENTS, b))] } else { Vec::new() };
        let row = post(in_channel, u64::try_from(seq).unwrap());
        w.chat_post_append(&ChatPost { message_id: message_id(n), mentions, ts: moment(n), ..row })?
    };
    "put conversation":
        w.conversation_put(&Conversation { updated_at: moment(n), ..conversation(a % 4, one_of(&AGENTS, b)) })?;
    "put entry": w.conversation_entry_put(&ConversationEntry {
        // Few different times, so that some are equal.
        next_at: (!c.is_multiple_of(3)).then(|| moment(c % 8)),
        turn_id: b.is_multiple_of(2).then(|| turn_id(c % 6)),
        content: format!("{n}"),
        at: moment(n),
        ..entry(a % 4, 1 + b % 5, one_of(Delivery::ALL, c))
    })?;
    "put knowledge": {
        let row = knowledge(one_of(&KNOWN, a), number(n));
        w.knowledge_put(&KnowledgeEntry { deleted: c.is_multiple_of(3), ..row })?
    };
    "put version": {
        let row = version(one_of(&KNOWN, a), number(b % 8));
        w.knowledge_version_put(&KnowledgeVersion { title: format!("{n}"), ..row })?
    };
    "prune versions": w.knowledge_versions_prune(one_of(&KNOWN, a), number(b % 8))?;
    "put state": {
        if c.is_multiple_of(4) {
            return show(w.state_remove(one_of(&KEYS, a))?);
        }
        w.state_put(&StateEntry { version: number(n), ..state(one_of(&KEYS, a), json!({ "n": n })) })?
    };
    // Replaces the schedule with this name, or adds one with a random id.
    "put schedule": {
        let (agent, kind, name) = (one_of(&AGENTS, b), one_of(ScheduleKind::ALL, c), name(a));
        let id = match w.schedule_find(&id_of(agent), kind, &name)? {
            Some(found) => u64::try_from(found.schedule_id.0.as_u128()).unwrap(),
            // If another schedule has this id, it is renamed.
            None => a % 8,
        };
        let next_at = (!c.is_multiple_of(3)).then(|| moment(c % 8));
        w.schedule_put(&Schedule { next_at, runs: number(n), ..schedule(id, agent, kind, &name) })?
    };
    "remove schedule": w.schedule_delete(schedule_id(a % 8))?;
    "put run": {
        let row = run(a % 8, 1 + b % 4);
        let message_id = row.message_id.filter(|_| !c.is_multiple_of(3));
        let status = one_of(RunStatus::ALL, c);
        w.schedule_run_put(&ScheduleRun { message_id, status, fired_at: moment(n), ..row })?
    };
    "put snapshot": w.watch_snapshot_put(schedule_id(a % 8), &snapshot(c % 3))?;
    "get by key": {
        let (in_channel, agent) = (channel_name(one_of(&CHANNELS, a)), id_of(one_of(&AGENTS, b)));
        (
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
        )
    };
    "scan chat": chat(w, &channel_name(one_of(&CHANNELS, a)), &id_of(one_of(&AGENTS, b)), number(c % 5), limit(c))?;
    "scan conversations": {
        let agent = id_of(one_of(&AGENTS, b));
        let owner = c.is_multiple_of(2).then_some(&agent);
        let after = b.is_multiple_of(3).then(|| (moment(c % 9), conversation_id(a % 4)));
        (
            w.conversation_list(owner, after, limit(c))?,
            w.conversation_entries(conversation_id(a % 4), number(b % 4), limit(c))?,
            w.conversation_entries_of_turn(turn_id(c % 6))?,
            w.deliveries_due(moment(if c.is_multiple_of(4) { n } else { c % 9 }), &[], limit(c))?,
            w.delivery_next_at()?,
        )
    };
    "scan knowledge": {
        let after = if c.is_multiple_of(2) { "" } else { one_of(&KNOWN, b) };
        let versions = w.knowledge_versions(one_of(&KNOWN, a))?;
        (w.knowledge_list(after, limit(c))?, w.knowledge_count()?, versions)
    };
    "scan state": {
        let after = if c.is_multiple_of(2) { "" } else { one_of(&KEYS, b) };
        (w.state_list(one_of(&PREFIXES, a), after, limit(c))?, w.state_count()?)
    };
    "scan schedules": {
        let (agent, kind) = (id_of(one_of(&AGENTS, b)), one_of(ScheduleKind::ALL, a));
        let of = c.is_multiple_of(2).then_some(&agent);
        let after = b.is_multiple_of(2).then(|| (agent.clone(), kind, name(c)));
        (
            w.schedule_list(of, b.is_multiple_of(3).then_some(kind), after.as_ref())?,
            w.schedule_count(&agent, kind)?,
            w.schedules_due(moment(c % 9), limit(c))?,
            w.schedule_next_at()?,
            w.schedule_runs(schedule_id(a % 8), limit(c))?,
        )
    };
    "put grant": w.grant_put(&Grant { expires_at: moment(n), ..grant(a % 6, one_of(&AGENTS, b)) })?;
    "remove grant": w.grant_remove(grant_id(a % 6))?;
    "put artifact": {
        let path = format!("output/{}", one_of(&KEYS, a));
        if c.is_multiple_of(4) {
            return show(w.artifact_remove(&path)?);
        }
        let agent_id = Some(id_of(one_of(&AGENTS, b)));
        w.artifact_put(&Artifact { agent_id, bytes: n, ..artifact(&path, a) })?
    };
    "scan grants": {
        let agent = id_of(one_of(&AGENTS, b));
        let prefix = format!("output/{}", one_of(&PREFIXES, a));
        let agent_id = c.is_multiple_of(2).then(|| agent.clone());
        let after = format!("output/{}", one_of(&KEYS, b));
        (
            w.grants_live(&agent, moment(n.saturating_sub(b % 9)))?,
            w.grant_list(c.is_multiple_of(2).then(|| grant_id(a % 6)), limit(c))?,
            w.grant_get(grant_id(a % 6))?,
            w.artifact_get(&after)?,
            w.artifact_list(&ArtifactFilter { prefix, agent_id, after, limit: limit(c) })?,
        )
    };
    "put droid": w.droid_put(&droid(a % 6, one_of(&AGENTS, b), c.is_multiple_of(2).then_some(n)))?;
    "scan droids": {
        let agent = id_of(one_of(&AGENTS, b));
        let after = c.is_multiple_of(2).then(|| droid_id(a % 6));
        (
            w.droid_get(&droid_id(a % 6))?,
            w.droids_live()?,
            w.droids_live_count(&agent)?,
            w.droid_list(b.is_multiple_of(2).then_some(&agent), after.as_ref(), limit(c))?,
        )
    };
}

fn limit(random: u64) -> u32 {
    u32::try_from(1 + random % 5).unwrap()
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

fn chat(r: &mut Tx, in_channel: &ChannelName, agent: &AgentId, cursor: i64, limit: u32) -> Result<String> {
    show((
        r.chat_channel_list()?,
        r.chat_channel_count()?,
        r.chat_members(in_channel)?,
        r.chat_memberships(agent)?,
        r.chat_unread(agent)?,
        r.chat_posts(in_channel, cursor, 0, limit)?,
        r.chat_posts(in_channel, 0, cursor, limit)?,
    ))
}

/// Everything that can be read from these tables, one fact per line.
pub(super) fn observe(r: &mut Tx) -> Result<Vec<String>> {
    const ALL: u32 = 10_000;
    let ever = Timestamp(i64::MAX);
    let mut lines = Vec::new();
    for in_channel in CHANNELS {
        for agent in AGENTS {
            lines.push(chat(r, &channel_name(in_channel), &id_of(agent), 0, ALL)?);
        }
    }
    lines.push(show(r.conversation_list(None, None, ALL)?)?);
    for n in 0..4 {
        let found = r.conversation_find("control", &format!("thread {n}"))?;
        lines.push(show((found, r.conversation_entries(conversation_id(n), 0, ALL)?))?);
    }
    for n in 0..6 {
        lines.push(show(r.conversation_entries_of_turn(turn_id(n))?)?);
    }
    lines.push(show((r.deliveries_due(ever, &[], ALL)?, r.delivery_next_at()?))?);
    lines.push(show((r.knowledge_list("", ALL)?, r.knowledge_count()?))?);
    for known in KNOWN {
        lines.push(show((r.knowledge_get(known)?, r.knowledge_versions(known)?))?);
    }
    for prefix in PREFIXES {
        lines.push(show((r.state_list(prefix, "", ALL)?, r.state_count()?))?);
    }
    lines.push(show((r.droid_list(None, None, ALL)?, r.grant_list(None, ALL)?))?);
    lines.push(show(r.artifact_list(&ArtifactFilter { limit: ALL, ..ArtifactFilter::default() })?)?);
    lines.push(show((r.schedule_list(None, None, None)?, r.schedules_due(ever, ALL)?, r.schedule_next_at()?))?);
    for agent in AGENTS {
        for kind in ScheduleKind::ALL {
            lines.push(show((agent, kind, r.schedule_count(&id_of(agent), *kind)?))?);
        }
    }
    for n in 0..8 {
        lines.push(show((r.schedule_runs(schedule_id(n), ALL)?, r.watch_snapshot_get(schedule_id(n))?))?);
        for number in 1..=4 {
            lines.push(show(r.schedule_run_of(message_id(1_000 * n + number))?)?);
        }
    }
    Ok(lines)
}
