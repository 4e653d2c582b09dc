//! The record of tool calls: the journal for going on, the ledger for reading, the feed for watching.

use std::collections::BTreeSet;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::{CallOutcome, Effect, FilePlan, Step};
use ghost_domain::text::{clip, cut_json, cut_marked};
use ghost_domain::{AskId, CallId, CallStatus, Code, LedgerRow, Refusal, Timestamp, Turn};
use ghost_store::Writes;
use ghost_store::tables::LedgerFilter;
use serde_json::{Value, json};

use crate::chain::Chain;
use crate::{Result, RuleContext, root_limits};

/// A call that is about to run.
#[derive(Clone, Debug)]
pub struct CallStart {
    /// Our id.
    pub call_id: CallId,
    /// The provider's id.
    pub id: String,
    /// Canonical tool name.
    pub tool: String,
    /// The name it was called by, if another.
    pub alias: Option<String>,
    /// The arguments.
    pub arguments: Value,
    /// What it does.
    pub effect: Effect,
    /// For a file write: what it will leave.
    pub file: Option<FilePlan>,
    /// For an ask: which.
    pub ask_id: Option<AskId>,
    /// When it began, if that was before it is recorded.
    pub begun_at: Option<Timestamp>,
}

/// Records that a call begins. The journal needs to know it only of effects that the store does not hold itself.
pub async fn record_call_start(w: &mut dyn Writes, ctx: &RuleContext, turn: &Turn, call: &CallStart) -> Result<()> {
    let now = ctx.now();
    if matches!(call.effect, Effect::Outside | Effect::File | Effect::Wait) {
        let step = Step::CallStarted {
            call_id: call.call_id,
            id: call.id.clone(),
            tool: call.tool.clone(),
            effect: call.effect,
            file: call.file.clone(),
            ask_id: call.ask_id,
        };
        w.journal_append(turn.turn_id, &step, now).await?;
    }
    let arguments = ctx.redactor.redact_json(&call.arguments);
    let (arguments, truncated) = cut_json(&arguments, ctx.limits().ledger_result_bytes as usize);
    let summary = clip(&arguments, 160);
    w.call_put(&LedgerRow {
        call_id: call.call_id,
        agent_id: turn.agent_id.clone(),
        turn_id: turn.turn_id,
        tool: call.tool.clone(),
        alias: call.alias.clone(),
        arguments,
        result: None,
        status: CallStatus::Started,
        error_code: None,
        started_at: call.begun_at.unwrap_or(now),
        duration_ms: None,
        truncated,
    })
    .await?;
    let event = NewEvent::new(
        EventKind::ToolStarted,
        json!({
            "turn_id": turn.turn_id, "call_id": call.call_id, "tool": call.tool, "summary": summary,
        }),
    )
    .agent(&turn.agent_id)
    .correlation(turn.turn_id);
    ctx.emit(w, event).await
}

/// Records what a call left. The turn must be open.
pub async fn record_call_end(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    turn: &Turn,
    call_id: CallId,
    id: &str,
    tool: &str,
    outcome: &CallOutcome,
) -> Result<()> {
    let now = ctx.now();
    let step = Step::CallFinished { call_id, id: id.to_owned(), tool: tool.to_owned(), outcome: outcome.clone() };
    w.journal_append(turn.turn_id, &step, now).await?;
    let kept = ctx.limits().ledger_result_bytes as usize;
    let text = match (&outcome.content, &outcome.refusal) {
        // What left nothing but its refusal.
        (Value::Null, Some(refusal)) => ctx.redactor.redact(&refusal.message),
        (Value::String(text), _) => ctx.redactor.redact(text),
        (other, _) => ctx.redactor.redact_json(other).to_string(),
    };
    let started = w.call_get(call_id).await?;
    let mut row = started.unwrap_or_else(|| LedgerRow {
        call_id,
        agent_id: turn.agent_id.clone(),
        turn_id: turn.turn_id,
        tool: tool.to_owned(),
        alias: None,
        arguments: "{}".into(),
        result: None,
        status: CallStatus::Started,
        error_code: None,
        started_at: now,
        duration_ms: None,
        truncated: false,
    });
    let duration_ms = u64::try_from(now.since(row.started_at).as_millis()).unwrap_or(u64::MAX);
    row.status = ledger_status(outcome);
    row.error_code = outcome.refusal.as_ref().map(|refusal| refusal.code);
    let (result, cut) = cut_marked(&text, kept);
    row.truncated = row.truncated || outcome.truncated || cut;
    row.result = Some(result);
    row.duration_ms = Some(duration_ms);
    w.call_put(&row).await?;
    let mut counted = w.turn_get(turn.turn_id).await?.unwrap_or_else(|| turn.clone());
    counted.calls = counted.calls.saturating_add(1);
    w.turn_put(&counted).await?;
    let event = NewEvent::new(
        EventKind::ToolFinished,
        json!({
            "turn_id": turn.turn_id, "call_id": call_id, "tool": tool, "status": row.status,
            "error_code": row.error_code, "error": outcome.refusal.as_ref().map(|r| ctx.excerpt(&r.message, 200)),
            "duration_ms": duration_ms,
        }),
    )
    .agent(&turn.agent_id)
    .correlation(turn.turn_id);
    ctx.emit(w, event).await?;
    // What the refused call had written is undone; this is where a bound that held it can be told.
    match &outcome.refusal {
        Some(refusal) => {
            let chain = Chain { root_id: turn.root_id, hop: turn.hop.saturating_add(1) };
            root_limits::refused(w, ctx, &turn.agent_id, chain, refusal).await
        }
        None => Ok(()),
    }
}

/// The status of a ledger row that an outcome makes.
#[must_use]
pub fn ledger_status(outcome: &CallOutcome) -> CallStatus {
    match &outcome.refusal {
        None => CallStatus::Ok,
        Some(refusal) if refusal.code == Code::OutcomeUnknown => CallStatus::Unknown,
        Some(_) => CallStatus::Failed,
    }
}

/// Records a call that a model wrote as text: it never ran, and nothing of it may be lost from sight (TOOL-13).
pub async fn malformed(w: &mut dyn Writes, ctx: &RuleContext, turn: &Turn, fragment: &str) -> Result<()> {
    let refusal = Refusal::new(Code::InvalidArguments, "a tool call written as text was not run");
    let arguments = ctx.excerpt(fragment, 500);
    // An ellipsis marks the cut; redaction may have made the text shorter, never what it ends with.
    let truncated = fragment.chars().count() > 500 && arguments.ends_with('…');
    w.call_put(&LedgerRow {
        call_id: CallId(ctx.id()),
        agent_id: turn.agent_id.clone(),
        turn_id: turn.turn_id,
        tool: "malformed".into(),
        alias: None,
        arguments,
        result: Some(refusal.message),
        status: CallStatus::Failed,
        error_code: Some(refusal.code),
        started_at: ctx.now(),
        duration_ms: Some(0),
        truncated,
    })
    .await?;
    Ok(())
}

/// Closes the ledger rows of calls that a turn began and will never end. Only of what changes something outside nobody
/// knows what came of it: a question that was waited for has its own record, and nothing else is left half done.
pub(crate) async fn orphan(w: &mut dyn Writes, ctx: &RuleContext, turn: &Turn) -> Result<()> {
    let filter = LedgerFilter {
        turn_id: Some(turn.turn_id),
        status: Some(CallStatus::Started),
        limit: 1_000,
        ..LedgerFilter::default()
    };
    let rows = w.call_list(&filter).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let outside: BTreeSet<CallId> =
        w.journal_of(turn.turn_id).await?.iter().filter_map(|row| acts_outside(&row.step)).collect();
    for mut row in rows {
        (row.status, row.error_code) = if outside.contains(&row.call_id) {
            (CallStatus::Unknown, Some(Code::OutcomeUnknown))
        } else {
            (CallStatus::Failed, Some(Code::Cancelled))
        };
        row.duration_ms = Some(u64::try_from(ctx.now().since(row.started_at).as_millis()).unwrap_or(u64::MAX));
        w.call_put(&row).await?;
    }
    Ok(())
}

/// The call that this step began, if it has an effect that the store does not hold.
fn acts_outside(step: &Step) -> Option<CallId> {
    match step {
        Step::CallStarted { call_id, effect: Effect::Outside | Effect::File, .. } => Some(*call_id),
        _ => None,
    }
}
