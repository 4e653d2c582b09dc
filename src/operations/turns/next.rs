//! Determines an agent's next work and the mail for it.
//!
//! This module must never change the store. [`super::take`] checks the result again when it takes
//! the mail.

use ghost_domain::mail::{Room, left_behind, plan_turn};

use crate::prelude::*;

/// An agent's next work, as a read of the store shows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// There is nothing to do.
    Nothing,
    /// Resume the open turn.
    Resume,
    /// Open a turn with this mail.
    Mail {
        /// The mail, in order.
        mail: Vec<Envelope>,
        /// Whether waking mail is left for a later turn. If not, the agent need not check again
        /// after this turn: later mail brings its own wake-up.
        more: bool,
        /// Quiet mail of other sessions, which must be roused; see [`left_behind`].
        behind: Vec<MessageId>,
        /// Whether the agent's chat channels have unread messages.
        unread: bool,
        /// The skills that the agent holds.
        skills: Vec<HeldSkill>,
    },
}

/// The mail that [`next`] found, to be passed to [`super::take`].
#[derive(Clone, Debug)]
pub struct FoundMail {
    /// The mail, in order; see [`Next::Mail`].
    pub mail: Vec<Envelope>,
    /// Quiet mail that must be roused; see [`Next::Mail`].
    pub behind: Vec<MessageId>,
    /// Whether the agent's chat channels have unread messages; see [`Next::Mail`].
    pub unread: bool,
    /// Maximum bytes of mail and chat in the turn.
    pub bytes_max: usize,
}

/// Determines an agent's next work.
///
/// This runs outside the writer, because a scan of the inbox there would hold the writer
/// for every turn. Only the agent's own turns take its mail, so normally the mail found
/// here still waits when [`super::take`] runs; if not, `take` reads the inbox again.
///
/// `no_open_turn` is true if the caller has just ended the agent's last turn, so that none can be open.
/// `bytes_max` is the maximum bytes of mail and chat in the turn.
pub fn next(r: &mut Tx, agent_id: &AgentId, no_open_turn: bool, bytes_max: usize) -> Result<Next> {
    let ctx = r.ctx;
    if !no_open_turn && r.turn_open_of(agent_id)?.is_some() {
        return Ok(Next::Resume);
    }
    let state = r.inbox_state(agent_id, window(ctx))?;
    let (mail, behind, more) = choose(r, agent_id, state.mail, bytes_max)?;
    if mail.is_empty() {
        return Ok(Next::Nothing);
    }
    Ok(Next::Mail { mail, more, behind, unread: state.unread, skills: state.skills })
}

/// The maximum bytes of mail in a turn whose conversation may have `context_bytes`. It is half, so
/// that the other half is free for the rest of the prompt and for the turn's own work.
#[must_use]
pub fn mail_room(context_bytes: u32) -> usize {
    context_bytes as usize / 2
}

/// The number of envelopes that are read from an inbox first.
pub(super) fn window(ctx: &Context) -> u32 {
    ctx.limits().turn_mail_max.saturating_mul(2)
}

/// Chooses the mail of an agent's next turn from the beginning of its inbox. Also returns the mail that must be roused, and
/// whether waking mail is left then.
pub(super) fn choose(
    r: &mut Tx,
    agent_id: &AgentId,
    mut pending: Vec<Envelope>,
    bytes: usize,
) -> Result<(Vec<Envelope>, Vec<MessageId>, bool)> {
    let (limits, window) = (r.ctx.limits(), window(r.ctx));
    let full = pending.len() >= window as usize;
    if full && !pending.iter().any(|envelope| envelope.wake) {
        // Quiet mail fills the window, so waking mail may come after it.
        pending = r.inbox_ready(agent_id, limits.inbox_max.saturating_mul(2))?;
    }
    let room = Room { envelopes: limits.turn_mail_max as usize, bytes };
    let taken = plan_turn(&pending, room, &r.ctx.jobs());
    let behind = left_behind(&pending, &taken);
    let taken: Vec<Envelope> = taken.into_iter().cloned().collect();
    let waking = |mail: &[Envelope]| mail.iter().filter(|envelope| envelope.wake).count();
    let more = full || !behind.is_empty() || waking(&pending) > waking(&taken);
    Ok((taken, behind, more))
}

/// Returns the mail that [`next`] found, with fresh turn ids and crash counts, if all of it still
/// waits. Otherwise `None`.
pub(super) fn refresh_if_pending(w: &mut StoreTx, mut mail: Vec<Envelope>) -> Result<Option<Vec<Envelope>>> {
    for envelope in &mut mail {
        match w.message_state(envelope.message_id)? {
            Some((MailState::Pending, turn_id, crashes)) => (envelope.turn_id, envelope.crashes) = (turn_id, crashes),
            _ => return Ok(None),
        }
    }
    Ok(Some(mail))
}
