//! What an agent has to do next, and with which of its mail.
//!
//! Must never: change anything; what is seen here is looked at again by whoever takes it.

use ghost_domain::mail::{Room, plan_turn};
use ghost_domain::{AgentId, Envelope, HeldSkill, MailState};
use ghost_store::{Reads, Writes};

use crate::{Result, RuleContext};

/// What an agent has to do next, as a snapshot shows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Nothing.
    Nothing,
    /// To go on with its open turn.
    Resume,
    /// To open a turn with this mail.
    Mail {
        /// Which.
        mail: Vec<Envelope>,
        /// Whether mail that wakes was left for a later turn. If not, there is nothing to look for after this one: what
        /// comes after the snapshot brings a wake-up of its own.
        more: bool,
        /// Whether the agent's chat channels have something that it has not been shown.
        unread: bool,
        /// The skills that it holds.
        skills: Vec<HeldSkill>,
    },
}

/// What [`next`] saw of a turn's mail, for [`take`].
#[derive(Clone, Debug)]
pub struct Seen {
    /// See [`Next::Mail`].
    pub mail: Vec<Envelope>,
    /// See [`Next::Mail`].
    pub unread: bool,
    /// What the turn has room for; see [`next`].
    pub room: usize,
}

/// Looks what an agent has to do next. Done over a snapshot, because looking through an inbox inside the writer would
/// bring everything that waits there into SQL, for every turn; only the agent's own turns take its mail, so what is seen
/// here is still there when [`take`] comes for it, or take looks anew. `settled` says that the caller has ended the
/// agent's last turn itself, so that none can be open. `room` is how many bytes of mail and chat its turn has room for.
pub async fn next(
    r: &mut dyn Reads,
    ctx: &RuleContext,
    agent_id: &AgentId,
    settled: bool,
    room: usize,
) -> Result<Next> {
    if !settled && r.turn_open_of(agent_id).await?.is_some() {
        return Ok(Next::Resume);
    }
    let look = r.inbox_state(agent_id, window(ctx)).await?;
    let (mail, more) = choose(r, ctx, agent_id, look.mail, room).await?;
    if mail.is_empty() {
        return Ok(Next::Nothing);
    }
    Ok(Next::Mail { mail, more, unread: look.unread, skills: look.skills })
}

/// How many bytes of mail a turn has room for whose conversation may have `context_bytes`: half of them, so that there is
/// room for what the agent is told besides, and for what it does.
#[must_use]
pub fn mail_room(context_bytes: u32) -> usize {
    context_bytes as usize / 2
}

/// How much of an inbox is looked at first.
pub(super) fn window(ctx: &RuleContext) -> u32 {
    ctx.limits().turn_mail_max.saturating_mul(2)
}

/// The mail of an agent's next turn out of the beginning of its inbox, and whether more of it wakes.
pub(super) async fn choose(
    r: &mut dyn Reads,
    ctx: &RuleContext,
    agent_id: &AgentId,
    mut pending: Vec<Envelope>,
    bytes: usize,
) -> Result<(Vec<Envelope>, bool)> {
    let (limits, window) = (ctx.limits(), window(ctx));
    let full = pending.len() >= window as usize;
    if full && !pending.iter().any(|envelope| envelope.wake) {
        // Quiet mail fills the window; what wakes lies behind it.
        pending = r.inbox_ready(agent_id, limits.inbox_max.saturating_mul(2)).await?;
    }
    let room = Room { envelopes: limits.turn_mail_max as usize, bytes };
    let taken: Vec<Envelope> = plan_turn(&pending, room, &ctx.jobs()).into_iter().cloned().collect();
    let waking = |mail: &[Envelope]| mail.iter().filter(|envelope| envelope.wake).count();
    let more = full || waking(&pending) > waking(&taken);
    Ok((taken, more))
}

/// The mail that was seen by [`next`], if all of it still waits.
pub(super) async fn still_there(w: &mut dyn Writes, mut mail: Vec<Envelope>) -> Result<Option<Vec<Envelope>>> {
    for envelope in &mut mail {
        match w.message_standing(envelope.message_id).await? {
            Some((MailState::Pending, turn_id, crashes)) => (envelope.turn_id, envelope.crashes) = (turn_id, crashes),
            _ => return Ok(None),
        }
    }
    Ok(Some(mail))
}
