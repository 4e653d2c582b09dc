//! Records of droids: found by id, their turns, their end, and the message about it to the parent.
//!
//! The transaction in which a droid ends must also deliver that message, so that no completion is lost. Its status comes
//! from what happened, never from the droid's words.

use ghost_domain::droid::RESULT_BYTES;
use ghost_domain::ids;
use ghost_domain::reply_tokens::SILENT;

use crate::lookup::{emit_stopped, put};
use crate::mail::{self, NewMessage};
use crate::prelude::*;
use crate::turns::ending::Ending;

/// Finds a droid.
///
/// # Errors
/// `InvalidArguments` for an id of another form, `NotFound`.
pub fn named(r: &mut StoreTx, text: &str) -> Result<Droid> {
    let text = text.trim();
    if !ids::is_droid_text(text) {
        return Err(refusal!(InvalidArguments, "`{}` is not the id of a droid", shown(text, 80))
            .hint("it is `droid-` and eight hexadecimal digits, as the droid's start returned it")
            .details(json!({ "field": "droid_id" })));
    }
    found(r.droid_get(&text.parse()?)?, "droid", text, "the list shows your droids")
}

/// Finds a droid that `by` may steer and end: an agent only its own.
///
/// # Errors
/// Those of [`named`]; `AccessDenied` for another agent's droid.
pub fn own(r: &mut StoreTx, by: &Party, text: &str) -> Result<Droid> {
    let droid = named(r, text)?;
    match by.agent() {
        Some(agent_id) if *agent_id != droid.parent_id => {
            Err(refusal!(AccessDenied, "{} is a droid of {}", droid.droid_id, droid.parent_id)
                .hint("only its parent and operators steer and end it; you may check on it"))
        }
        _ => Ok(droid),
    }
}

/// The droid with this id, unless it has ended.
pub(super) fn at_work(r: &mut StoreTx, droid_id: &AgentId) -> Result<Option<Droid>> {
    Ok(r.droid_get(droid_id)?.filter(|droid| !droid.state.is_over()))
}

/// Records that a droid's turn was opened. Returns its record; `None` for the turn of another agent.
pub(crate) fn turn_opened(w: &mut StoreTx, turn: &Turn) -> Result<Option<Droid>> {
    if !turn.agent_id.is_droid() {
        return Ok(None);
    }
    let Some(mut droid) = w.droid_get(&turn.agent_id)? else { return Ok(None) };
    if droid.state == DroidState::Pending {
        droid.state = DroidState::Running;
        w.droid_put(&droid)?;
    }
    Ok(Some(droid))
}

pub(super) fn emit(w: &mut Tx, kind: EventKind, droid: &Droid, mut payload: Value) -> Result<()> {
    payload["parent_id"] = json!(droid.parent_id);
    payload["label"] = json!(droid.label);
    w.emit(NewEvent::new(kind, payload).agent(&droid.droid_id).correlation(droid.root_id))
}

/// Records the end of a droid's turn. A run ends with its turn, unless guidance has come that it has not read. A session
/// reports and waits for more work.
pub fn turn_ended(w: &mut Tx, turn: &Turn, ending: &Ending) -> Result<()> {
    let Some(mut droid) = at_work(w, &turn.agent_id)? else { return Ok(()) };
    let used = &mut droid.used;
    used.turns = used.turns.saturating_add(1);
    used.rounds = used.rounds.saturating_add(turn.rounds);
    used.calls = used.calls.saturating_add(turn.calls);
    used.input_tokens = used.input_tokens.saturating_add(turn.input_tokens);
    used.output_tokens = used.output_tokens.saturating_add(turn.output_tokens);
    used.cost = used.cost.plus(turn.cost);
    if let Some(text) = ending.text() {
        droid.result = Some(prefix_bytes(text, RESULT_BYTES).to_owned());
    }
    let state = match turn.status {
        TurnStatus::Finished => DroidState::Succeeded,
        TurnStatus::TimedOut => DroidState::TimedOut,
        TurnStatus::Cancelled => DroidState::Killed,
        _ => DroidState::Failed,
    };
    let error = match ending {
        Ending::Cancelled(why) => Some(refusal!(Cancelled, "its turn was cancelled: {why}")),
        _ => ending.refusal().cloned(),
    };
    let is_last = match droid.mode {
        DroidMode::Run => state != DroidState::Succeeded || w.inbox_depth(&droid.droid_id)? == 0,
        DroidMode::Session => state == DroidState::Killed,
    };
    if is_last {
        let droid = end(w, droid, state, error)?;
        return report(w, &droid, words(state));
    }
    if droid.mode == DroidMode::Session {
        droid.deadline_at = w.ctx.now().plus(Limits::seconds(w.ctx.limits().droid_idle_seconds));
        let what = if error.is_some() { "failed at" } else { "has done" };
        droid.error = error;
        report(w, &droid, &format!("{what} this work and waits for more"))?;
    }
    w.droid_put(&droid)?;
    Ok(())
}

/// Ends a droid without an open turn and without a word to its parent. Its supervisor then stops its actor.
pub(crate) fn end(w: &mut Tx, mut droid: Droid, state: DroidState, error: Option<Refusal>) -> Result<Droid> {
    // Nothing may start it again. Its inbox is read only if it has mail.
    while w.inbox_depth(&droid.droid_id)? > 0 {
        let mail = mail::ids(&w.inbox_pending(&droid.droid_id, 500)?);
        w.message_mark(&mail, MailState::Consumed, None, 0)?;
    }
    droid.state = state;
    droid.error = error;
    droid.ended_at = Some(w.ctx.now());
    w.droid_put(&droid)?;
    if let Some(mut agent) = w.agent_get(&droid.droid_id)?.filter(|agent| !agent.is_deleted()) {
        // Otherwise its supervisor ends what is left, and then records the stop.
        let is_at_rest = agent.status == AgentStatus::Running
            && w.turn_open_of(&droid.droid_id)?.is_none()
            && w.droids_live_count(&droid.droid_id)?.of_parent == 0;
        agent.desired = Desired::Stopped;
        if is_at_rest {
            agent.status = AgentStatus::Stopped;
        } else if agent.status != AgentStatus::Stopped {
            agent.status = AgentStatus::Stopping;
        }
        let why = droid.error.as_ref().map(|error| w.ctx.excerpt(&error.message, 300));
        agent.status_reason = Some(why.unwrap_or_else(|| "it has done its task".to_owned()));
        put(w, &mut agent)?;
        if is_at_rest {
            emit_stopped(w, &agent)?;
        }
        w.signal(Signal::DroidEnded(Box::new(agent)));
    }
    let error =
        droid.error.as_ref().map(|error| json!({ "code": error.code, "message": w.ctx.excerpt(&error.message, 400) }));
    let payload = json!({
        "state": droid.state, "error": error, "used": droid.used, "root_id": droid.root_id,
        "seconds": w.ctx.now().since(droid.created_at).as_secs(),
    });
    emit(w, EventKind::DroidEnded, &droid, payload)?;
    Ok(droid)
}

/// The state as the predicate of a sentence about the droid.
pub(crate) fn words(state: DroidState) -> &'static str {
    match state {
        DroidState::Pending | DroidState::Running => "runs",
        DroidState::Succeeded => "succeeded",
        DroidState::Failed => "failed",
        DroidState::TimedOut => "used up its time",
        DroidState::Killed => "was ended",
    }
}

/// Tells the parent. A parent that is gone needs no word.
pub(crate) fn report(w: &mut Tx, droid: &Droid, words: &str) -> Result<()> {
    let is_over = |parent: &Agent| parent.kind == AgentKind::Droid && parent.desired == Desired::Stopped;
    if w.agent_get(&droid.parent_id)?.is_none_or(|parent| parent.is_deleted() || is_over(&parent)) {
        return Ok(());
    }
    let label = droid.label.as_deref().map(|label| format!(" ({label})")).unwrap_or_default();
    let Droid { state, output_path, .. } = droid;
    let DroidUse { rounds, calls, input_tokens, output_tokens, cost, .. } = droid.used;
    let seconds = w.ctx.now().since(droid.created_at).as_secs();
    let mut body = format!(
        "status: {state}\noutput: {output_path}\nstats: {seconds} s, {rounds} model calls, {calls} tool calls, \
         {input_tokens} tokens in, {output_tokens} tokens out, {cost}\n"
    );
    if let Some(error) = &droid.error {
        body.push_str(&format!("error: {}: {}\n", error.code, error.message));
    }
    let silent = format!("\nIf everyone who waits for this has it already, make {} your whole answer.", SILENT[0]);
    // An end that cannot be reported would be no end.
    let room = (w.ctx.limits().message_bytes as usize).saturating_sub(silent.len());
    if let Some(result) = droid.result.as_deref().map(str::trim).filter(|result| !result.is_empty()) {
        body.push_str(&format!("\nIts answer:\n{result}\n"));
    }
    let body = format!("{}{silent}", prefix_bytes(&body, room));
    // No hop more than the droid's own: a chain that may start a droid must hear of its end.
    let chain = Chain { root_id: droid.root_id, hop: droid.hop, conversation_id: droid.conversation_id };
    let message = NewMessage::new(&droid.parent_id, Party::System, Kind::DroidDone, body, chain)
        .subject(format!("{}{label} {words}", droid.droid_id));
    mail::deliver(w, message).map(drop)
}
