//! Converts wire records to JSON objects. `ghostctl --json`, REST and the event streams all use
//! these shapes, so that programs can rely on them.
//!
//! Must never: leave out a key because it has no value (the value is `null`), or give an id
//! different names in different records. Exception: events leave out `channel` and `correlation_id`
//! if they have none.

pub mod names;
mod time;

use ghost_proto::v1;
use serde_json::{Map, Value, json};

pub use time::rfc3339;

/// Parses JSON text from the daemon. Empty text becomes `null`; text that is not JSON becomes a
/// string.
#[must_use]
pub fn parsed(text: &str) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

fn instant(ms: Option<i64>) -> Value {
    ms.map(rfc3339).into()
}

/// An agent's record.
#[must_use]
pub fn agent(agent: &v1::Agent) -> Value {
    json!({
        "agent_id": agent.agent_id,
        "incarnation": agent.incarnation,
        "archetype": agent.archetype,
        "name": agent.name,
        "team": agent.team,
        "owner": agent.owner,
        "kind": agent.kind,
        "desired": agent.desired,
        "status": agent.status,
        "status_reason": agent.status_reason,
        "activity": agent.activity,
        "restarts": agent.restarts,
        "overrides": parsed(&agent.overrides_json),
        "node": agent.node,
        "epoch": agent.epoch,
        "created_at": rfc3339(agent.created_at_ms),
        "updated_at": rfc3339(agent.updated_at_ms),
        "last_active_at": instant(agent.last_active_at_ms),
        "deleted_at": instant(agent.deleted_at_ms),
    })
}

/// An agent's record with its pending mail, open turn, model and tools.
#[must_use]
pub fn agent_at_work(answer: &v1::GetAgentResponse) -> Value {
    let mut object = answer.agent.as_ref().map(agent).unwrap_or_default();
    if let Value::Object(object) = &mut object {
        object.insert("inbox_pending".into(), answer.inbox_pending.into());
        object.insert("turn_id".into(), answer.turn_id.clone().into());
        object.insert("model".into(), answer.model.clone().into());
        object.insert("tools".into(), answer.tools.into());
        object.insert("access".into(), answer.access.clone().into());
        object.insert("cannot_run".into(), answer.cannot_run.clone().into());
        object.insert("waits".into(), answer.waits.clone().into());
    }
    object
}

/// A turn, without its journal.
#[must_use]
pub fn turn(turn: &v1::Turn) -> Value {
    json!({
        "turn_id": turn.turn_id,
        "agent_id": turn.agent_id,
        "incarnation": turn.incarnation,
        "root_id": turn.root_id,
        "other_roots": turn.other_roots,
        "hop": turn.hop,
        "source": turn.source,
        "about": turn.about,
        "status": turn.status,
        "parked_since": instant(turn.parked_since_ms),
        "reason": turn.reason,
        "model": turn.model,
        "rounds": turn.rounds,
        "calls": turn.calls,
        "input_tokens": turn.input_tokens,
        "output_tokens": turn.output_tokens,
        "cost_usd": usd(turn.cost_micros),
        "unpriced_tokens": turn.unpriced_tokens,
        "text": turn.text,
        "truncated": turn.truncated,
        "started_at": rfc3339(turn.started_at_ms),
        "ended_at": instant(turn.ended_at_ms),
        "crashes": turn.crashes,
        "stalled_boots": turn.stalled_boots,
        "boot_mark": turn.boot_mark,
    })
}

/// A journal row: one step of a turn with its sequence number and time.
#[must_use]
pub fn step(row: &v1::JournalRow) -> Value {
    json!({
        "seq": row.seq,
        "step": row.step,
        "at": rfc3339(row.recorded_at_ms),
        "fact": parsed(&row.step_json),
    })
}

/// A task, without its history.
#[must_use]
pub fn task(task: &v1::Task) -> Value {
    json!({
        "task_id": task.task_id,
        "title": task.title,
        "description": task.description,
        "owner": task.owner,
        "creator": task.creator,
        "status": task.status,
        "priority": task.priority,
        "depends_on": task.depends_on,
        "parent_id": task.parent_id,
        "due_at": instant(task.due_at_ms),
        "result": task.result,
        "root_id": task.root_id,
        "created_at": rfc3339(task.created_at_ms),
        "updated_at": rfc3339(task.updated_at_ms),
    })
}

/// A task with its history. `notes` repeats the history entries that have a note.
#[must_use]
pub fn task_with_history(answer: &v1::GetTaskResponse) -> Value {
    let mut object = answer.task.as_ref().map(task).unwrap_or_default();
    if let Value::Object(object) = &mut object {
        let noted = answer
            .history
            .iter()
            .filter(|event| event.note.is_some())
            .map(|event| json!({ "at": rfc3339(event.changed_at_ms), "by": event.by, "note": event.note }));
        object.insert("notes".into(), noted.collect());
        object.insert("history".into(), answer.history.iter().map(task_event).collect());
        object.insert("history_truncated".into(), answer.history_truncated.into());
    }
    object
}

/// One change of a task.
#[must_use]
pub fn task_event(event: &v1::TaskEvent) -> Value {
    json!({
        "by": event.by,
        "at": rfc3339(event.changed_at_ms),
        "status": event.status,
        "owner": event.owner,
        "note": event.note,
    })
}

/// A tool call in the ledger.
#[must_use]
pub fn ledger_row(row: &v1::LedgerRow) -> Value {
    json!({
        "call_id": row.call_id,
        "agent_id": row.agent_id,
        "turn_id": row.turn_id,
        "tool": row.tool,
        "alias": row.alias,
        "arguments": parsed(&row.arguments_json),
        "result": row.result,
        "status": row.status,
        "error_code": row.error_code,
        "started_at": rfc3339(row.started_at_ms),
        "duration_ms": row.duration_ms,
        "truncated": row.truncated,
    })
}

/// A dead letter: the messages of a turn that was given up.
#[must_use]
pub fn dead_letter(letter: &v1::DeadLetter) -> Value {
    json!({
        "dead_letter_id": letter.dead_letter_id,
        "agent_id": letter.agent_id,
        "turn_id": letter.turn_id,
        "messages": letter.messages,
        "reason": letter.reason,
        "crashes": letter.crashes,
        "status": letter.status,
        "created_at": rfc3339(letter.created_at_ms),
        "resolved_at": instant(letter.resolved_at_ms),
    })
}

/// A message in an inbox.
#[must_use]
pub fn envelope(mail: &v1::Envelope) -> Value {
    json!({
        "message_id": mail.message_id,
        "seq": mail.seq,
        "to": mail.to,
        "from": mail.from,
        "kind": mail.kind,
        "subject": mail.subject,
        "body": mail.body,
        "attachments": mail.attachments,
        "ask_id": mail.ask_id,
        "conversation_id": mail.conversation_id,
        "root_id": mail.root_id,
        "hop": mail.hop,
        "wake": mail.wake,
        "created_at": rfc3339(mail.created_at_ms),
        "state": mail.state,
        "turn_id": mail.turn_id,
        "crashes": mail.crashes,
    })
}

/// The account of a budget: its limits, reservations and spending.
#[must_use]
pub fn budget(budget: &v1::Budget) -> Value {
    json!({
        "scope": budget.scope,
        "limit_tokens": budget.limit_tokens,
        "limit_usd": budget.limit_micros.map(usd),
        "reserved_tokens": budget.reserved_tokens,
        "reserved_usd": usd(budget.reserved_micros),
        "spent_tokens": budget.spent_tokens,
        "spent_usd": usd(budget.spent_micros),
        "unpriced_tokens": budget.unpriced_tokens,
        "passed": budget.passed,
        "updated_at": rfc3339(budget.updated_at_ms),
    })
}

/// The sum of one agent's calls to one model.
#[must_use]
pub fn usage_sum(sum: &v1::UsageSum) -> Value {
    let tokens = sum.tokens.unwrap_or_default();
    json!({
        "agent_id": sum.agent_id,
        "model": sum.model,
        "calls": sum.calls,
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_tokens": tokens.cache_read,
        "cache_write_tokens": tokens.cache_write,
        "cost_usd": usd(sum.cost_micros),
        "estimated_calls": sum.estimated_calls,
        "estimated_usd": usd(sum.estimated_micros),
        "unpriced_tokens": sum.unpriced_tokens,
    })
}

/// The world's main job.
#[must_use]
pub fn job(job: &v1::Job) -> Value {
    json!({
        "job_id": job.job_id,
        "state": job.state,
        "files": job.files,
        "result_path": job.result_path,
        "cost_usd": usd(job.cost_micros),
        "unpriced_tokens": job.unpriced_tokens,
        "root_id": job.root_id,
        "started_at": rfc3339(job.started_at_ms),
        "finished_at": instant(job.finished_at_ms),
    })
}

/// An event. `ephemeral` marks an event that is streamed but not stored.
#[must_use]
pub fn event(event: &v1::Event, ephemeral: bool) -> Value {
    let mut object = Map::new();
    object.insert("seq".into(), event.seq.into());
    object.insert("event_id".into(), event.event_id.as_str().into());
    object.insert("ts".into(), rfc3339(event.ts_ms).into());
    object.insert("kind".into(), event.kind.as_str().into());
    object.insert("agent_id".into(), event.agent_id.clone().into());
    object.insert("payload".into(), parsed(&event.payload_json));
    if let Some(channel) = &event.channel {
        object.insert("channel".into(), channel.as_str().into());
    }
    if let Some(id) = &event.correlation_id {
        object.insert("correlation_id".into(), id.as_str().into());
    }
    if ephemeral {
        object.insert("ephemeral".into(), true.into());
    }
    Value::Object(object)
}

/// A chat channel, without its posts.
#[must_use]
pub fn channel(channel: &v1::Channel) -> Value {
    json!({
        "channel": channel.channel,
        "members": channel.members,
        "member_count": channel.member_count,
        "gated": channel.gated,
        "creator": channel.creator,
        "topic": channel.topic,
        "last_seq": channel.last_seq,
        "created_at": rfc3339(channel.created_at_ms),
    })
}

/// A post in a chat channel.
#[must_use]
pub fn chat_message(message: &v1::ChatMessage) -> Value {
    json!({
        "channel": message.channel,
        "seq": message.seq,
        "message_id": message.message_id,
        "from": message.from,
        "content": message.content,
        "ts": rfc3339(message.ts_ms),
        "mentions": message.mentions,
        "reply_to": message.reply_to,
    })
}

/// Converts millionths of a US dollar to dollars.
#[must_use]
#[allow(clippy::cast_precision_loss)] // amounts stay far below 2^53 millionths
pub fn usd(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Formats money as `$1.2345`: at least two decimals, then up to the last digit that is not zero.
/// Prints the same as `ghost_domain::Money`.
#[must_use]
pub fn dollars(micros: u64) -> String {
    let whole = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let kept = whole.trim_end_matches('0').len().max(whole.len() - 4);
    format!("${}", &whole[..kept])
}

/// The status of the world: counts, open problems, limits that are nearly reached.
#[must_use]
pub fn world(status: &v1::WorldStatus) -> Value {
    let counts = |counts: &[v1::NamedCount]| -> Map<String, Value> {
        counts.iter().map(|count| (count.name.clone(), count.count.into())).collect()
    };
    json!({
        "world_id": status.world_id,
        "name": status.name,
        "version": status.version,
        "node": status.node,
        "now": rfc3339(status.now_at_ms),
        "started_at": rfc3339(status.started_at_ms),
        "paused": status.paused,
        "agents_by_status": counts(&status.agents_by_status),
        "agents_by_activity": counts(&status.agents_by_activity),
        "open_turns": status.open_turns,
        "parked_turns": status.parked_turns,
        "waiting_agents": status.waiting_agents,
        "models_down": status.models_down.iter().map(|down| json!({
            "provider": down.provider, "model": down.model, "reason": down.reason, "since": rfc3339(down.since_ms),
            "probe_at": rfc3339(down.probe_at_ms), "probes": down.probes,
        })).collect::<Vec<_>>(),
        "inbox_total": status.inbox_total,
        "dead_letters_held": status.dead_letters_held,
        "last_seq": status.last_seq,
        "budgets_near_bound": status.budgets_near_bound.iter().map(budget).collect::<Vec<_>>(),
        "bounds_near": status.bounds_near.iter().map(|near| json!({
            "limit": near.limit, "about": (!near.about.is_empty()).then_some(&near.about), "value": near.value,
            "most": near.most,
        })).collect::<Vec<_>>(),
        "loops_down": status.loops_down.iter().map(|down| json!({
            "name": down.name, "error": down.error, "since": rfc3339(down.since_ms), "failures": down.failures,
        })).collect::<Vec<_>>(),
        "warnings": status.warnings,
        "endpoints": status.endpoints,
        "job": status.job.as_ref().map(job),
    })
}

#[cfg(test)]
mod tests;
