//! The records of tool calls: the journal to resume from, the ledger to read, and the feed to watch. Also what an operator
//! found out of a call whose outcome nobody knew (promise 2): a call whose outcome is known never changes.

use ghost_domain::journal::FilePlan;
use ghost_domain::text::{cut_json, cut_marked};
use ghost_domain::usage::BYTES_PER_TOKEN;

use crate::lookup::working_turn;
use crate::mail::{self, NewMessage};
use crate::prelude::*;
use crate::{budgets, questions, root_limits};

/// A tool call that is about to run.
#[derive(Clone, Debug)]
pub struct CallStart {
    /// The call's id in Ghost.
    pub call_id: CallId,
    /// The call's id from the provider.
    pub id: String,
    /// Canonical name of the tool.
    pub tool: String,
    /// The name that the model used, if it is not the canonical one.
    pub alias: Option<String>,
    /// The arguments, as JSON.
    pub arguments: Value,
    /// The kind of effect that the tool has.
    pub effect: Effect,
    /// For file writes: the files' hashes before and after.
    pub files: Vec<FilePlan>,
    /// For an ask: its id.
    pub ask_id: Option<AskId>,
    /// The start time, if the call began before it is recorded.
    pub begun_at: Option<Timestamp>,
}

/// Records the start of a call. The journal only records starts of calls whose effects are not in
/// the store: outside effects, file writes and asks.
pub fn record_call_start(w: &mut Tx, turn: &Turn, call: &CallStart) -> Result<()> {
    let now = w.ctx.now();
    if matches!(call.effect, Effect::Outside | Effect::File | Effect::Wait) {
        let step = Step::CallStarted {
            call_id: call.call_id,
            id: call.id.clone(),
            tool: call.tool.clone(),
            effect: call.effect,
            files: call.files.clone(),
            ask_id: call.ask_id,
        };
        w.journal_append(turn.turn_id, &step, now)?;
    }
    let bytes_in = length(&call.arguments.to_string());
    let arguments = w.ctx.redactor.redact_json(&call.arguments);
    let (arguments, truncated) = cut_json(&arguments, w.ctx.limits().ledger_result_bytes as usize);
    let summary = clip(&arguments, 160);
    w.call_put(&LedgerRow {
        alias: call.alias.clone(),
        arguments,
        started_at: call.begun_at.unwrap_or(now),
        bytes_in: Some(bytes_in),
        truncated,
        ..new_row(turn, call.call_id, &call.tool, now)
    })?;
    let payload = json!({ "turn_id": turn.turn_id, "call_id": call.call_id, "tool": call.tool, "summary": summary });
    w.emit_of(turn, EventKind::ToolStarted, payload)
}

/// The ledger row of a call that starts now, without arguments.
fn new_row(turn: &Turn, call_id: CallId, tool: &str, now: Timestamp) -> LedgerRow {
    LedgerRow::new(call_id, turn.agent_id.clone(), turn.turn_id, tool, now)
}

/// Records the result of a call. The turn must be open.
pub fn record_call_end(
    w: &mut Tx,
    turn: &Turn,
    call_id: CallId,
    id: &str,
    tool: &str,
    outcome: &CallOutcome,
) -> Result<()> {
    let now = w.ctx.now();
    let step = Step::CallFinished { call_id, id: id.to_owned(), tool: tool.to_owned(), outcome: outcome.clone() };
    w.journal_append(turn.turn_id, &step, now)?;
    let kept = w.ctx.limits().ledger_result_bytes as usize;
    let text = match (&outcome.content, &outcome.refusal) {
        // The call left no result but its refusal.
        (Value::Null, Some(refusal)) => w.ctx.redactor.redact(&refusal.message),
        (Value::String(text), _) => w.ctx.redactor.redact(text),
        (other, _) => w.ctx.redactor.redact_json(other).to_string(),
    };
    let started = w.call_get(call_id)?;
    let mut row = started.unwrap_or_else(|| new_row(turn, call_id, tool, now));
    let duration_ms = u64::try_from(now.since(row.started_at).as_millis()).unwrap_or(u64::MAX);
    row.status = ledger_status(outcome);
    row.error_code = outcome.refusal.as_ref().map(|refusal| refusal.code).or(outcome.failed);
    let mut counted = w.turn_get(turn.turn_id)?.unwrap_or_else(|| turn.clone());
    counted.calls = counted.calls.saturating_add(1);
    row.cost = budgets::charged(w, &mut counted, (call_id, tool), outcome.cost, duration_ms)?;
    if !counted.questions.is_empty() {
        questions::close_questions(w, &mut counted, Some(id))?;
    }
    w.turn_put(&counted)?;
    let (bytes_out, shown) = (length(&text), u64::from(outcome.view_bytes.unwrap_or(w.ctx.limits().result_view_bytes)));
    row.bytes_out = Some(bytes_out);
    row.tokens = Some((row.bytes_in.unwrap_or_default() + bytes_out.min(shown)).div_ceil(BYTES_PER_TOKEN));
    let (result, cut) = cut_marked(&text, kept);
    row.truncated = row.truncated || outcome.truncated || cut;
    row.result = Some(result);
    row.duration_ms = Some(duration_ms);
    w.call_put(&row)?;
    let payload = json!({
        "turn_id": turn.turn_id, "call_id": call_id, "tool": tool, "status": row.status,
        "error_code": row.error_code, "error": outcome.refusal.as_ref().map(|r| w.ctx.excerpt(&r.message, 200)),
        "duration_ms": duration_ms,
    });
    w.emit_of(turn, EventKind::ToolFinished, payload)?;
    // The writes of a refused call are undone, so the limit that refused it can only be reported
    // here.
    match &outcome.refusal {
        Some(refusal) => root_limits::refused(w, &turn.agent_id, Chain::after(turn), refusal),
        None => Ok(()),
    }
}

/// Journals the session that a running call works in, before the call does anything in it.
///
/// # Errors
/// Those of the store, and the refusal of a turn that is over.
pub fn record_call_session(w: &mut Tx, turn_id: TurnId, (call_id, id): (CallId, &str), session: &str) -> Result<()> {
    let turn = working_turn(w, turn_id)?;
    let step = Step::CallSession { call_id, id: id.to_owned(), session: session.to_owned() };
    w.journal(turn.turn_id, &step)?;
    Ok(())
}

/// Journals how far the effect of a call has come, in the transaction that applied this part of it.
///
/// # Errors
/// Those of the store.
pub fn record_call_slice(w: &mut Tx, turn: &Turn, (call_id, id): (CallId, &str), progress: Value) -> Result<()> {
    w.journal(turn.turn_id, &Step::CallSliced { call_id, id: id.to_owned(), progress })
}

/// Bytes of a text.
fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

/// The ledger status for an outcome.
#[must_use]
pub fn ledger_status(outcome: &CallOutcome) -> CallStatus {
    match &outcome.refusal {
        None if outcome.failed.is_some() => CallStatus::Failed,
        None => CallStatus::Ok,
        Some(refusal) if refusal.code == Code::OutcomeUnknown => CallStatus::Unknown,
        Some(_) => CallStatus::Failed,
    }
}

/// Records a tool call that a model wrote as text. It never ran, but it stays visible in the ledger.
pub fn malformed(w: &mut Tx, turn: &Turn, fragment: &str) -> Result<()> {
    let ctx = w.ctx;
    let refusal = refusal!(InvalidArguments, "a tool call written as text was not run");
    let arguments = ctx.excerpt(fragment, 500);
    // An ellipsis marks a truncation. Redaction may shorten the text but does not change its end.
    let truncated = fragment.chars().count() > 500 && arguments.ends_with('…');
    w.call_put(&LedgerRow {
        arguments,
        result: Some(refusal.message),
        status: CallStatus::Failed,
        error_code: Some(refusal.code),
        duration_ms: Some(0),
        truncated,
        ..new_row(turn, CallId(ctx.id()), "malformed", ctx.now())
    })?;
    Ok(())
}

/// Closes the ledger rows of calls that a turn started and will never finish. The outcome is
/// unknown only for calls with outside effects or file writes. An ask has its own record, and other
/// calls leave no partial effect.
pub(crate) fn close_open_calls(w: &mut Tx, turn: &Turn) -> Result<()> {
    let rows = calls_of(w, turn.turn_id, CallStatus::Started)?;
    if rows.is_empty() {
        return Ok(());
    }
    let outside: BTreeSet<CallId> =
        w.journal_of(turn.turn_id)?.iter().filter_map(|row| acts_outside(&row.step)).collect();
    for mut row in rows {
        (row.status, row.error_code) = if outside.contains(&row.call_id) {
            (CallStatus::Unknown, Some(Code::OutcomeUnknown))
        } else {
            (CallStatus::Failed, Some(Code::Cancelled))
        };
        row.duration_ms = Some(u64::try_from(w.ctx.now().since(row.started_at).as_millis()).unwrap_or(u64::MAX));
        w.call_put(&row)?;
    }
    Ok(())
}

/// The calls of a turn in this state.
fn calls_of(r: &mut StoreTx, turn_id: TurnId, status: CallStatus) -> Result<Vec<LedgerRow>> {
    let (turn_id, status) = (Some(turn_id), Some(status));
    Ok(r.call_list(&LedgerFilter { turn_id, status, limit: 1_000, ..LedgerFilter::default() })?)
}

/// The id of the call that this step started, if its effect is outside the store, or applied in part.
fn acts_outside(step: &Step) -> Option<CallId> {
    match step {
        Step::CallStarted { call_id, effect: Effect::Outside | Effect::File, .. }
        | Step::CallSliced { call_id, .. } => Some(*call_id),
        _ => None,
    }
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It had its effect.
    Happened,
    /// It had none.
    DidNot,
}

/// Lets a call of this turn wait until a person says what became of it. Returns the call as it is now: `Unknown` as long as
/// nobody has said so.
///
/// # Errors
/// `NotFound`, and the refusal of a turn that is over.
pub fn await_person(w: &mut Tx, turn_id: TurnId, call_id: CallId) -> Result<LedgerRow> {
    let turn = working_turn(w, turn_id)?;
    let Some(mut row) = w.call_get(call_id)? else {
        return Err(Refusal::not_found("call", &call_id.to_string(), None));
    };
    if row.status == CallStatus::Started {
        (row.status, row.error_code) = (CallStatus::Unknown, Some(Code::OutcomeUnknown));
        w.call_put(&row)?;
        let payload = json!({ "turn_id": turn_id, "call_id": call_id, "tool": row.tool });
        w.emit_of(&turn, EventKind::ToolUnsettled, payload)?;
    }
    Ok(row)
}

/// Whether the end of this call is still to come: its turn waits for a person.
const fn is_awaited(row: &LedgerRow) -> bool {
    row.duration_ms.is_none()
}

/// Whether the turn of this call, which has not ended, has asked a person what became of it.
#[must_use]
pub fn was_unsettled(row: &LedgerRow) -> bool {
    is_awaited(row) && row.status != CallStatus::Started
}

/// Whether a call of this turn waits for a person.
pub(super) fn awaits_person(w: &mut StoreTx, turn_id: TurnId) -> Result<bool> {
    Ok(calls_of(w, turn_id, CallStatus::Unknown)?.iter().any(is_awaited))
}

/// Records what became of a call. A person who settles it twice in the same way changes nothing.
///
/// # Errors
/// `NotFound`; `Conflict` if its outcome was known.
pub fn settle(w: &mut Tx, by: &Party, call_id: CallId, (settled, note): (Settled, Option<&str>)) -> Result<LedgerRow> {
    let hint = "`ghostctl ledger --status unknown` lists the calls whose outcome nobody knows";
    let mut row = found(w.call_get(call_id)?, "call", call_id, hint)?;
    if row.status == CallStatus::Started {
        return Err(refusal!(Conflict, "call {call_id} is still running")
            .hint("wait for its end, or end its turn with `ghostctl turn cancel`"));
    }
    if row.status != CallStatus::Unknown {
        return Err(refusal!(Conflict, "the outcome of call {call_id} is known: {}", row.status).hint(hint));
    }
    let what = match settled {
        Settled::Happened => {
            (row.status, row.error_code) = (CallStatus::Ok, None);
            "happened"
        }
        Settled::DidNot => {
            (row.status, row.error_code) = (CallStatus::Failed, Some(Code::Cancelled));
            "did not happen"
        }
    };
    let note = note.map(|note| format!(": {note}")).unwrap_or_default();
    row.result = Some(w.ctx.redactor.redact(&format!("{by} found out that it {what}{note}")));
    w.call_put(&row)?;
    let payload = json!({
        "turn_id": row.turn_id, "call_id": call_id, "tool": row.tool, "status": row.status, "by": by,
    });
    w.emit(NewEvent::new(EventKind::ToolSettled, payload).agent(&row.agent_id).correlation(row.turn_id))?;
    let turn = w.turn_get(row.turn_id)?;
    if is_awaited(&row) && turn.is_some_and(|turn| turn.status == TurnStatus::Open) {
        // The call ends with what the person said.
        w.signal(Signal::CallSettled(row.agent_id.clone()));
        return Ok(row);
    }
    let text =
        format!("The outcome of your call {call_id} of {} was unknown. It {what}{note}. Go on from there.", row.tool);
    let told = NewMessage::new(&row.agent_id, by.clone(), Kind::Message, &text, Chain::root(w.ctx));
    // A droid takes no messages, and who was deleted needs none. The ledger does not depend on a full inbox.
    if w.agent_get(&row.agent_id)?.is_some_and(|agent| !agent.is_deleted())
        && !row.agent_id.is_droid()
        && mail::would_deliver(w, &told).is_ok()
    {
        mail::deliver(w, told)?;
    }
    Ok(row)
}
