//! Model calls. The transaction that journals the start of a call also reserves its budget. The
//! transaction that journals the end charges the call and releases the reservation.

use ghost_domain::admission::is_unpriced;
use ghost_domain::transcript::Block;
use ghost_domain::turn::ParkCause;

use super::parking::park_for_budget;
use crate::budgets::{self, Charged, Demand, Reserved, Settlement, Taken};
use crate::lookup::{open_turn, owned, working_turn};
use crate::prelude::*;

/// The log of a turn's session, as its prompt holds it.
#[derive(Clone, Copy, Debug, Default)]
pub struct BriefedLog {
    /// The part of the log in the prompt; `None` if it is empty.
    pub range: Option<LogRange>,
    /// When the first turn of it ended.
    pub first: Option<Timestamp>,
    /// The new start of the session's log, if the log was full.
    pub new_start: Option<LogStart>,
}

/// Journals a step of a turn's own work. Returns the turn.
fn journal(w: &mut Tx, turn_id: TurnId, step: &Step) -> Result<Turn> {
    let turn = working_turn(w, turn_id)?;
    w.journal(turn_id, step)?;
    Ok(turn)
}

/// Journals that a turn's tools have changed.
pub fn tools_changed(w: &mut Tx, turn_id: TurnId, step: &Step) -> Result<()> {
    journal(w, turn_id, step).map(drop)
}

/// Journals the prompt of a turn. Its stable parts are stored once under their hashes; the rest is
/// stored in the step.
pub fn brief(
    w: &mut Tx,
    turn_id: TurnId,
    system: (&str, &str),
    briefing: (&str, &str),
    log: BriefedLog,
    (mail, tools): (String, Option<SeenTools>),
) -> Result<()> {
    let mut turn = working_turn(w, turn_id)?;
    let now = w.ctx.now();
    if log.first.is_some() {
        turn.log_from = log.first;
        w.turn_put(&turn)?;
    }
    if let Some(start) = log.new_start {
        let (agent_id, conversation_id) = (turn.agent_id.clone(), turn.conversation_id);
        // The session may have been reset since its log was read.
        let known = w.session_start(&agent_id, conversation_id)?;
        if known.as_ref().is_none_or(|known| known.may_move_to(&start)) {
            let reset = known.and_then(|known| known.reset_place());
            w.session_start_put(&SessionStart { agent_id, conversation_id, start, reset })?;
        }
    }
    w.prompt_put(system.0, system.1, now)?;
    w.prompt_put(briefing.0, briefing.1, now)?;
    let (system, briefing, tools) = (system.0.to_owned(), briefing.0.to_owned(), tools.map(Box::new));
    w.journal_append(turn_id, &Step::Briefed { system, briefing, log: log.range, mail, tools }, now)?;
    Ok(())
}

/// Journals that a model is about to be called, and reserves the budget for it. If a budget is
/// spent, the turn is parked, unless it has another model to wait for. Nothing is journaled for a
/// call that must wait for reservations of other calls.
pub fn model_started(w: &mut Tx, turn_id: TurnId, demand: &Demand) -> Result<Reserved> {
    let mut turn = open_turn(w, turn_id)?;
    let agent = owned(w, &turn.agent_id)?;
    let reserved = match budgets::reserve(w, &agent, &mut turn, demand) {
        Ok(reserved) => reserved,
        Err(refusal) => {
            let Some(scope) = spent_scope(&refusal) else { return Err(refusal) };
            if demand.another {
                return Ok(Reserved::Spent(scope));
            }
            park_for_budget(w, turn, &scope, &refusal)?;
            return Ok(Reserved::Spent(scope));
        }
    };
    let Reserved::Granted(reservation_id, allowance) = &reserved else { return Ok(reserved) };
    let reservation_id = *reservation_id;
    if turn.parked.take_if(|parked| matches!(parked.cause, ParkCause::Budget { .. })).is_some() {
        // The budget is available now. A turn parked for a model stays parked until the model
        // answers.
        w.turn_put(&turn)?;
    }
    w.journal(turn_id, &Step::ModelStarted { model: demand.model.clone(), reservation_id })?;
    let payload = json!({ "turn_id": turn_id, "model": demand.model, "max_tokens": allowance.max_tokens });
    w.emit_of(&turn, EventKind::ModelStarted, payload)?;
    Ok(reserved)
}

/// Returns the spent account that a refusal names. A model without a price is refused permanently,
/// because no higher limit helps.
fn spent_scope(refusal: &Refusal) -> Option<Scope> {
    if refusal.code != Code::BudgetExhausted || is_unpriced(refusal) {
        return None;
    }
    serde_json::from_value(refusal.details.as_ref()?.get("scope")?.clone()).ok()
}

/// The result of an answered model call.
#[derive(Clone, Debug)]
pub struct ModelResult {
    /// Id of the reservation for the call.
    pub reservation_id: ReservationId,
    /// Name of the provider.
    pub provider: String,
    /// Name of the model that answered.
    pub model: String,
    /// The content of the answer.
    pub blocks: Vec<Block>,
    /// The reason why the model stopped; see [`Step::ModelAnswered`].
    pub stop: Option<String>,
    /// The tokens used. `None` if the provider did not report them; then the whole reservation is
    /// charged.
    pub usage: Option<TokenUsage>,
    /// Whether any number in `usage` is an estimate.
    pub estimated: bool,
    /// The model's price, if it is known.
    pub price: Option<Price>,
    /// Duration of the call in milliseconds.
    pub duration_ms: u64,
}

/// Journals an answer and settles its budget. Returns the updated turn.
pub fn model_answered(w: &mut Tx, turn_id: TurnId, result: ModelResult) -> Result<Turn> {
    let mut turn = working_turn(w, turn_id)?;
    let settlement = match result.usage {
        Some(tokens) => {
            let (model, price, duration_ms) = (result.model.clone(), result.price, result.duration_ms);
            let taken = Taken { model, tokens, price, duration_ms };
            if result.estimated { Settlement::Estimated(taken) } else { Settlement::Used(taken) }
        }
        None => Settlement::Forfeited,
    };
    let settled = budgets::settle(w, &mut turn, result.reservation_id, settlement)?;
    // If the reservation was forfeited in the meantime, it has been charged already, so the answer
    // is not charged again.
    let reported =
        |tokens| Charged { tokens, cost: result.price.map(|price| price.of(tokens)), estimated: result.estimated };
    let charged = settled.or_else(|| result.usage.map(reported)).unwrap_or(Charged::NOTHING);
    let tokens = charged.tokens;
    let calls = result.blocks.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count();
    let (model, blocks, stop) = (result.model.clone(), result.blocks, result.stop);
    w.journal(turn_id, &Step::ModelAnswered { model, blocks, usage: tokens, stop })?;
    turn.rounds = turn.rounds.saturating_add(1);
    turn.parked = None;
    turn.model = Some(result.model.clone());
    w.turn_put(&turn)?;
    let payload = json!({
        "turn_id": turn_id, "model": result.model, "input_tokens": tokens.input, "output_tokens": tokens.output,
        "cache_read": tokens.cache_read, "cache_write": tokens.cache_write,
        "cost_usd": charged.cost.map(Money::usd), "estimated": charged.estimated,
        "duration_ms": result.duration_ms, "tool_calls": calls,
    });
    w.emit_of(&turn, EventKind::ModelFinished, payload)?;
    Ok(turn)
}

/// Journals a model call that failed, and settles its budget as `settlement` says.
pub fn model_failed(
    w: &mut Tx,
    turn_id: TurnId,
    reservation_id: ReservationId,
    model: &str,
    error: &str,
    settlement: Settlement,
) -> Result<()> {
    let mut turn = working_turn(w, turn_id)?;
    let charged = budgets::settle(w, &mut turn, reservation_id, settlement)?.unwrap_or(Charged::NOTHING);
    w.turn_put(&turn)?;
    let error = w.ctx.excerpt(error, 1_000);
    w.journal(turn_id, &Step::ModelFailed { model: model.to_owned(), error: error.clone() })?;
    let payload = json!({
        "turn_id": turn_id, "model": model, "error": error,
        "input_tokens": charged.tokens.input, "output_tokens": charged.tokens.output,
        "cost_usd": charged.cost.map(Money::usd), "estimated": charged.estimated,
    });
    w.emit_of(&turn, EventKind::ModelFailed, payload)
}

/// Journals that the conversation is limited to `context` bytes from here on, because the model
/// refused it as too long. It must run in the transaction of that failure, or of the last fall-back
/// model that is skipped for it, so that a resumed turn sees both or neither.
pub fn shortened(w: &mut Tx, turn_id: TurnId, model: &str, context: u64) -> Result<()> {
    journal(w, turn_id, &Step::Shortened { model: model.to_owned(), context }).map(drop)
}

/// Journals that the opaque state of the provider's earlier answers is omitted from here on,
/// because the provider refuses it. It must run in the transaction of that failure.
pub fn state_dropped(w: &mut Tx, turn_id: TurnId, model: &str) -> Result<()> {
    let turn = journal(w, turn_id, &Step::StateDropped { model: model.to_owned() })?;
    w.emit_of(&turn, EventKind::ModelStateDropped, json!({ "turn_id": turn_id, "model": model }))
}

/// Journals that the images so far are omitted from here on, because the provider refused a request that showed them. It
/// must run in the transaction of that failure.
pub fn images_dropped(w: &mut Tx, turn_id: TurnId, model: &str) -> Result<()> {
    journal(w, turn_id, &Step::ImagesDropped { model: model.to_owned() }).map(drop)
}

/// Journals that the store does not accept an answer, so that the attempt is counted if the daemon
/// dies. The reservation stays until the answer or a restart settles it.
pub fn answer_waits(w: &mut Tx, turn_id: TurnId, model: &str, why: &str) -> Result<()> {
    let error = format!("its answer is kept in memory until the store accepts it: {why}");
    unsettled(w, turn_id, model, &error, true, |error| Step::ModelFailed { model: model.to_owned(), error })
}

/// Journals that a fall-back model was skipped because its call cannot be paid for. The event
/// reports a failure without cost.
pub fn passed_over(w: &mut Tx, turn_id: TurnId, model: &str, why: &str) -> Result<()> {
    let error = format!("not asked: {why}");
    unsettled(w, turn_id, model, &error, false, |why| Step::PassedOver { model: model.to_owned(), why })
}

/// Journals a failure that settles no reservation. `kept` is true if an answer exists, so that a
/// reader keeps the text streamed so far.
fn unsettled(
    w: &mut Tx,
    turn_id: TurnId,
    model: &str,
    error: &str,
    kept: bool,
    step: impl FnOnce(String) -> Step + Send,
) -> Result<()> {
    let error = w.ctx.excerpt(error, 300);
    let turn = journal(w, turn_id, &step(error.clone()))?;
    let payload = json!({ "turn_id": turn_id, "model": model, "error": error, "kept": kept });
    w.emit_of(&turn, EventKind::ModelFailed, payload)
}

/// Journals a note of Ghost's own to the model.
pub fn note(w: &mut Tx, turn_id: TurnId, text: &str) -> Result<()> {
    journal(w, turn_id, &Step::Note { text: text.to_owned() }).map(drop)
}
