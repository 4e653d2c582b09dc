//! Handles a turn that cannot continue (docs/design.md, "Supervision and restart"). If it has
//! several messages, each is tried again alone. A turn with a single message continues from its
//! journal after a crash. The message becomes a dead letter if its turn keeps crashing or fails for
//! good. Mail is consumed by an answer, or held.

use super::calls::awaits_person;
use super::end::{close, finish};
use super::ending::Ending;
use crate::lookup::{taken_mail, working_turn};
use crate::mail::ids;
use crate::prelude::*;
use crate::{budgets, dead_letters, questions};

/// The code of the error that an asker gets when a turn crashed or stalled.
const CRASHED: Code = Code::Unavailable;

/// Records a crash inside the process. The death of the daemon is not counted here.
pub fn crashed(w: &mut Tx, agent_id: &AgentId, reason: &str) -> Result<()> {
    let Some(mut turn) = w.turn_open_of(agent_id)? else { return Ok(()) };
    turn.crashes = turn.crashes.saturating_add(1);
    w.turn_put(&turn)?;
    let mail = taken_mail(w, turn.turn_id)?;
    let Some(mail) = single(w, &turn, &mail)? else {
        return split(w, turn, &mail, (reason, CRASHED), 1);
    };
    let ids = ids(&mail);
    budgets::forfeit_held(w, &mut turn)?;
    questions::end_all(w, &mut turn)?;
    w.message_mark(&ids, MailState::Taken, Some(turn.turn_id), 1)?;
    let crashes = mail.first().map_or(turn.crashes, |envelope| envelope.crashes + 1);
    if crashes >= w.ctx.limits().crashes_max {
        dead_letters::end_turn(w, turn, &ids, (reason, CRASHED), crashes)?;
    }
    Ok(())
}

/// Checks every open turn when the daemon starts. A turn that makes no progress over several starts
/// becomes a dead letter, or is split. An operator's turn ends as failed, because its caller no
/// longer waits.
pub fn review_at_boot(w: &mut Tx) -> Result<()> {
    for mut turn in w.turns_open()? {
        if turn.source == "operator" {
            let refusal = refusal!(OutcomeUnknown, "the daemon stopped while this call was running")
                .hint("check what it changed before you try again");
            finish(w, turn.turn_id, Ending::Failed(refusal))?;
            continue;
        }
        // The daemon's death interrupted the model call of this turn, whether or not its agent runs
        // again. The programs that asked in the middle of a call are gone.
        budgets::forfeit_held(w, &mut turn)?;
        questions::end_all(w, &mut turn)?;
        if turn.parked.is_some() {
            // A parked turn waits for an outside cause, so it may wait over any number of starts.
            continue;
        }
        let mark = turn.rounds.saturating_add(turn.calls).saturating_add(1);
        if !runs(w, &turn.agent_id)? {
            // A stopped agent makes no progress, so this turn is not stalled.
            continue;
        }
        let waiting = !w.asks_open_of_turn(turn.turn_id)?.is_empty()
            || !w.approvals_pending_of_turn(turn.turn_id)?.is_empty()
            || awaits_person(w, turn.turn_id)?;
        if turn.boot_mark == mark && !waiting {
            turn.stalled_boots = turn.stalled_boots.saturating_add(1);
        } else {
            turn.stalled_boots = 0;
        }
        turn.boot_mark = mark;
        w.turn_put(&turn)?;
        if turn.stalled_boots >= w.ctx.limits().stalled_boots_max {
            let reason = format!("no progress over {} starts of the daemon", turn.stalled_boots);
            let mail = taken_mail(w, turn.turn_id)?;
            match single(w, &turn, &mail)? {
                None => split(w, turn, &mail, (&reason, CRASHED), 1)?,
                Some(mail) => {
                    let ids = ids(&mail);
                    let boots = turn.stalled_boots;
                    dead_letters::end_turn(w, turn, &ids, (&reason, CRASHED), boots)?;
                }
            }
        }
    }
    Ok(())
}

/// Ends a turn that failed for good: no model can answer it, or it cannot run. If it has several messages, each is tried
/// again alone. A single message becomes a dead letter, which an operator can retry. Heartbeats, cron turns and chat
/// wake-ups are dropped, because the world creates them again.
pub fn fail(w: &mut Tx, turn_id: TurnId, refusal: Refusal) -> Result<Turn> {
    let turn = working_turn(w, turn_id)?;
    let mail = taken_mail(w, turn.turn_id)?;
    let reason = refusal.to_string();
    match single(w, &turn, &mail)? {
        None => split(w, turn, &mail, (&reason, refusal.code), 0)?,
        Some(mail) if mail.iter().all(|envelope| envelope.is_chat_wake() || recurs(envelope.kind)) => {
            return finish(w, turn_id, Ending::Failed(refusal));
        }
        Some(mail) => {
            let ids = ids(&mail);
            dead_letters::end_turn(w, turn, &ids, (&reason, refusal.code), 0)?;
        }
    }
    w.turn_get(turn_id)?.ok_or_else(|| Refusal::not_found("turn", &turn_id.to_string(), None))
}

/// Whether the next time slot of a schedule creates such mail again.
fn recurs(kind: Kind) -> bool {
    matches!(kind, Kind::Heartbeat | Kind::CronTurn)
}

fn runs(w: &mut StoreTx, agent_id: &AgentId) -> Result<bool> {
    let agent = w.agent_get(agent_id)?;
    Ok(agent.is_some_and(|agent| agent.desired == Desired::Running && agent.status != AgentStatus::Failed))
}

/// Returns a turn's mail if it holds at most one message besides chat wake-ups. Returns `None` if
/// there are several messages, to be tried separately. Chat wake-ups that came with a single message
/// are consumed.
fn single(w: &mut StoreTx, turn: &Turn, mail: &[Envelope]) -> Result<Option<Vec<Envelope>>> {
    let (wakes, rest): (Vec<Envelope>, Vec<Envelope>) = mail.iter().cloned().partition(Envelope::is_chat_wake);
    match rest.len() {
        0 => Ok((wakes.len() < 2).then_some(wakes)),
        1 => {
            w.message_mark(&ids(&wakes), MailState::Consumed, Some(turn.turn_id), 0)?;
            Ok(Some(rest))
        }
        _ => Ok(None),
    }
}

/// Returns a turn's mail to the inbox, so that each message is tried alone. The envelopes keep the
/// turn's id, so that later turns can tell the model what this one did. A message that has crashed
/// too often becomes a dead letter instead. Otherwise mail that joins later could keep a poisoned
/// message alive for ever.
fn split(w: &mut Tx, mut turn: Turn, mail: &[Envelope], (reason, code): (&str, Code), crashes: u32) -> Result<()> {
    let crashes_max = w.ctx.limits().crashes_max;
    // A chat wake-up has no text of its own to try again; the turn's digests hold the chat
    // messages.
    let (wakes, mail): (Vec<&Envelope>, Vec<&Envelope>) = mail.iter().partition(|envelope| envelope.is_chat_wake());
    w.message_mark(&ids(wakes), MailState::Consumed, Some(turn.turn_id), 0)?;
    let (poisoned, retried): (Vec<&Envelope>, Vec<&Envelope>) =
        mail.into_iter().partition(|envelope| envelope.crashes.saturating_add(crashes) >= crashes_max);
    let ids = ids(retried);
    w.message_mark(&ids, MailState::Pending, Some(turn.turn_id), crashes)?;
    // Each message runs alone now, so quiet mail would not join a turn of waking mail.
    w.message_rouse(&ids)?;
    for envelope in poisoned {
        let times = envelope.crashes.saturating_add(crashes);
        dead_letters::create(w, &turn, &[envelope.message_id], (reason, code), times)?;
    }
    let reason = w.ctx.excerpt(reason, 500);
    close(w, &mut turn, TurnStatus::Split, reason)?;
    let payload = json!({ "turn_id": turn.turn_id, "status": turn.status, "reason": turn.reason, "messages": ids });
    w.emit_of(&turn, EventKind::TurnFinished, payload)?;
    w.wake(&turn.agent_id);
    Ok(())
}
