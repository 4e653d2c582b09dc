//! The end of a turn. One transaction records its status, consumes its mail and sends the replies
//! that its mail expects.

use super::calls::close_open_calls;
use super::ending::Ending;
use crate::droids::close::turn_ended;
use crate::lookup::{open_turn, owned};
use crate::prelude::*;
use crate::{approvals, asks, budgets, conversations, schedules};

/// The longest reason, in characters, that is stored for a turn that did not finish.
const REASON_MAX: usize = 2_000;

/// The precision of an agent's `last_active_at`. It saves a write of the agent's row for every turn
/// of a busy agent.
const ACTIVE_EXACT: Duration = Duration::from_secs(60);

/// The least time between the ends of two turns while the clock is behind: the precision of a [`Timestamp`].
const TICK: Duration = Duration::from_millis(1);

/// Ends an open turn: consumes its mail and sends the replies that its mail expects. Anyone may
/// cancel a turn. Any other ending needs the daemon that owns the agent.
pub fn finish(w: &mut Tx, turn_id: TurnId, ending: Ending) -> Result<Turn> {
    let ctx = w.ctx;
    let mut turn = open_turn(w, turn_id)?;
    if !matches!(ending, Ending::Cancelled(_)) {
        owned(w, &turn.agent_id)?;
    }
    let (status, text, truncated) = (ending.status(), ending.text().map(str::to_owned), ending.is_cut());
    let reason = match (&ending, ending.refusal()) {
        (Ending::Cancelled(why), _) => Some(ctx.excerpt(why, REASON_MAX)),
        (_, refusal) => refusal.map(|refusal| ctx.excerpt(&refusal.to_string(), REASON_MAX)),
    };
    let answer_text = ending.answer_text();
    let taken = w.mail_taken(turn_id)?;
    let ids: Vec<MessageId> = taken.iter().map(|mail| mail.message_id).collect();
    w.message_mark(&ids, MailState::Consumed, Some(turn_id), 0)?;
    if let Some(conversation_id) = conversations::owed(&taken) {
        match &answer_text {
            Some(text) => conversations::answer(w, &turn, conversation_id, &ids, text)?,
            None => conversations::unanswered(w, &turn, conversation_id, &no_answer(&ending))?,
        }
    }
    let answered = conversations::owed(&taken);
    for mail in taken.iter().filter(|mail| mail.kind == Kind::Handoff) {
        if let Some(conversation_id) = mail.conversation_id.filter(|id| answered != Some(*id)) {
            conversations::taken_over(w, &turn, conversation_id, &ending)?;
        }
    }
    for mail in &taken {
        schedules::turn_ended(w, &turn, mail.message_id, mail.kind, &ending)?;
    }
    for ask_id in taken.into_iter().filter_map(|mail| mail.ask_id) {
        match &answer_text {
            Some(text) => asks::answer(w, ask_id, text, truncated)?,
            None => {
                let why = || refusal!(Cancelled, "{}'s turn {}", turn.agent_id, no_answer(&ending));
                asks::fail(w, ask_id, &ending.refusal().cloned().unwrap_or_else(why))?;
            }
        }
    }
    // A turn finishes only after all its calls have ended. So it waits for no ask and holds no
    // reservation. A check would hold the writer for every turn.
    if status != TurnStatus::Finished {
        let_go(w, &mut turn)?;
    }
    if turn.is_in_background() {
        // Mail of its root waited for this turn.
        w.wake(&turn.agent_id);
    }
    let agent = w.agent_get(&turn.agent_id)?;
    let now = match &agent {
        Some(agent) => end_of_turn(w, agent, &turn, ctx.now())?,
        None => ctx.now(),
    };
    turn.status = status;
    turn.parked = None;
    turn.reason = reason;
    turn.text = text;
    turn.truncated = truncated;
    turn.ended_at = Some(now);
    w.turn_put(&turn)?;
    if let Some(mut agent) = agent
        && agent.last_active_at.is_none_or(|last| now >= last.plus(ACTIVE_EXACT))
    {
        agent.last_active_at = Some(now);
        w.agent_put(&agent)?;
    }
    if let Some(refusal) = ending.refusal()
        && refusal.code == Code::BudgetExhausted
    {
        let payload = json!({
            "turn_id": turn_id, "reason": refusal.message, "details": refusal.details, "root_id": turn.root_id,
        });
        w.emit_of(&turn, EventKind::BudgetExhausted, payload)?;
    }
    emit_end(w, &turn)?;
    if turn.agent_id.is_droid() && turn.source != "operator" {
        turn_ended(w, &turn, &ending)?;
    }
    Ok(turn)
}

/// Ends a turn without an answer, and what it waits for and holds.
pub(crate) fn close(w: &mut Tx, turn: &mut Turn, status: TurnStatus, reason: String) -> Result<()> {
    let_go(w, turn)?;
    turn.status = status;
    turn.parked = None;
    turn.reason = Some(reason);
    turn.ended_at = Some(w.ctx.now());
    Ok(w.turn_put(turn)?)
}

/// Ends what a turn waits for and holds, because it ends before its work does.
fn let_go(w: &mut Tx, turn: &mut Turn) -> Result<()> {
    asks::abandon(w, turn.turn_id)?;
    approvals::cancel(w, turn.turn_id)?;
    budgets::forfeit_held(w, turn)?;
    close_open_calls(w, turn)
}

/// When a turn of this agent ends, by a clock that says `now`. The log of a session is in the order of these times. So a
/// clock that is behind, or was ahead when the agent was created, puts no turn before the newest of its session or before
/// its agent.
fn end_of_turn(w: &mut StoreTx, agent: &Agent, turn: &Turn, now: Timestamp) -> Result<Timestamp> {
    let mut at = now.max(agent.created_at);
    // Only a clock that is behind costs a read.
    if agent.last_active_at.is_some_and(|last| now < last) {
        for source in ["mail", "cron"] {
            let newest = SessionTurns::newest(&agent.agent_id, turn.conversation_id, source, 1);
            for newest in w.session_turns(&newest)? {
                at = at.max(newest.log_place().ended_at.plus(TICK));
            }
        }
    }
    Ok(at)
}

/// Emits the event that a turn has ended.
pub(crate) fn emit_end(w: &mut Tx, turn: &Turn) -> Result<()> {
    let payload = json!({
        "turn_id": turn.turn_id, "status": turn.status, "reason": turn.reason, "rounds": turn.rounds,
        "calls": turn.calls, "input_tokens": turn.input_tokens, "output_tokens": turn.output_tokens,
        "cost_usd": turn.cost.usd(), "unpriced_tokens": turn.unpriced_tokens,
        "text": turn.text.as_deref().map(|text| w.ctx.excerpt(text, 400)), "truncated": turn.truncated,
        "root_id": turn.root_id,
    });
    w.emit_of(turn, EventKind::TurnFinished, payload)
}

/// Why a turn gave no answer, as the predicate of a sentence about it.
fn no_answer(ending: &Ending) -> String {
    match ending {
        Ending::Cancelled(why) => format!("was cancelled: {why}"),
        Ending::Failed(refusal) | Ending::AtBound { refusal, .. } => format!("failed: {}", refusal.message),
        Ending::Finished(_) | Ending::Cut(_) => "ended".to_owned(),
    }
}

/// Cancels an open turn on behalf of `by`. Its mail is consumed and is not tried again.
pub fn cancel(w: &mut Tx, by: &Party, turn_id: TurnId) -> Result<Turn> {
    match w.turn_get(turn_id)? {
        None => return Err(Refusal::not_found("turn", &turn_id.to_string(), None)),
        Some(turn) if turn.status != TurnStatus::Open => {
            return Err(refusal!(Conflict, "turn {turn_id} is already {}", turn.status)
                .hint("only an open turn can be cancelled"));
        }
        Some(_) => {}
    }
    let turn = finish(w, turn_id, Ending::Cancelled(format!("by {by}")))?;
    w.signal(Signal::TurnCancelled { agent_id: turn.agent_id.clone(), turn_id });
    Ok(turn)
}
