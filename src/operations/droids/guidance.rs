//! Guidance that reaches a droid while its turn runs (DROID-15).
//!
//! The mail joins the turn in the transaction that journals what the model reads of it, so that a resumed turn shows it
//! once and only once.

use crate::mail;
use crate::prelude::*;
use crate::turns::ownership::working_turn;

/// Messages that join at once.
const AT_ONCE: u32 = 16;

/// Whether mail has come for a droid since its turn took its mail. It reads nothing that the writer does not know.
///
/// # Errors
/// If the store cannot be read.
pub fn has_guidance(w: &mut Tx, droid_id: &AgentId) -> Result<bool> {
    Ok(w.inbox_depth(droid_id)? > 0)
}

/// Takes the mail that has come for the turn's droid. Returns what the model reads of it, in the words of `shown`; `None`
/// if there was none.
///
/// # Errors
/// If the turn has ended, or another daemon owns its agent.
pub fn take_guidance(
    w: &mut Tx,
    ctx: &Context,
    turn_id: TurnId,
    shown: &(dyn Fn(&[Envelope]) -> String + Send + Sync),
) -> Result<Option<String>> {
    let turn = working_turn(w, ctx, turn_id)?;
    let joined = mail::join(w, ctx, &turn.agent_id, turn_id, AT_ONCE)?;
    if joined.mail.is_empty() {
        return Ok(None);
    }
    let text = shown(&joined.mail);
    let messages = joined.mail.iter().map(|envelope| envelope.message_id).collect();
    w.journal_append(turn_id, &Step::MailJoined { messages }, ctx.now())?;
    w.journal_append(turn_id, &Step::Note { text: text.clone() }, ctx.now())?;
    Ok(Some(text))
}
