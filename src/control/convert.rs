//! Turns domain records into wire messages; the files below do so for the larger families. [`input`]
//! checks what requests contain.
//!
//! This module must never decide anything, read other data, or leave a field of the message unset
//! that the record has.

mod approvals;
pub mod chat;
pub mod conversations;
pub mod droids;
pub mod input;
mod json;
pub mod knowledge;
pub mod refusals;
pub mod schedules;
pub mod state;
mod texts;

use ghost_domain::redact::Redactor;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::UsageSum;
use ghost_domain::{
    Activity, Agent, AgentStatus, Artifact, Budget, CallTotals, DeadLetter, Desired, Envelope, Event, Grant,
    JournalRow, LedgerRow, Money, Task, TaskEvent, Turn,
};
use ghost_proto::v1;
use ghost_world::AgentCard;

pub use self::approvals::{approval, approval_row};
use self::texts::texts;

/// An agent from its row. The activity is set only while the agent runs.
#[must_use]
pub fn agent(agent: &Agent, activity: Option<Activity>) -> v1::Agent {
    let runs = agent.status == AgentStatus::Running && !agent.is_deleted();
    v1::Agent {
        agent_id: agent.agent_id.to_string(),
        incarnation: agent.incarnation,
        archetype: agent.archetype.clone(),
        name: agent.name.clone(),
        team: agent.team.clone(),
        owner: agent.owner.clone(),
        kind: agent.kind.as_str().to_owned(),
        desired: agent.desired.as_str().to_owned(),
        status: agent.status.as_str().to_owned(),
        status_reason: agent.status_reason.clone(),
        activity: activity.filter(|_| runs).map(|activity| activity.as_str().to_owned()),
        restarts: agent.restarts,
        overrides_json: if agent.overrides.is_null() { String::new() } else { agent.overrides.to_string() },
        node: agent.node.clone(),
        epoch: agent.epoch,
        created_at_ms: agent.created_at.0,
        updated_at_ms: agent.updated_at.0,
        last_active_at_ms: agent.last_active_at.map(|at| at.0),
        deleted_at_ms: agent.deleted_at.map(|at| at.0),
    }
}

/// An agent from memory, with the fields that only its row has. Where the two differ, memory is newer.
#[must_use]
pub fn agent_card(card: &AgentCard, record: &Agent) -> v1::Agent {
    let desired = match card.status {
        AgentStatus::Running | AgentStatus::Restarting => Desired::Running,
        AgentStatus::Stopping | AgentStatus::Stopped => Desired::Stopped,
        AgentStatus::Failed => record.desired,
    };
    v1::Agent {
        incarnation: card.incarnation,
        archetype: card.archetype.as_ref().to_owned(),
        name: card.name.as_ref().to_owned(),
        team: card.team.as_deref().map(str::to_owned),
        kind: card.kind.as_str().to_owned(),
        desired: desired.as_str().to_owned(),
        status: card.status.as_str().to_owned(),
        status_reason: card.status_reason.as_deref().map(str::to_owned),
        activity: (card.status == AgentStatus::Running).then(|| card.activity.as_str().to_owned()),
        restarts: card.restarts,
        created_at_ms: card.created_at.0,
        deleted_at_ms: None,
        ..agent(record, None)
    }
}

/// The status of an open turn that is parked.
pub const PARKED: &str = "parked";

/// A turn. Text by agents is redacted here; the stored row keeps it unredacted, because resuming the
/// turn needs it.
#[must_use]
pub fn turn(turn: &Turn, redactor: &Redactor) -> v1::Turn {
    v1::Turn {
        turn_id: turn.turn_id.to_string(),
        agent_id: turn.agent_id.to_string(),
        incarnation: turn.incarnation,
        root_id: turn.root_id.to_string(),
        other_roots: texts(&turn.other_roots),
        hop: turn.hop,
        source: turn.source.clone(),
        status: if turn.parked.is_some() { PARKED } else { turn.status.as_str() }.to_owned(),
        reason: turn
            .parked
            .as_ref()
            .map(|parked| &parked.reason)
            .or(turn.reason.as_ref())
            .map(|reason| redactor.redact(reason)),
        model: turn.model.clone(),
        rounds: turn.rounds,
        calls: turn.calls,
        input_tokens: turn.input_tokens,
        output_tokens: turn.output_tokens,
        cost_micros: turn.cost.0,
        unpriced_tokens: turn.unpriced_tokens,
        text: turn.text.as_deref().map(|text| redactor.redact(text)),
        started_at_ms: turn.started_at.0,
        ended_at_ms: turn.ended_at.map(|at| at.0),
        crashes: turn.crashes,
        stalled_boots: turn.stalled_boots,
        boot_mark: turn.boot_mark,
        about: redactor.redact(&turn.about),
        truncated: turn.truncated,
        parked_since_ms: turn.parked.as_ref().map(|parked| parked.since.0),
    }
}

/// A step of a turn's journal. `step` is its JSON, already redacted.
#[must_use]
pub fn journal_row(row: &JournalRow, step: &serde_json::Value) -> v1::JournalRow {
    v1::JournalRow {
        turn_id: row.turn_id.to_string(),
        seq: row.seq,
        step: row.step.name().to_owned(),
        step_json: step.to_string(),
        recorded_at_ms: row.at.0,
    }
}

/// A recorded tool call.
#[must_use]
pub fn ledger_row(row: &LedgerRow) -> v1::LedgerRow {
    v1::LedgerRow {
        call_id: row.call_id.to_string(),
        agent_id: row.agent_id.to_string(),
        turn_id: row.turn_id.to_string(),
        tool: row.tool.clone(),
        alias: row.alias.clone(),
        arguments_json: row.arguments.clone(),
        result: row.result.clone(),
        status: row.status.as_str().to_owned(),
        error_code: row.error_code.map(|code| code.as_str().to_owned()),
        started_at_ms: row.started_at.0,
        duration_ms: row.duration_ms,
        bytes_in: row.bytes_in,
        bytes_out: row.bytes_out,
        tokens: row.tokens,
        cost_micros: row.cost.map(|Money(micros)| micros),
        truncated: row.truncated,
    }
}

/// Sums of tool calls.
#[must_use]
pub fn call_totals(totals: &CallTotals) -> v1::CallTotals {
    v1::CallTotals {
        tool: totals.tool.clone(),
        status: totals.status.as_str().to_owned(),
        calls: totals.calls,
        duration_ms: totals.duration_ms,
        bytes_in: totals.bytes_in,
        bytes_out: totals.bytes_out,
        tokens: totals.tokens,
        cost_micros: totals.cost.0,
    }
}

/// A write grant, redacted.
#[must_use]
pub fn grant(grant: &Grant, redactor: &Redactor) -> v1::Grant {
    v1::Grant {
        grant_id: grant.grant_id.to_string(),
        agent_id: grant.agent_id.to_string(),
        prefix: grant.prefix.clone(),
        source: grant.source.as_str().to_owned(),
        reason: grant.reason.as_deref().map(|reason| redactor.redact(reason)),
        created_by: grant.created_by.to_string(),
        created_at_ms: grant.created_at.0,
        expires_at_ms: grant.expires_at.0,
    }
}

/// An artifact.
#[must_use]
pub fn artifact(artifact: &Artifact) -> v1::Artifact {
    v1::Artifact {
        artifact_id: artifact.artifact_id.to_string(),
        path: artifact.path.clone(),
        r#type: artifact.kind.as_str().to_owned(),
        agent_id: artifact.agent_id.as_ref().map(ToString::to_string),
        turn_id: artifact.turn_id.map(|id| id.to_string()),
        bytes: artifact.bytes,
        sha256: artifact.sha256.clone(),
        created_at_ms: artifact.created_at.0,
        updated_at_ms: artifact.updated_at.0,
        droid_id: artifact.droid_id.as_ref().map(ToString::to_string),
    }
}

/// A mail envelope, redacted.
#[must_use]
pub fn envelope(envelope: &Envelope, redactor: &Redactor) -> v1::Envelope {
    v1::Envelope {
        message_id: envelope.message_id.to_string(),
        seq: envelope.seq,
        to: envelope.to.to_string(),
        from: envelope.from.to_string(),
        kind: envelope.kind.as_str().to_owned(),
        subject: envelope.subject.as_deref().map(|subject| redactor.redact(subject)),
        body: redactor.redact(&envelope.body),
        attachments: envelope.attachments.clone(),
        ask_id: envelope.ask_id.map(|id| id.to_string()),
        conversation_id: envelope.conversation_id.map(|id| id.to_string()),
        root_id: envelope.root_id.to_string(),
        hop: envelope.hop,
        wake: envelope.wake,
        created_at_ms: envelope.created_at.0,
        state: envelope.state.as_str().to_owned(),
        turn_id: envelope.turn_id.map(|id| id.to_string()),
        crashes: envelope.crashes,
        read_at_ms: envelope.read_at.map(|at| at.0),
    }
}

/// A dead letter.
#[must_use]
pub fn dead_letter(letter: &DeadLetter) -> v1::DeadLetter {
    v1::DeadLetter {
        dead_letter_id: letter.dead_letter_id.to_string(),
        agent_id: letter.agent_id.to_string(),
        turn_id: letter.turn_id.to_string(),
        messages: texts(&letter.messages),
        reason: letter.reason.clone(),
        crashes: letter.crashes,
        status: letter.status.as_str().to_owned(),
        created_at_ms: letter.created_at.0,
        resolved_at_ms: letter.resolved_at.map(|at| at.0),
    }
}

/// A task, redacted.
#[must_use]
pub fn task(task: &Task, redactor: &Redactor) -> v1::Task {
    v1::Task {
        task_id: task.task_id.to_string(),
        title: redactor.redact(&task.title),
        description: redactor.redact(&task.description),
        owner: task.owner.to_string(),
        creator: task.creator.to_string(),
        status: task.status.as_str().to_owned(),
        priority: task.priority,
        depends_on: texts(&task.depends_on),
        parent_id: task.parent_id.map(|id| id.to_string()),
        due_at_ms: task.due_at.map(|at| at.0),
        result: task.result.as_deref().map(|result| redactor.redact(result)),
        root_id: task.root_id.to_string(),
        created_at_ms: task.created_at.0,
        updated_at_ms: task.updated_at.0,
    }
}

/// An entry of a task's history, redacted.
#[must_use]
pub fn task_event(event: &TaskEvent, redactor: &Redactor) -> v1::TaskEvent {
    v1::TaskEvent {
        task_id: event.task_id.to_string(),
        by: event.by.to_string(),
        changed_at_ms: event.at.0,
        status: event.status.as_str().to_owned(),
        owner: event.owner.to_string(),
        note: event.note.as_deref().map(|note| redactor.redact(note)),
    }
}

/// A budget account.
#[must_use]
pub fn budget(budget: &Budget) -> v1::Budget {
    v1::Budget {
        scope: budget.scope.to_string(),
        limit_tokens: budget.limits.tokens,
        limit_micros: budget.limits.money.map(|Money(micros)| micros),
        reserved_tokens: budget.reserved_tokens,
        reserved_micros: budget.reserved_money.0,
        spent_tokens: budget.spent_tokens,
        spent_micros: budget.spent_money.0,
        unpriced_tokens: budget.unpriced_tokens,
        updated_at_ms: budget.updated_at.0,
        passed: budget.passed().into_iter().map(str::to_owned).collect(),
    }
}

/// The token counts of model calls.
#[must_use]
pub fn token_usage(usage: TokenUsage) -> v1::TokenUsage {
    v1::TokenUsage {
        input: usage.input,
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
    }
}

/// The usage of one agent and model.
#[must_use]
pub fn usage_sum(sum: &UsageSum) -> v1::UsageSum {
    v1::UsageSum {
        agent_id: sum.agent_id.to_string(),
        model: sum.model.clone(),
        calls: sum.calls,
        tokens: Some(token_usage(sum.tokens)),
        cost_micros: sum.cost.0,
        estimated_calls: sum.estimated_calls,
        estimated_micros: sum.estimated_cost.0,
        unpriced_tokens: sum.unpriced_tokens,
    }
}

/// An event of the feed.
#[must_use]
pub fn event(event: &Event) -> v1::Event {
    v1::Event {
        seq: event.seq,
        event_id: event.event_id.to_string(),
        ts_ms: event.ts.0,
        kind: event.kind.as_str().to_owned(),
        agent_id: event.agent_id.as_ref().map(ToString::to_string),
        channel: event.channel.clone(),
        correlation_id: event.correlation_id.clone(),
        payload_json: event.payload.text().to_owned(),
    }
}
