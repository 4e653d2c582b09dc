//! Dead letters: mail that its agent could not process, kept for an operator (promise 3).

use crate::agents::orders::stop;
use crate::droids::family;
use crate::lookup::{agent_for, may_act};
use crate::prelude::*;
use crate::turns::end::{close, emit_end};
use crate::{asks, conversations, schedules};

/// Turns a turn's mail into a dead letter and ends the turn. Askers are notified at once, with the reason and its code.
pub fn end_turn(
    w: &mut Tx,
    mut turn: Turn,
    messages: &[MessageId],
    why: (&str, Code),
    crashes: u32,
) -> Result<DeadLetter> {
    let dead_letter = create(w, &turn, messages, why, crashes)?;
    close(w, &mut turn, TurnStatus::Dead, dead_letter.reason.clone())?;
    emit_end(w, &turn)?;
    w.wake(&turn.agent_id);
    if turn.agent_id.is_droid() {
        family::crashed(w, &turn.agent_id, &dead_letter.reason)?;
    }
    Ok(dead_letter)
}

/// Turns mail of a turn into a dead letter, without ending the turn. Askers are notified at once.
pub(crate) fn create(
    w: &mut Tx,
    turn: &Turn,
    messages: &[MessageId],
    (reason, code): (&str, Code),
    crashes: u32,
) -> Result<DeadLetter> {
    let reason = w.ctx.excerpt(reason, 500);
    w.message_mark(messages, MailState::Dead, Some(turn.turn_id), 0)?;
    let happened = if crashes == 0 { "could not process" } else { "crashed on" };
    let why = format!("{happened} this message, which is a dead letter now: {reason}");
    let refusal = Refusal::new(code, format!("{} {why}", turn.agent_id))
        .hint("an operator can see it with `ghostctl dead list`, and retry it");
    for message_id in messages {
        let Some(envelope) = w.message_get(*message_id)? else { continue };
        schedules::lost(w, envelope.message_id, envelope.kind, &refusal.message)?;
        if let Some(ask_id) = envelope.ask_id {
            asks::fail(w, ask_id, &refusal)?;
        }
        if envelope.kind == Kind::Conversation
            && let Some(conversation_id) = envelope.conversation_id
        {
            conversations::unanswered(w, turn, conversation_id, &why)?;
        }
    }
    let dead_letter = DeadLetter {
        dead_letter_id: DeadLetterId(w.ctx.id()),
        agent_id: turn.agent_id.clone(),
        turn_id: turn.turn_id,
        messages: messages.to_vec(),
        reason,
        crashes,
        status: DeadLetterStatus::Held,
        created_at: w.ctx.now(),
        resolved_at: None,
    };
    w.dead_letter_put(&dead_letter)?;
    emit(w, EventKind::DeadLetterHeld, &dead_letter, ("root_id", json!(turn.root_id)))?;
    let held = w.dead_letter_count_held(Some(&turn.agent_id))?;
    if held >= w.ctx.limits().dead_letters_max {
        // A dead letter is kept with its mail and journal until an operator decides. An agent that
        // produces one after another is stopped before they fill the disk.
        let why = format!(
            "it has {held} dead letters (limits.dead_letters_max): retry or drop them with `ghostctl dead`, then \
             start it again"
        );
        stop(w, &Party::System, &turn.agent_id, Some(&why))?;
    }
    Ok(dead_letter)
}

/// Retries a dead letter: from its journal, or in a new turn if `fresh` is set.
///
/// # Errors
/// `NotFound`; `Conflict` if it is not held, if its agent was deleted and created again, or is a droid that has ended.
pub fn retry(w: &mut Tx, by: &Party, id: DeadLetterId, fresh: bool) -> Result<DeadLetter> {
    let ctx = w.ctx;
    let mut dead_letter = held(w, id)?;
    let agent = agent_for(w, by, &dead_letter.agent_id)?;
    may_act(w, &agent)?;
    if let Some(mut turn) = w.turn_get(dead_letter.turn_id)? {
        if turn.incarnation != agent.incarnation {
            let Agent { agent_id, .. } = &agent;
            return Err(refusal!(Conflict, "dead letter {id} belongs to an earlier {agent_id}, which was deleted")
                .hint(format!("read it with `ghostctl dead show {id}`, and drop it")));
        }
        turn.crashes = 0;
        turn.stalled_boots = 0;
        w.turn_put(&turn)?;
        // The attempts before do not count any more, as after a wait.
        let step = Step::Parked { reason: format!("it failed, and {by} retried it") };
        w.journal_append(turn.turn_id, &step, ctx.now())?;
        let last = w.journal_of(turn.turn_id)?.into_iter().rev().find(|row| !matches!(row.step, Step::Parked { .. }));
        if dead_letter.crashes == 0 && last.is_some_and(|row| matches!(row.step, Step::ModelAnswered { .. })) {
            // The model's last answer was a refusal or not complete. It ended nothing, and its calls must not run.
            let text = "This turn failed, and an operator has it tried again. Go on with it.".to_owned();
            w.journal_append(turn.turn_id, &Step::Note { text }, ctx.now())?;
        }
    }
    w.message_forgive(&dead_letter.messages)?;
    let turn_id = (!fresh).then_some(dead_letter.turn_id);
    w.message_mark(&dead_letter.messages, MailState::Pending, turn_id, 0)?;
    // A retried message wakes the agent even if it was quiet mail, because mail of an earlier turn
    // joins no other turn.
    w.message_rouse(&dead_letter.messages)?;
    resolve(w, by, &mut dead_letter, DeadLetterStatus::Retried, EventKind::DeadLetterRetried)?;
    w.wake(&dead_letter.agent_id);
    Ok(dead_letter)
}

/// Drops a dead letter. It stays readable until retention deletes it.
pub fn discard(w: &mut Tx, by: &Party, id: DeadLetterId) -> Result<DeadLetter> {
    let mut dead_letter = held(w, id)?;
    w.message_mark(&dead_letter.messages, MailState::Consumed, Some(dead_letter.turn_id), 0)?;
    resolve(w, by, &mut dead_letter, DeadLetterStatus::Dropped, EventKind::DeadLetterDropped)?;
    Ok(dead_letter)
}

fn held(w: &mut StoreTx, id: DeadLetterId) -> Result<DeadLetter> {
    let dead_letter = found(w.dead_letter_get(id)?, "dead letter", id, "see `ghostctl dead list`")?;
    if dead_letter.status != DeadLetterStatus::Held {
        return Err(refusal!(Conflict, "dead letter {id} was already {}", dead_letter.status)
            .hint("only a held dead letter can be retried or dropped; the turns of its agent show what it did"));
    }
    Ok(dead_letter)
}

fn resolve(
    w: &mut Tx,
    by: &Party,
    dead_letter: &mut DeadLetter,
    status: DeadLetterStatus,
    kind: EventKind,
) -> Result<()> {
    dead_letter.status = status;
    dead_letter.resolved_at = Some(w.ctx.now());
    w.dead_letter_put(dead_letter)?;
    emit(w, kind, dead_letter, ("by", json!(by)))
}

/// Emits an event with one more fact.
fn emit(w: &mut Tx, kind: EventKind, dead_letter: &DeadLetter, (field, fact): (&str, Value)) -> Result<()> {
    let mut payload = json!({
        "dead_letter_id": dead_letter.dead_letter_id, "turn_id": dead_letter.turn_id, "messages": dead_letter.messages,
        "reason": dead_letter.reason, "crashes": dead_letter.crashes, "by": null,
    });
    payload[field] = fact;
    w.emit(NewEvent::new(kind, payload).agent(&dead_letter.agent_id).correlation(dead_letter.turn_id))
}
