//! Agents and their work as wire messages: turns, calls, tasks, approvals, schedules, droids, budgets. Text by agents is
//! redacted.

use ghost_domain::approval::SHOWN_MAX;
use ghost_domain::redact::Redactor;
use ghost_domain::schedule::{JobMode, JobOptions};
use ghost_domain::text::clip;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::UsageSum;
use ghost_domain::{
    Activity, Agent, AgentStatus, Approval, Artifact, BoundFile, Budget, CallTotals, Desired, Droid, Grant, JournalRow,
    LedgerRow, Money, Refusal, Schedule, ScheduleKind, ScheduleRun, Task, TaskEvent, TextEnum, Turn,
};
use ghost_proto::v1;
use ghost_world::AgentCard;
use serde_json::json;

use super::words::texts;

/// An agent from its row. The activity is set only while the agent runs.
pub(crate) fn agent(agent: &Agent, activity: Option<Activity>) -> v1::Agent {
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
pub(crate) fn agent_card(card: &AgentCard, record: &Agent) -> v1::Agent {
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
pub(crate) const PARKED: &str = "parked";

/// A turn. Text by agents is redacted here; the stored row keeps it unredacted, because resuming the
/// turn needs it.
pub(crate) fn turn(turn: &Turn, redactor: &Redactor) -> v1::Turn {
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
pub(crate) fn journal_row(row: &JournalRow, step: &serde_json::Value) -> v1::JournalRow {
    v1::JournalRow {
        turn_id: row.turn_id.to_string(),
        seq: row.seq,
        step: row.step.name().to_owned(),
        step_json: step.to_string(),
        recorded_at_ms: row.at.0,
    }
}

/// A recorded tool call.
pub(crate) fn ledger_row(row: &LedgerRow) -> v1::LedgerRow {
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
pub(crate) fn call_totals(totals: &CallTotals) -> v1::CallTotals {
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
pub(crate) fn grant(grant: &Grant, redactor: &Redactor) -> v1::Grant {
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
pub(crate) fn artifact(artifact: &Artifact) -> v1::Artifact {
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

/// A task, redacted.
pub(crate) fn task(task: &Task, redactor: &Redactor) -> v1::Task {
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
pub(crate) fn task_event(event: &TaskEvent, redactor: &Redactor) -> v1::TaskEvent {
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
pub(crate) fn budget(budget: &Budget) -> v1::Budget {
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
pub(crate) fn token_usage(usage: TokenUsage) -> v1::TokenUsage {
    v1::TokenUsage {
        input: usage.input,
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
    }
}

/// The usage of one agent and model.
pub(crate) fn usage_sum(sum: &UsageSum) -> v1::UsageSum {
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

/// An approval without the details of its plan.
pub(crate) fn approval_row(approval: &Approval, redactor: &Redactor) -> v1::Approval {
    v1::Approval {
        approval_id: approval.approval_id.to_string(),
        agent_id: approval.agent_id.to_string(),
        turn_id: approval.turn_id.to_string(),
        conversation_id: approval.conversation_id.map(|id| id.to_string()),
        tool: approval.plan.tool.clone(),
        summary: clip(&redactor.redact(&approval.plan.summary()), SHOWN_MAX),
        reason: redactor.redact(&approval.reason),
        status: approval.status.as_str().to_owned(),
        always: approval.always,
        decided_by: approval.decided_by.as_ref().map(ToString::to_string),
        note: approval.note.as_deref().map(|note| redactor.redact(note)),
        requested_at_ms: approval.requested_at.0,
        expires_at_ms: approval.expires_at.0,
        closed_at_ms: approval.closed_at.map(|at| at.0),
        digest: approval.digest.clone(),
        ..v1::Approval::default()
    }
}

/// An approval with the details of its plan.
pub(crate) fn approval(approval: &Approval, redactor: &Redactor) -> v1::Approval {
    let plan = &approval.plan;
    let file = |file: &BoundFile| v1::BoundFile { path: file.path.clone(), sha256: file.sha256.clone() };
    v1::Approval {
        arguments_json: redactor.redact_json(&plan.arguments).to_string(),
        argv: plan.argv.iter().map(|word| redactor.redact(word)).collect(),
        dir: plan.dir.clone(),
        env_json: redactor.redact_json(&json!(plan.env)).to_string(),
        sandbox: plan.sandbox.clone(),
        once_only: plan.once_only.clone(),
        form_json: plan.form.as_ref().map(|form| redactor.redact_json(form).to_string()).unwrap_or_default(),
        fields_json: approval
            .fields
            .as_ref()
            .map(|fields| redactor.redact_json(&json!(fields)).to_string())
            .unwrap_or_default(),
        files: plan.files.iter().map(file).collect(),
        ..approval_row(approval, redactor)
    }
}

/// A timer, a cron job, a watch or a heartbeat.
pub(crate) fn schedule(schedule: &Schedule, redactor: &Redactor) -> v1::Schedule {
    let when = schedule.when.shown();
    v1::Schedule {
        schedule_id: schedule.schedule_id.to_string(),
        kind: schedule.kind.as_str().to_owned(),
        agent_id: schedule.agent_id.to_string(),
        name: redactor.redact(&schedule.name),
        when_json: redactor.clean_json(when).to_string(),
        message: redactor.redact(&schedule.message),
        missed: schedule.missed.as_str().to_owned(),
        enabled: schedule.enabled,
        next_at_ms: schedule.next_at.map(|at| at.0),
        last_at_ms: schedule.last_at.map(|at| at.0),
        last_status: schedule.last_status.map(|status| status.as_str().to_owned()),
        runs: schedule.runs,
        creator: schedule.creator.to_string(),
        created_at_ms: schedule.created_at.0,
        conversation_id: schedule.conversation_id.map(|id| id.to_string()),
        options: (schedule.kind == ScheduleKind::Cron).then(|| job_options(&schedule.mode, redactor)),
    }
}

/// How a cron job runs.
fn job_options(mode: &JobMode, redactor: &Redactor) -> v1::JobOptions {
    let options = JobOptions::from(mode.clone());
    v1::JobOptions {
        session: options.session.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        payload: options.payload.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        wake: options.wake.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        deliver: options.deliver.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        to: redactor.redact(&options.to.unwrap_or_default()),
        timeout_seconds: options.timeout_seconds,
        max_rounds: options.max_rounds,
        model: options.model,
    }
}

/// One run of a schedule.
pub(crate) fn schedule_run(run: &ScheduleRun, redactor: &Redactor) -> v1::ScheduleRun {
    v1::ScheduleRun {
        schedule_id: run.schedule_id.to_string(),
        run: run.run,
        agent_id: run.agent_id.to_string(),
        slot_at_ms: run.slot_at.0,
        fired_at_ms: run.fired_at.0,
        late: run.late,
        missed: run.missed,
        status: run.status.as_str().to_owned(),
        message_id: run.message_id.map(|id| id.to_string()),
        note: run.note.as_deref().map(|note| redactor.redact(note)),
    }
}

/// A droid, redacted.
pub(crate) fn droid(droid: &Droid, redactor: &Redactor) -> v1::Droid {
    let error = droid.error.as_ref().map(refusal_json);
    v1::Droid {
        droid_id: droid.droid_id.to_string(),
        parent_id: droid.parent_id.to_string(),
        label: droid.label.as_deref().map(|label| redactor.redact(label)),
        mode: droid.mode.as_str().to_owned(),
        state: droid.state.as_str().to_owned(),
        task: redactor.redact(&droid.task),
        output_path: droid.output_path.clone(),
        tools: droid.terms.tools.iter().cloned().collect(),
        depth: droid.terms.depth,
        root_id: droid.root_id.to_string(),
        created_at_ms: droid.created_at.0,
        deadline_at_ms: droid.deadline_at.0,
        ended_at_ms: droid.ended_at.map(|at| at.0),
        error_json: error.map(|error| redactor.redact(&error)),
        result: droid.result.as_deref().map(|result| redactor.redact(result)),
        rounds: droid.used.rounds,
        calls: droid.used.calls,
        input_tokens: droid.used.input_tokens,
        output_tokens: droid.used.output_tokens,
        cost_micros: droid.used.cost.0,
    }
}

/// A refusal as the JSON `{error, code, hint?, details?}`, as in the trailer.
pub(crate) fn refusal_json(refusal: &Refusal) -> String {
    // A refusal always serializes: its keys are texts.
    serde_json::to_string(refusal).unwrap_or_default()
}
