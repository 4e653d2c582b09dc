//! Turns: choosing and taking mail, calling models and tools, and ending. Each step is one transaction, so a crash can only
//! happen between steps (docs/design.md, "The way of a message").

pub(crate) mod calls;
mod crash;
pub(crate) mod end;
pub(crate) mod ending;
mod model;
pub(crate) mod parking;

use ghost_domain::mail::{Room, bytes_of, channel_of, left_behind, plan_turn, runs_alone, session_of};

pub use crate::lookup::{open_turn, owned, working_turn};
pub use calls::{
    CallStart, Settled, await_person, ledger_status, malformed, record_call_end, record_call_session,
    record_call_slice, record_call_start, settle, was_unsettled,
};
pub use crash::{crashed, fail, review_at_boot};
pub use end::{cancel, finish};
pub use ending::Ending;
pub use model::{
    BriefedLog, ModelResult, answer_waits, brief, images_dropped, model_answered, model_failed, model_started, note,
    passed_over, shortened, state_dropped, tools_changed,
};
pub use parking::{follow_root_default, park_for_model, retry};

use crate::chat::{ReadOn, read_on};
use crate::lookup::taken_mail;
use crate::mail::ids;
use crate::prelude::*;

/// The `source` of a turn that runs an operator's tool call.
const OPERATOR: &str = "operator";

/// A turn with the mail that it took.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The agent's record as it was when the turn was taken.
    pub agent: Agent,
    /// The turn's row.
    pub turn: Turn,
    /// The mail of the turn, in order.
    pub mail: Vec<Envelope>,
    /// Whether the turn was open already. Its journal then contains the steps so far.
    pub resumed: bool,
    /// Earlier turns that took the same mail and did not end well. The prompt tells the model what
    /// they did.
    pub earlier: Vec<TurnId>,
    /// If set, the turn must end at once, because its root has opened too many turns.
    pub over: Option<Refusal>,
    /// The record of the droid whose turn it is.
    pub droid: Option<Box<Droid>>,
}

/// Opens the agent's next turn, or resumes the one that is open. Returns `None` if there is nothing
/// to do.
///
/// `seen` is the mail that [`next`] found; without it, the inbox is read here. Unread chat of the
/// agent is added to the mail. A chat message that is committed after that read stays unread. If it
/// must wake the agent, it has its own wake-up.
pub fn take(w: &mut Tx, agent_id: &AgentId, seen: Option<FoundMail>) -> Result<Option<Taken>> {
    let ctx = w.ctx;
    let agent = owned(w, agent_id)?;
    if agent.desired != Desired::Running || agent.status != AgentStatus::Running {
        return Ok(None);
    }
    if let Some(turn) = w.turn_open_of(agent_id)? {
        return resume(w, agent, turn).map(Some);
    }
    let (mut waiting, unread, room) = match seen {
        Some(seen) => {
            let mail = refresh_if_pending(w, seen.mail)?;
            (mail.map(|mail| (mail, seen.behind)), seen.unread, seen.bytes_max)
        }
        None => (None, true, mail_room(ctx.limits().context_bytes)),
    };
    loop {
        let (mail, behind) = match waiting.take() {
            Some(found) => found,
            None => {
                let pending = w.inbox_ready(agent_id, window(ctx))?;
                let (mail, behind, _) = choose(w, agent_id, pending, room)?;
                (mail, behind)
            }
        };
        if !mail.iter().any(|envelope| envelope.wake) {
            return Ok(None);
        }
        if !behind.is_empty() {
            w.message_rouse(&behind)?;
        }
        let earlier: Vec<TurnId> = mail.iter().filter_map(|envelope| envelope.turn_id).collect();
        // Mail that an operator retried together with its dead turn continues that turn's journal.
        if let [turn_id] = earlier.as_slice()
            && let Some(mut turn) = w.turn_get(*turn_id)?
            && turn.status == TurnStatus::Dead
        {
            turn.status = TurnStatus::Open;
            turn.reason = None;
            turn.ended_at = None;
            w.turn_put(&turn)?;
            w.message_mark(&ids(&mail), MailState::Taken, Some(turn.turn_id), 0)?;
            // Done only here, where the agent has no other open turn that would send these files
            // with its own reply.
            crate::conversations::restore_drafts(w, turn.turn_id)?;
            return resume(w, agent, turn).map(Some);
        }
        let turn_id = TurnId(ctx.id());
        let (mail, over) = within_its_root(w, agent_id, mail)?;
        let chat = match over {
            // A turn that ends at once shows the chat messages to nobody, so they stay unread.
            Some(_) => ReadOn::default(),
            None => with_chat(w, agent_id, turn_id, &mail, unread, room)?,
        };
        if over.is_none() && chat.digests.is_empty() && mail.iter().all(Envelope::is_chat_wake) {
            // The chat messages behind the wake-ups were deleted. A turn without content would cost
            // a model call.
            w.message_mark(&ids(&mail), MailState::Consumed, None, 0)?;
            continue;
        }
        return open(w, agent, Opening { turn_id, mail, chat, earlier, over }).map(Some);
    }
}

/// Returns all mail if its root may still open turns. Otherwise returns only the mail of that root,
/// and the reason why the turn must end at once. Mail of other roots stays for another turn.
fn within_its_root(
    w: &mut Tx,
    agent_id: &AgentId,
    mut mail: Vec<Envelope>,
) -> Result<(Vec<Envelope>, Option<Refusal>)> {
    let Some(root_id) = mail.iter().find(|envelope| envelope.wake).map(|first| first.root_id) else {
        return Ok((mail, None));
    };
    let hop = mail.iter().map(|envelope| envelope.hop).max().unwrap_or(0);
    let over = crate::root_limits::turns_spent(w, root_id, hop)?;
    if over.is_some() && mail.iter().any(|envelope| envelope.root_id != root_id) {
        mail.retain(|envelope| envelope.root_id == root_id);
        // The actor treats the rest of the mail as taken and would not read the inbox again by
        // itself.
        w.wake(agent_id);
    }
    Ok((mail, over))
}

/// Returns the unread chat that joins a turn with this mail. Mail that must run alone gets none.
fn with_chat(
    w: &mut Tx,
    agent_id: &AgentId,
    turn_id: TurnId,
    mail: &[Envelope],
    unread: bool,
    room: usize,
) -> Result<ReadOn> {
    let woken = ids(mail.iter().filter(|envelope| envelope.is_chat_wake()));
    let alone = mail.iter().any(|envelope| runs_alone(envelope) && !envelope.is_chat_wake());
    let in_conversation = mail.iter().any(|envelope| session_of(envelope).is_some());
    if alone || in_conversation || (woken.is_empty() && !unread) {
        return Ok(ReadOn::default());
    }
    let shown = mail.len().saturating_sub(woken.len());
    let bytes = room.saturating_sub(mail.iter().map(bytes_of).sum());
    let room = Room { envelopes: (w.ctx.limits().turn_mail_max as usize).saturating_sub(shown), bytes };
    read_on(w, agent_id, turn_id, &woken, room)
}

/// The parameters of [`open`].
struct Opening {
    turn_id: TurnId,
    /// At least one envelope wakes the agent.
    mail: Vec<Envelope>,
    chat: ReadOn,
    earlier: Vec<TurnId>,
    over: Option<Refusal>,
}

/// Opens a turn: writes its row, marks its mail as taken and emits `turn.started`.
fn open(w: &mut Tx, agent: Agent, opening: Opening) -> Result<Taken> {
    let ctx = w.ctx;
    let Opening { turn_id, mut mail, chat, earlier, over } = opening;
    let Some(first) = mail.iter().find(|envelope| envelope.wake).cloned() else {
        return Err(refusal!(Internal, "mail that does not wake its agent cannot open a turn"));
    };
    // A chat wake-up has no text, so the turn's description comes from its digest.
    let subject = match first.is_chat_wake() {
        true => chat.digests.iter().find(|digest| digest.subject == first.subject).or_else(|| chat.digests.first()),
        false => None,
    };
    let about = about(subject.unwrap_or(&first));
    for message_id in chat.spent {
        mail.extend(w.message_get(message_id)?);
    }
    w.message_mark(&ids(&mail), MailState::Taken, Some(turn_id), 0)?;
    w.message_read(&ids(&mail), ctx.now())?;
    mail.extend(chat.digests);
    let mut other_roots: Vec<_> = mail.iter().map(|e| e.root_id).filter(|root| *root != first.root_id).collect();
    other_roots.sort_unstable();
    other_roots.dedup();
    let turn = Turn {
        incarnation: agent.incarnation,
        other_roots,
        hop: mail.iter().map(|envelope| envelope.hop).max().unwrap_or(0),
        conversation_id: session_of(&first),
        source: if first.kind == Kind::CronTurn { "cron" } else { "mail" }.into(),
        about,
        ..Turn::new(turn_id, agent.agent_id.clone(), first.root_id, ctx.now())
    };
    w.turn_put(&turn)?;
    let kinds: Vec<&str> = mail.iter().map(|envelope| envelope.kind.as_str()).collect();
    let payload = json!({
        "turn_id": turn.turn_id, "messages": ids(&mail), "kinds": kinds, "root_id": turn.root_id, "hop": turn.hop,
        "conversation_id": answered(&mail),
    });
    w.emit_of(&turn, EventKind::TurnStarted, payload)?;
    let chain = Chain::of(&turn);
    crate::root_limits::turn_opened(w, &agent.agent_id, chain)?;
    let droid = crate::droids::close::turn_opened(w, &turn)?.map(Box::new);
    Ok(Taken { agent, turn, mail, resumed: false, earlier, over, droid })
}

fn resume(w: &mut Tx, agent: Agent, mut turn: Turn) -> Result<Taken> {
    crate::budgets::forfeit_held(w, &mut turn)?;
    crate::questions::end_all(w, &mut turn)?;
    if turn.is_in_background() {
        turn.parked = None;
        w.turn_put(&turn)?;
    }
    let mail = taken_mail(w, turn.turn_id)?;
    let payload = json!({ "turn_id": turn.turn_id, "crashes": turn.crashes, "conversation_id": answered(&mail) });
    w.emit_of(&turn, EventKind::TurnResumed, payload)?;
    // A turn that was opened only to be ended, when the daemon died before it could end it.
    let over = match turn.rounds.saturating_add(turn.calls) {
        0 => {
            let turns_max = u64::from(w.ctx.limits().root_turns_max);
            let tally = w.root_get(turn.root_id)?;
            let spent = tally.is_some_and(|tally| tally.turns > turns_max);
            if spent { crate::root_limits::turns_spent(w, turn.root_id, turn.hop)? } else { None }
        }
        _ => None,
    };
    let droid = crate::droids::close::turn_opened(w, &turn)?.map(Box::new);
    Ok(Taken { agent, turn, mail, resumed: true, earlier: Vec::new(), over, droid })
}

/// Opens a turn for an operator's tool call. It takes no mail and is independent of the agent's own turns. The caller
/// chooses its id. So a repeated request finds the turn that the daemon's death interrupted and opens it again with its
/// journal.
pub fn operator_turn(w: &mut Tx, agent_id: &AgentId, turn_id: TurnId) -> Result<Turn> {
    let agent = owned(w, agent_id)?;
    let (turn, kind) = match w.turn_get(turn_id)? {
        Some(turn) if turn.source != OPERATOR || turn.agent_id != *agent_id => {
            return Err(refusal!(Conflict, "turn {turn_id} is not an operator's call of {agent_id}"));
        }
        Some(turn) => (Turn { status: TurnStatus::Open, reason: None, ended_at: None, ..turn }, EventKind::TurnResumed),
        None => {
            // In the transaction of the turn, so that a droid that ends meanwhile does nothing more.
            crate::lookup::may_act(w, &agent)?;
            let blank = Turn::new(turn_id, agent_id.clone(), RootId(w.ctx.id()), w.ctx.now());
            (Turn { incarnation: agent.incarnation, source: OPERATOR.into(), ..blank }, EventKind::TurnStarted)
        }
    };
    w.turn_put(&turn)?;
    w.emit_of(&turn, kind, json!({ "turn_id": turn.turn_id, "source": OPERATOR }))?;
    Ok(turn)
}

/// The conversation that the turn's last text is sent to, if any.
fn answered(mail: &[Envelope]) -> Option<ConversationId> {
    channel_of(mail).filter(|channel| channel.replies).map(|channel| channel.conversation_id)
}

/// The subject and the beginning of an envelope, on one line.
fn about(envelope: &Envelope) -> String {
    let words = match &envelope.subject {
        Some(subject) => format!("{subject}: {}", envelope.body),
        None => envelope.body.clone(),
    };
    clip(&one_line(prefix_bytes(&words, 2_000)), 300)
}

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

/// The mail that [`next`] found, to be passed to [`take`].
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
/// here still waits when [`take`] runs; if not, `take` reads the inbox again.
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
fn window(ctx: &Context) -> u32 {
    ctx.limits().turn_mail_max.saturating_mul(2)
}

/// Chooses the mail of an agent's next turn from the beginning of its inbox. Also returns the mail that must be roused, and
/// whether waking mail is left then.
fn choose(
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
fn refresh_if_pending(w: &mut StoreTx, mut mail: Vec<Envelope>) -> Result<Option<Vec<Envelope>>> {
    for envelope in &mut mail {
        match w.message_state(envelope.message_id)? {
            Some((MailState::Pending, turn_id, crashes)) => (envelope.turn_id, envelope.crashes) = (turn_id, crashes),
            _ => return Ok(None),
        }
    }
    Ok(Some(mail))
}
