//! Model calls: budget is held in the transaction that journals the start, and settled in the one that journals the end.

use ghost_domain::budget::{Allowance, Price};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::Step;
use ghost_domain::transcript::{Block, TokenUsage};
use ghost_domain::usage::UsageRow;
use ghost_domain::{Money, ReservationId, Turn, TurnId};
use ghost_store::Writes;
use serde_json::json;

use super::{owned, working_turn};
use crate::budgets::{self, Demand, Settlement};
use crate::{Cx, Result};

/// Journals the prompt that was assembled for a turn: the hashes of its stable parts, which are kept once, and the rest.
pub async fn brief(
    w: &mut dyn Writes,
    cx: &Cx,
    turn_id: TurnId,
    system: (&str, &str),
    briefing: (&str, &str),
    recent: String,
    mail: String,
) -> Result<()> {
    working_turn(w, cx, turn_id).await?;
    let now = cx.now();
    w.prompt_put(system.0, system.1, now).await?;
    w.prompt_put(briefing.0, briefing.1, now).await?;
    let step = Step::Briefed { system: system.0.to_owned(), briefing: briefing.0.to_owned(), recent, mail };
    w.journal_append(turn_id, &step, now).await?;
    Ok(())
}

/// Journals that a model is about to be asked, and holds the budget for it. Refuses when a budget is spent.
pub async fn model_started(
    w: &mut dyn Writes,
    cx: &Cx,
    turn_id: TurnId,
    demand: &Demand,
) -> Result<(ReservationId, Allowance)> {
    let mut turn = super::open_turn(w, turn_id).await?;
    let agent = owned(w, cx, &turn.agent_id).await?;
    let (reservation_id, allowance) = budgets::reserve(w, cx, &agent, &mut turn, demand).await?;
    let step = Step::ModelStarted { model: demand.model.clone(), reservation_id };
    w.journal_append(turn_id, &step, cx.now()).await?;
    let event = NewEvent::new(
        EventKind::ModelStarted,
        json!({ "turn_id": turn_id, "model": demand.model, "max_tokens": allowance.max_tokens }),
    )
    .agent(&turn.agent_id)
    .correlation(turn_id);
    cx.emit(w, event).await?;
    Ok((reservation_id, allowance))
}

/// An answered model call.
#[derive(Clone, Debug)]
pub struct ModelResult {
    /// The budget that was held.
    pub reservation_id: ReservationId,
    /// The provider.
    pub provider: String,
    /// The model that answered.
    pub model: String,
    /// What it said.
    pub blocks: Vec<Block>,
    /// What it took; `None` if the provider did not say, and then the reservation counts.
    pub usage: Option<TokenUsage>,
    /// The price, if known.
    pub price: Option<Price>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// Journals an answer and settles its budget. Gives the turn as it stands after it.
pub async fn model_answered(w: &mut dyn Writes, cx: &Cx, turn_id: TurnId, result: ModelResult) -> Result<Turn> {
    let mut turn = working_turn(w, cx, turn_id).await?;
    let held = turn.held.clone().filter(|held| held.reservation_id == result.reservation_id);
    let (tokens, cost, estimated, settlement) = match (result.usage, &held) {
        (Some(usage), _) => {
            let cost = result.price.map_or(Money(0), |price| price.of(usage));
            (usage, cost, false, Settlement::Used { tokens: usage.total(), money: cost })
        }
        (None, Some(held)) => {
            let usage = TokenUsage { input: held.tokens, ..TokenUsage::default() };
            (usage, held.money, true, Settlement::Forfeited)
        }
        (None, None) => (TokenUsage::default(), Money(0), true, Settlement::Forfeited),
    };
    // A reservation that was forfeited meanwhile has its usage row already.
    if budgets::settle(w, cx, &mut turn, result.reservation_id, settlement).await?.is_some() {
        w.usage_append(&UsageRow {
            agent_id: turn.agent_id.clone(),
            turn_id,
            root_id: turn.root_id,
            provider: result.provider.clone(),
            model: result.model.clone(),
            tokens,
            cost,
            estimated,
            duration_ms: result.duration_ms,
            at: cx.now(),
        })
        .await?;
    }
    let calls = result.blocks.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count();
    let step = Step::ModelAnswered { model: result.model.clone(), blocks: result.blocks, usage: tokens };
    w.journal_append(turn_id, &step, cx.now()).await?;
    turn.rounds = turn.rounds.saturating_add(1);
    turn.input_tokens = turn.input_tokens.saturating_add(tokens.input);
    turn.output_tokens = turn.output_tokens.saturating_add(tokens.output);
    turn.cost = turn.cost.plus(cost);
    turn.model = Some(result.model.clone());
    w.turn_put(&turn).await?;
    let event = NewEvent::new(
        EventKind::ModelFinished,
        json!({
            "turn_id": turn_id, "model": result.model, "input_tokens": tokens.input, "output_tokens": tokens.output,
            "cache_read": tokens.cache_read, "cache_write": tokens.cache_write,
            "cost_usd": cost.usd(), "duration_ms": result.duration_ms, "tool_calls": calls,
        }),
    )
    .agent(&turn.agent_id)
    .correlation(turn_id);
    cx.emit(w, event).await?;
    Ok(turn)
}

/// Journals a model call that failed. `billed` says whether tokens may have been used all the same.
pub async fn model_failed(
    w: &mut dyn Writes,
    cx: &Cx,
    turn_id: TurnId,
    reservation_id: ReservationId,
    model: &str,
    error: &str,
    billed: bool,
) -> Result<()> {
    let mut turn = working_turn(w, cx, turn_id).await?;
    if billed {
        budgets::forfeit_held(w, cx, &mut turn).await?;
    } else {
        budgets::settle(w, cx, &mut turn, reservation_id, Settlement::Released).await?;
    }
    let error = cx.excerpt(error, 1_000);
    let step = Step::ModelFailed { model: model.to_owned(), error: error.clone() };
    w.journal_append(turn_id, &step, cx.now()).await?;
    let event = NewEvent::new(EventKind::ModelFailed, json!({ "turn_id": turn_id, "model": model, "error": error }))
        .agent(&turn.agent_id)
        .correlation(turn_id);
    cx.emit(w, event).await
}

/// Journals words of ours to the model.
pub async fn note(w: &mut dyn Writes, cx: &Cx, turn_id: TurnId, text: &str) -> Result<()> {
    working_turn(w, cx, turn_id).await?;
    w.journal_append(turn_id, &Step::Note { text: text.to_owned() }, cx.now()).await?;
    Ok(())
}
