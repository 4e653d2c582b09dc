//! Mailboxes. All mail to agents is delivered by this module.

use ghost_domain::mail::session_of;

use crate::lookup::open_turn;
use crate::prelude::*;
use crate::root_limits;

pub use crate::context::Chain;
pub use crate::lookup::{agent_for, agent_for_operator, agent_named, deleted_words, why_mail_waits};
pub use crate::lookup::{no_agent, with_nearest};

/// A message to be delivered.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// Id of the receiving agent.
    pub to: AgentId,
    /// The sending party.
    pub from: Party,
    /// Kind of the message.
    pub kind: Kind,
    /// An optional subject line.
    pub subject: Option<String>,
    /// Text of the message.
    pub body: String,
    /// Workspace paths of the attachments.
    pub attachments: Vec<String>,
    /// The ask that the message carries, if any.
    pub ask_id: Option<AskId>,
    /// Whether the message wakes its receiver.
    pub wake: bool,
    /// The chain of work that the message belongs to.
    pub chain: Chain,
}

impl NewMessage {
    /// Creates a message that wakes its receiver, without subject, attachments or ask.
    #[must_use]
    pub fn new(to: &AgentId, from: Party, kind: Kind, body: impl Into<String>, chain: Chain) -> Self {
        Self {
            to: to.clone(),
            from,
            kind,
            subject: None,
            body: body.into(),
            attachments: Vec::new(),
            ask_id: None,
            wake: true,
            chain,
        }
    }

    /// Sets the subject.
    #[must_use]
    pub fn subject(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// The pending envelope of this message.
    pub(crate) fn envelope(self, ctx: &Context) -> Envelope {
        let (people, said) = ((self.from, self.to), (self.kind, self.body));
        Envelope {
            subject: self.subject,
            attachments: self.attachments,
            ask_id: self.ask_id,
            conversation_id: self.chain.conversation_id,
            hop: self.chain.hop,
            wake: self.wake,
            ..Envelope::new(MessageId(ctx.id()), people, said, self.chain.root_id, ctx.now())
        }
    }
}

/// The ids of messages, in their order.
pub(crate) fn ids<'e>(mail: impl IntoIterator<Item = &'e Envelope>) -> Vec<MessageId> {
    mail.into_iter().map(|envelope| envelope.message_id).collect()
}

/// Puts a message into its receiver's inbox. Mail from the system ignores the limits on inboxes and
/// hops.
///
/// # Errors
/// An unknown receiver, a full inbox, a chain that is too long, a body that is too large, or a
/// limit of the chain ([`crate::root_limits`]).
pub fn deliver(w: &mut Tx, new_message: NewMessage) -> Result<Envelope> {
    let inbox = check(w, &new_message)?;
    // Counted last, because the caller may continue after a refusal and a refused message must not
    // be counted.
    if new_message.kind == Kind::Message {
        root_limits::echoed(w, &new_message.from, &new_message.to, &new_message.body, new_message.chain)?;
    }
    root_limits::sent(w, &new_message.from, new_message.chain, 1)?;
    insert(w, new_message, inbox)
}

/// Checks whether [`deliver`] would accept this message now, without writing anything. Used before
/// an effect outside the store that must not happen if the message is refused.
pub fn would_deliver(r: &mut Tx, new_message: &NewMessage) -> Result<()> {
    check(r, new_message)?;
    if new_message.kind == Kind::Message {
        root_limits::would_echo(r, &new_message.from, &new_message.to, &new_message.body, new_message.chain)?;
    }
    root_limits::would_send(r, &new_message.from, new_message.chain, 1)
}

/// How much mail waits before a message is delivered.
#[derive(Clone, Copy)]
struct Waiting {
    /// In the receiver's inbox.
    inbox: u32,
    /// In the world.
    world: u64,
}

/// Checks the message and its receiver. Returns how much mail waits.
fn check(w: &mut Tx, new_message: &NewMessage) -> Result<Waiting> {
    check_message(w.ctx, new_message)?;
    let kind = match w.agent_columns(&new_message.to)? {
        Some(agent) if !agent.deleted => agent.kind,
        // It says why there is none.
        _ => agent_for(w, &new_message.from, &new_message.to)?.kind,
    };
    if kind == AgentKind::Droid && !matches!(new_message.kind, Kind::System | Kind::DroidDone) {
        return Err(refusal!(Unsupported, "{} is a droid, which takes no messages", new_message.to)
            .hint("its parent and operators steer it: syscall.droid.control, or `ghostctl droid steer`"));
    }
    let depth = w.inbox_depth(&new_message.to)?;
    check_room(w, new_message, depth)
}

/// Checks what does not depend on the receiver.
fn check_message(ctx: &Context, new_message: &NewMessage) -> Result<()> {
    let limits = ctx.limits();
    let hint = "write the long part to a workspace file and send its path";
    fits("the message", new_message.body.len(), limits.message_bytes, hint)?;
    if new_message.chain.hop > limits.hops_max && new_message.from != Party::System {
        return Err(hop_limit(new_message.chain.hop, limits.hops_max));
    }
    Ok(())
}

/// Checks whether an inbox that holds `depth` messages and the world take one more. Returns how much mail waits.
fn check_room(w: &mut Tx, new_message: &NewMessage, depth: u32) -> Result<Waiting> {
    let limits = w.ctx.limits();
    let waiting = Waiting { inbox: depth, world: w.inbox_total()? };
    if new_message.from == Party::System {
        return Ok(waiting);
    }
    if waiting.world >= u64::from(limits.world_mail_max) {
        return Err(refusal!(
            InboxFull,
            "{} messages wait in this world, which is the limit (limits.world_mail_max)",
            waiting.world
        )
        .hint("try again when the agents have processed some of them")
        .details(json!({ "limit": "world_mail_max", "value": limits.world_mail_max })));
    }
    if waiting.inbox >= limits.inbox_max {
        let receiver = agent_for(w, &new_message.from, &new_message.to)?;
        return Err(inbox_full(w.ctx, &receiver, waiting.inbox, limits.inbox_max));
    }
    Ok(waiting)
}

/// The refusal for an inbox at its limit, or above it because the limit was lowered. If its agent takes no mail, trying
/// again does not help until it is started.
fn inbox_full(ctx: &Context, receiver: &Agent, depth: u32, limit: u32) -> Refusal {
    let (message, hint) = match why_mail_waits(ctx, receiver) {
        Some(why) => {
            let agent_id = &receiver.agent_id;
            (
                format!("the inbox of {agent_id} holds {depth} messages; limits.inbox_max is {limit}. {why}"),
                "start it, then try again",
            )
        }
        None => (
            format!("the inbox of {} holds {depth} messages; limits.inbox_max is {limit}", receiver.agent_id),
            "try again when it has processed some of them",
        ),
    };
    Refusal::new(Code::InboxFull, message).hint(hint).details(json!({ "limit": "inbox_max", "value": limit }))
}

/// Puts a message that was checked and counted into its receiver's inbox.
fn insert(w: &mut Tx, new_message: NewMessage, waiting: Waiting) -> Result<Envelope> {
    // Mail from the system may exceed these limits. It is counted against the limits of all other
    // senders.
    let limits = w.ctx.limits();
    root_limits::filled(w, "inbox_max", Some(&new_message.to), waiting.inbox.into(), limits.inbox_max.into())?;
    root_limits::filled(w, "world_mail_max", None, waiting.world, limits.world_mail_max.into())?;
    let chain = new_message.chain;
    let envelope = new_message.envelope(w.ctx);
    w.message_append(&envelope)?;
    root_limits::last_hop(w, &envelope.from, &envelope.to, chain)?;
    let payload = json!({
        "message_id": envelope.message_id,
        "from": envelope.from,
        "kind": envelope.kind,
        "subject": envelope.subject,
        "preview": w.ctx.excerpt(&envelope.body, 200),
        "hop": envelope.hop,
    });
    w.emit(NewEvent::new(EventKind::MessageDelivered, payload).agent(&envelope.to).correlation(envelope.root_id))?;
    if envelope.wake {
        let for_person = envelope.from.agent().is_none() && envelope.from != Party::System;
        w.signal(match for_person || envelope.kind == Kind::Conversation {
            true => Signal::WakeFirst(envelope.to.clone()),
            false => Signal::Wake(envelope.to.clone()),
        });
    }
    Ok(envelope)
}

/// Builds the refusal for a chain of work that is too long.
pub(crate) fn hop_limit(hop: u32, limit: u32) -> Refusal {
    refusal!(HopLimit, "this would be hop {hop} of its chain; the limit is {limit}")
        .hint("end the exchange here; new work from outside starts a new chain")
        .details(json!({ "limit": "hops_max", "value": limit }))
}

/// Receivers of one transaction of a broadcast at most, and how long it goes on with them, so that no other command waits
/// for a broadcast to all. On a slow machine the time ends it first.
const SLICE: u32 = 1_000;
const SLICE_TIME: Duration = Duration::from_millis(25);

/// How many skipped receivers a broadcast names.
const NAMED: usize = 100;

/// What a broadcast has done so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Broadcast {
    /// Number of inboxes that received it.
    pub delivered: u32,
    /// The first hundred receivers that did not get the message, with reasons.
    pub skipped: Vec<Skipped>,
    /// How many more did not get it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_skipped: u32,
    /// The last agent that was looked at, if others come after it. `None` if the broadcast is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<AgentId>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An agent that a broadcast or a chat message did not reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// The reason as a code, for programs.
    pub error_code: Code,
    /// The reason as text.
    pub reason: String,
}

/// Delivers one message to every other agent. A receiver with a full inbox is reported and
/// does not affect the others.
///
/// One call looks at a thousand receivers at most, and ends after 25 ms with what it has done. If it leaves a [`Broadcast::rest`], the caller commits and calls again
/// with that result as `so_far`. The root is charged for all receivers before the first gets it, so a limit refuses all or
/// none.
pub fn broadcast(
    w: &mut Tx,
    new_message: &NewMessage,
    exclude: &[AgentId],
    archetype: Option<&str>,
    so_far: Option<Broadcast>,
) -> Result<Broadcast> {
    let (clock, began) = (&w.ctx.ports.clock, w.ctx.ports.clock.steady());
    let is_receiver = |id: &AgentId| new_message.from.agent() != Some(id) && !exclude.contains(id);
    let mut result = so_far.unwrap_or_default();
    let receivers = match result.rest.take() {
        Some(after) => w.agents_with_mail(archetype, after.as_str(), SLICE)?,
        None => {
            for name in exclude {
                agent_for(w, &new_message.from, name)?;
            }
            check_message(w.ctx, new_message)?;
            let mut all = w.agents_with_mail(archetype, "", u32::MAX)?;
            let count = all.iter().filter(|id| is_receiver(id)).count();
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            root_limits::sent(w, &new_message.from, new_message.chain, count)?;
            all.truncate(SLICE as usize);
            all
        }
    };
    result.rest = receivers.last().filter(|_| receivers.len() == SLICE as usize).cloned();
    // Each receiver gets one message, so the depths stay true.
    let depths = w.inbox_depths(&receivers)?;
    let mut last: Option<AgentId> = None;
    for (agent_id, depth) in receivers.into_iter().zip(depths).filter(|(agent_id, _)| is_receiver(agent_id)) {
        if last.is_some() && clock.steady().since(began) >= SLICE_TIME {
            result.rest = last;
            break;
        }
        last = Some(agent_id.clone());
        let copy = NewMessage { to: agent_id, ..new_message.clone() };
        match check_room(w, &copy, depth) {
            Ok(waiting) => {
                insert(w, copy, waiting)?;
                result.delivered += 1;
            }
            // A full inbox concerns one receiver only. Any other refusal would be the same for all
            // receivers, so it ends the broadcast.
            Err(refusal) if refusal.code == Code::InboxFull => {
                let (error_code, reason) = (refusal.code, refusal.message);
                if result.skipped.len() < NAMED {
                    result.skipped.push(Skipped { agent_id: copy.to, error_code, reason });
                } else {
                    result.more_skipped = result.more_skipped.saturating_add(1);
                }
            }
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(result)
}

/// The result of `syscall.inbox.read`: the mail that joined the turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The mail, in order.
    pub mail: Vec<Envelope>,
    /// Number of messages of the turn's session that are still pending among those that were looked at.
    pub remaining: u32,
}

/// Whether pending mail may join an open turn. A chat wake-up may not, because only the turn that
/// it opens reads the posts. Waking mail of another root may not join if either root belongs to a
/// main job, so that the job's cost is known.
#[must_use]
pub fn joinable(ctx: &Context, turn: Chain, envelope: &Envelope) -> bool {
    let root_id = turn.root_id;
    let jobs = ctx.jobs();
    let separate =
        envelope.wake && envelope.root_id != root_id && (jobs.contains(&envelope.root_id) || jobs.contains(&root_id));
    envelope.kind.merges()
        && envelope.crashes == 0
        && envelope.turn_id.is_none()
        && !envelope.is_chat_wake()
        && session_of(envelope) == turn.conversation_id
        && !separate
}

/// How many pending messages are looked at to find `limit` that may join a turn. It is more, because some may not join.
#[must_use]
pub fn join_window(limit: u32) -> u32 {
    limit.saturating_mul(4).max(64)
}

/// Adds pending mail to an open turn. Mail that expects a reply or must run alone is never taken
/// this way (BI-33 as corrected). The turn's hop rises to that of its mail, so that reading mail in
/// an open turn does not evade the limit on hops.
pub fn join(w: &mut Tx, agent_id: &AgentId, turn_id: TurnId, limit: u32) -> Result<Joined> {
    let ctx = w.ctx;
    let mut turn = open_turn(w, turn_id)?;
    let pending = w.inbox_pending(agent_id, join_window(limit))?;
    let of_session = pending.iter().filter(|mail| session_of(mail) == turn.conversation_id).count();
    let mail: Vec<Envelope> =
        pending.into_iter().filter(|mail| joinable(ctx, Chain::of(&turn), mail)).take(limit as usize).collect();
    let ids = ids(&mail);
    w.message_mark(&ids, MailState::Taken, Some(turn_id), 0)?;
    w.message_read(&ids, ctx.now())?;
    if !mail.is_empty() {
        turn.hop = mail.iter().map(|e| e.hop).fold(turn.hop, u32::max);
        turn.other_roots.extend(mail.iter().map(|e| e.root_id).filter(|root_id| *root_id != turn.root_id));
        turn.other_roots.sort_unstable();
        turn.other_roots.dedup();
        w.turn_put(&turn)?;
    }
    let remaining = u32::try_from(of_session.saturating_sub(mail.len())).unwrap_or(u32::MAX);
    Ok(Joined { mail, remaining })
}
