//! Mailboxes: the one way in which anything reaches an agent (MSG-01, MSG-05, MSG-08..10).

use ghost_domain::envelope::{Envelope, Kind, MailState};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::{Agent, AgentId, AskId, Code, MessageId, Party, Refusal, RootId, TurnId};
use ghost_store::{Reads, Writes};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use crate::agent_lookup::{agent_for, agent_for_operator, agent_named, deleted_words};
pub use crate::chain::Chain;
pub use crate::suggestion::{no_agent, with_nearest};

use crate::turns::ownership::open_turn;
use crate::{Result, RuleContext, root_limits};

/// Mail that is to be delivered.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// The receiver.
    pub to: AgentId,
    /// The sender.
    pub from: Party,
    /// What it is.
    pub kind: Kind,
    /// A short line above the body.
    pub subject: Option<String>,
    /// The text.
    pub body: String,
    /// Workspace paths that go with it.
    pub attachments: Vec<String>,
    /// For an ask: which.
    pub ask_id: Option<AskId>,
    /// For a conversation: which.
    pub conversation_id: Option<String>,
    /// Whether it wakes.
    pub wake: bool,
    /// The chain that it belongs to.
    pub chain: Chain,
}

impl NewMessage {
    /// A plain message.
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
            conversation_id: None,
            wake: true,
            chain,
        }
    }
}

/// Puts mail into its receiver's inbox, or refuses: an unknown receiver, a full inbox, a chain that is too long or has
/// caused too much (see [`storms`]), a body over its bound. Mail from the supervisor passes the bounds on inbox and hops
/// (MSG-09: control bypasses).
pub async fn deliver(w: &mut dyn Writes, ctx: &RuleContext, new_message: NewMessage) -> Result<Envelope> {
    let receiver = check(w, ctx, &new_message).await?;
    // Counted last: a caller may go on after a refusal, and what was not sent must not count.
    if new_message.kind == Kind::Message {
        root_limits::echoed(w, ctx, &new_message.from, &new_message.to, &new_message.body, new_message.chain).await?;
    }
    root_limits::sent(w, ctx, &new_message.from, new_message.chain, 1).await?;
    place(w, ctx, new_message, receiver).await
}

/// Whether [`deliver`] would take this mail now: the same refusals, and nothing written. For an effect outside the store
/// that must not be had for mail that is refused.
pub async fn would_deliver(r: &mut dyn Reads, ctx: &RuleContext, new_message: &NewMessage) -> Result<()> {
    check(r, ctx, new_message).await?;
    if new_message.kind == Kind::Message {
        root_limits::would_echo(r, ctx, &new_message.from, &new_message.to, &new_message.body, new_message.chain)
            .await?;
    }
    root_limits::would_send(r, ctx, &new_message.from, new_message.chain, 1).await
}

/// Whether mail may be sent, as far as it and its receiver are concerned. Gives the receiver.
async fn check(w: &mut dyn Reads, ctx: &RuleContext, new_message: &NewMessage) -> Result<Agent> {
    let limits = ctx.limits();
    let control = new_message.from == Party::System;
    if new_message.body.len() > limits.message_bytes as usize {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("the message has {} bytes; at most {} are taken", new_message.body.len(), limits.message_bytes),
        )
        .hint("write the long part to a workspace file and send its path"));
    }
    if new_message.chain.hop > limits.hops_max && !control {
        return Err(hop_limit(new_message.chain.hop, limits.hops_max));
    }
    let receiver = agent_for(w, ctx, &new_message.from, &new_message.to).await?;
    if !control {
        let waiting = w.inbox_total().await?;
        if waiting >= u64::from(limits.world_mail_max) {
            return Err(Refusal::new(
                Code::InboxFull,
                format!("{waiting} pieces of mail wait in this world, which is its bound (limits.world_mail_max)"),
            )
            .hint("try again when the agents have worked some of them off")
            .details(json!({ "limit": "world_mail_max", "value": limits.world_mail_max })));
        }
        let depth = w.inbox_depth(&new_message.to).await?;
        if depth >= limits.inbox_max {
            return Err(Refusal::new(
                Code::InboxFull,
                format!("the inbox of {} holds {depth} messages, which is its bound", new_message.to),
            )
            .hint("try again when it has worked some of them off"));
        }
    }
    Ok(receiver)
}

/// Puts mail that was checked and counted into its receiver's inbox.
async fn place(w: &mut dyn Writes, ctx: &RuleContext, new_message: NewMessage, receiver: Agent) -> Result<Envelope> {
    // What the supervisor sends passes these bounds, and fills them for all others.
    let limits = ctx.limits();
    let (depth, waiting) = (w.inbox_depth(&new_message.to).await?, w.inbox_total().await?);
    root_limits::filled(w, ctx, "inbox_max", Some(&new_message.to), depth.into(), limits.inbox_max.into()).await?;
    root_limits::filled(w, ctx, "world_mail_max", None, waiting, limits.world_mail_max.into()).await?;
    let envelope = Envelope {
        message_id: MessageId(ctx.id()),
        seq: 0,
        to: receiver.agent_id,
        from: new_message.from,
        kind: new_message.kind,
        subject: new_message.subject,
        body: new_message.body,
        attachments: new_message.attachments,
        ask_id: new_message.ask_id,
        conversation_id: new_message.conversation_id,
        root_id: new_message.chain.root_id,
        hop: new_message.chain.hop,
        wake: new_message.wake,
        created_at: ctx.now(),
        state: MailState::Pending,
        turn_id: None,
        crashes: 0,
    };
    w.message_append(&envelope).await?;
    root_limits::last_hop(w, ctx, &envelope.from, &envelope.to, new_message.chain).await?;
    let event = NewEvent::new(
        EventKind::MessageDelivered,
        json!({
            "message_id": envelope.message_id,
            "from": envelope.from,
            "kind": envelope.kind,
            "subject": envelope.subject,
            "preview": ctx.excerpt(&envelope.body, 200),
            "hop": envelope.hop,
        }),
    )
    .agent(&envelope.to)
    .correlation(envelope.root_id);
    ctx.emit(w, event).await?;
    if envelope.wake {
        ctx.wake(w, &envelope.to);
    }
    Ok(envelope)
}

/// Says that a chain of work is too long.
pub(crate) fn hop_limit(hop: u32, most: u32) -> Refusal {
    Refusal::new(Code::HopLimit, format!("this would be hop {hop} of its chain; the limit is {most}"))
        .hint("end the exchange here; new work from outside starts a new chain")
        .details(json!({ "limit": "hops_max", "value": most }))
}

/// What became of a broadcast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Broadcast {
    /// How many inboxes it lies in.
    pub delivered: u32,
    /// Who did not get it, and why.
    pub skipped: Vec<Skipped>,
}

/// One receiver that a broadcast passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// Who.
    pub agent_id: AgentId,
    /// Why, for a program.
    pub error_code: Code,
    /// Why, in words.
    pub reason: String,
}

/// Delivers one message to every other agent (MSG-05). A receiver that cannot take it is reported and hurts no other.
pub async fn broadcast(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    new_message: &NewMessage,
    exclude: &[AgentId],
    archetype: Option<&str>,
) -> Result<Broadcast> {
    let mut result = Broadcast { delivered: 0, skipped: Vec::new() };
    let agents = w.agent_list(false).await?;
    for name in exclude {
        if !agents.iter().any(|agent| agent.agent_id == *name) {
            agent_for(w, ctx, &new_message.from, name).await?;
        }
    }
    let receivers: Vec<Agent> = agents
        .into_iter()
        .filter(|agent| {
            let wanted = archetype.is_none_or(|archetype| agent.archetype == archetype);
            wanted && new_message.from.agent() != Some(&agent.agent_id) && !exclude.contains(&agent.agent_id)
        })
        .collect();
    root_limits::sent(w, ctx, &new_message.from, new_message.chain, u64::try_from(receivers.len()).unwrap_or(u64::MAX))
        .await?;
    for agent in receivers {
        let copy = NewMessage { to: agent.agent_id.clone(), ..new_message.clone() };
        match check(w, ctx, &copy).await {
            Ok(receiver) => {
                place(w, ctx, copy, receiver).await?;
                result.delivered += 1;
            }
            // Bounds are the receiver's own; anything else would be the same for all and ends the broadcast.
            Err(refusal) if refusal.code == Code::InboxFull => {
                let (error_code, reason) = (refusal.code, refusal.message);
                result.skipped.push(Skipped { agent_id: agent.agent_id, error_code, reason });
            }
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(result)
}

/// What `syscall.inbox.read` shows, with the mail that it added to the turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The mail, in order.
    pub mail: Vec<Envelope>,
    /// Pending mail that was left.
    pub remaining: u32,
}

/// Whether pending mail may join a turn that is under way. A wake-up for a chat channel may not: it says that there is
/// something to read, and only the turn that it opens reads it. Nor may mail that wakes for another root than the turn's
/// if either root is a main job's, whose work is charged to it alone.
#[must_use]
pub fn joinable(ctx: &RuleContext, root_id: RootId, envelope: &Envelope) -> bool {
    let jobs = ctx.jobs();
    let apart =
        envelope.wake && envelope.root_id != root_id && (jobs.contains(&envelope.root_id) || jobs.contains(&root_id));
    envelope.kind.merges() && envelope.crashes == 0 && envelope.turn_id.is_none() && !envelope.is_chat_wake() && !apart
}

/// Adds pending mail to an open turn. Mail that expects a reply is never taken this way (BI-33 as corrected), nor mail
/// that must run alone. The turn's hop rises to that of its mail: reading on in an open turn is no way around the bound
/// on a chain's length.
pub async fn join(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    agent_id: &AgentId,
    turn_id: TurnId,
    limit: u32,
) -> Result<Joined> {
    let root_id = open_turn(w, turn_id).await?.root_id;
    let limits_window = limit.saturating_mul(4).max(64);
    let pending = w.inbox_pending(agent_id, limits_window).await?;
    let mail: Vec<Envelope> =
        pending.into_iter().filter(|mail| joinable(ctx, root_id, mail)).take(limit as usize).collect();
    let ids: Vec<MessageId> = mail.iter().map(|e| e.message_id).collect();
    w.message_mark(&ids, MailState::Taken, Some(turn_id), 0).await?;
    if !mail.is_empty() {
        let mut turn = open_turn(w, turn_id).await?;
        turn.hop = mail.iter().map(|e| e.hop).fold(turn.hop, u32::max);
        turn.other_roots.extend(mail.iter().map(|e| e.root_id).filter(|root_id| *root_id != turn.root_id));
        turn.other_roots.sort_unstable();
        turn.other_roots.dedup();
        w.turn_put(&turn).await?;
    }
    let remaining = w.inbox_depth(agent_id).await?;
    Ok(Joined { mail, remaining })
}
