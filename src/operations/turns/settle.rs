//! What an operator found out of a call whose outcome nobody knew (promise 2): the ledger gets it, and the agent is told.
//! A turn that waits for it goes on.
//!
//! This must never change a call whose outcome is known, and never make a call.

use super::calls::calls_of;
use super::ownership::working_turn;
use crate::mail::{self, NewMessage};
use crate::prelude::*;

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
    let Some(mut row) = w.call_get(call_id)? else {
        return Err(Refusal::not_found("call", &call_id.to_string(), None)
            .hint("`ghostctl ledger --status unknown` lists the calls whose outcome nobody knows"));
    };
    if row.status == CallStatus::Started {
        return Err(refusal!(Conflict, "call {call_id} is still running")
            .hint("wait for its end, or end its turn with `ghostctl turn cancel`"));
    }
    if row.status != CallStatus::Unknown {
        return Err(refusal!(Conflict, "the outcome of call {call_id} is known: {}", row.status)
            .hint("`ghostctl ledger --status unknown` lists the calls whose outcome nobody knows"));
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
