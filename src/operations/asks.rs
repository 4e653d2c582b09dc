//! Asks: questions whose sender waits for the answer (docs/design.md, "What a tool call records";
//! MSG-02..04). The answer does not pass through the asker's inbox. The transaction that ends the
//! target's turn also completes the waiting step.

use ghost_domain::ask::cycle;
use ghost_domain::reply_tokens::ends_exchange;

use crate::mail::{self, NewMessage};
use crate::prelude::*;
use crate::turns::calls::record_call_end;
use crate::turns::parking::holds_up;
use crate::{PAUSED, Wait, lookup};

/// The tool call of an agent that waits for the answer.
#[derive(Clone, Debug)]
pub struct WaitingCall {
    /// Id of the asking agent.
    pub agent_id: AgentId,
    /// Id of its turn.
    pub turn_id: TurnId,
    /// Id of the waiting call.
    pub call_id: CallId,
    /// The call's id from the provider.
    pub provider_call_id: String,
}

/// Opens an ask and delivers the question.
///
/// # Errors
/// `Conflict` if it can never be answered: a cycle of waiting agents, the asker itself, or a target
/// that is stopped or failed. `RateLimited` if too many asks are open.
// A struct would only repeat the names of the parameters.
#[allow(clippy::too_many_arguments)]
pub fn open(
    w: &mut Tx,
    from: Party,
    waiting: Option<WaitingCall>,
    target: &AgentId,
    body: String,
    timeout: Duration,
    chain: Chain,
) -> Result<Ask> {
    let ctx = w.ctx;
    let agent = lookup::agent_for(w, &from, target)?;
    if let Some(refusal) = unanswerable(ctx, &agent) {
        return Err(refusal);
    }
    if let Some(call) = &waiting {
        if call.agent_id == *target {
            return Err(refusal!(Conflict, "{target} cannot ask itself")
                .hint("think it through in this turn, or send yourself a message"));
        }
        let mut edges = Vec::new();
        for ask in w.asks_open()? {
            // Only asks of an agent's own turns make it wait. An operator's tool call in its name
            // does not.
            if let (Some(asker), Some(turn_id)) = (ask.asker.party.agent(), ask.asker.turn_id)
                && w.turn_get(turn_id)?.is_some_and(|turn| turn.source != "operator")
            {
                edges.push((asker.clone(), ask.target));
            }
        }
        if let Some(path) = cycle(&call.agent_id, target, &edges) {
            let names: Vec<String> = path.iter().map(ToString::to_string).collect();
            return Err(refusal!(Conflict, "asking {target} would wait for ever: {}", names.join(" → "))
                .hint("send it a message instead, and let it answer when it can")
                .details(json!({ "cycle": names })));
        }
    }
    let open = w.ask_count_open()?;
    let words = ("asks are open in this world", "wait for some to be answered");
    crate::root_limits::room(w, "asks_open_max", open, ctx.limits().asks_open_max, words)?;
    if waiting.is_some() {
        crate::root_limits::asked(w, &from, target, chain)?;
    }
    let ask_id = AskId(ctx.id());
    let question = NewMessage::new(target, from.clone(), Kind::Ask, body, chain);
    let envelope = mail::deliver(w, NewMessage { ask_id: Some(ask_id), ..question })?;
    let now = ctx.now();
    let asker = Asker {
        party: from,
        turn_id: waiting.as_ref().map(|call| call.turn_id),
        call_id: waiting.as_ref().map(|call| call.call_id),
        provider_call_id: waiting.map(|call| call.provider_call_id),
    };
    let ask = Ask::new(ask_id, asker, (target.clone(), envelope.message_id), now, now.plus(timeout));
    w.ask_put(&ask)?;
    if let Some(repair) = ctx.waiting(target).as_ref().and_then(|wait| needs_repair(target, wait))
        && ask.asker.party.agent().is_none()
    {
        fail(w, ask_id, &repair)?;
        return w.ask_get(ask_id)?.ok_or_else(|| Refusal::not_found("ask", &ask_id.to_string(), None));
    }
    Ok(ask)
}

/// Ends the asks of people to an agent that waits for a repair of its model, because only a person can help. The mail
/// stays, and a late answer is stored.
pub fn tell_people(w: &mut Tx, target: &AgentId, wait: &Wait) -> Result<()> {
    let Some(repair) = needs_repair(target, wait) else { return Ok(()) };
    for ask in w.asks_open_to(target)? {
        if ask.asker.party.agent().is_none() {
            fail(w, ask.ask_id, &repair)?;
        }
    }
    Ok(())
}

fn needs_repair(target: &AgentId, wait: &Wait) -> Option<Refusal> {
    let repair = wait.repair?;
    // The model may be right again since the last try. It is tried by itself.
    let hint = format!("{repair}; the question waits in the inbox, and is answered once the model answers again");
    Some(refusal!(Unavailable, "{target} cannot answer now: {}", wait.reason).hint(hint))
}

/// Returns the refusal if an agent cannot answer now. Its hint says how to start the agent, or what
/// to repair first.
#[must_use]
pub fn unanswerable(ctx: &Context, agent: &ghost_domain::Agent) -> Option<Refusal> {
    let why = lookup::out_of_service(agent)?;
    let refusal = refusal!(Conflict, "{} {why} and cannot answer", agent.agent_id);
    Some(match ctx.may_run(agent) {
        Err(why) => refusal.hint(why.in_words()),
        Ok(()) => refusal.hint(format!("start it with `ghostctl agent start {}`, or ask someone else", agent.agent_id)),
    })
}

/// Answers an ask. The answer `REPLY_SKIP` means an empty reply and ends the exchange. An
/// answer after the deadline is stored but wakes nobody. `truncated` is true if the reply was
/// truncated; the text says so too.
pub fn answer(w: &mut Tx, ask_id: AskId, reply: &str, truncated: bool) -> Result<()> {
    let Some(mut ask) = w.ask_get(ask_id)? else { return Ok(()) };
    if ask.status != AskStatus::Open {
        if ask.reply.is_none() {
            ask.reply = Some(reply.to_owned());
            ask.truncated = truncated;
            w.ask_put(&ask)?;
            let payload = json!({
                "ask_id": ask_id, "status": ask.status, "message_id": ask.message_id, "truncated": truncated,
                "reply": w.ctx.excerpt(reply, 2_000),
            });
            w.emit(NewEvent::new(EventKind::AskLate, payload).agent(&ask.target).correlation(ask_id))?;
        }
        return Ok(());
    }
    let mut content = json!({ "status": "ok", "reply": reply, "message_id": ask.message_id });
    if ends_exchange(reply) {
        content["reply"] = json!("");
        content["ended"] = json!(true);
        ask.reply = Some(String::new());
        if let (Some(asker), Some(question)) = (ask.asker.party.agent(), w.message_get(ask.message_id)?) {
            crate::root_limits::exchange_over(w, question.root_id, asker, &ask.target)?;
        }
    } else {
        ask.reply = Some(reply.to_owned());
        ask.truncated = truncated;
        if truncated {
            content["truncated"] = json!(true);
        }
    }
    let outcome = CallOutcome { content, refusal: None, truncated: ask.truncated, ..CallOutcome::default() };
    close(w, ask, AskStatus::Answered, outcome)
}

/// Ends an open ask with an error.
pub fn fail(w: &mut Tx, ask_id: AskId, refusal: &Refusal) -> Result<()> {
    let Some(mut ask) = w.ask_get(ask_id)? else { return Ok(()) };
    if ask.status != AskStatus::Open {
        return Ok(());
    }
    let timed_out = refusal.code == Code::Timeout;
    ask.error = Some(refusal.message.clone());
    (ask.code, ask.hint) = (Some(refusal.code), refusal.hint.clone());
    let mut content = refusal.to_json();
    content["status"] = json!(if timed_out { "timeout" } else { "error" });
    content["message_id"] = json!(ask.message_id);
    let outcome = CallOutcome { content, refusal: Some(refusal.clone()), truncated: false, ..CallOutcome::default() };
    let status = if timed_out { AskStatus::TimedOut } else { AskStatus::Failed };
    close(w, ask, status, outcome)
}

/// Ends an ask whose deadline has passed. Does nothing if it is not open or not yet due.
pub fn expire(w: &mut Tx, ask_id: AskId) -> Result<()> {
    let Some(ask) = w.ask_get(ask_id)? else { return Ok(()) };
    if ask.status == AskStatus::Open && ask.deadline_at <= w.ctx.now() {
        let waited = ask.deadline_at.since(ask.created_at).as_secs();
        let mut text = format!("{} did not answer within {waited} s", ask.target);
        if w.meta_get(PAUSED)?.as_deref() == Some("1") {
            text.push_str(": the world is paused, and no turn begins before `ghostctl resume`");
        } else if let Some(reason) = holds_up(w, &ask)? {
            text = format!("{text}: it waits ({reason})");
        }
        let refusal = Refusal::new(Code::Timeout, text)
            .hint("a late answer is stored but wakes nobody; send a message if you need no answer now");
        fail(w, ask_id, &refusal)?;
    }
    Ok(())
}

/// Fails every ask to an agent, because it was stopped, failed or deleted.
pub fn fail_all_to(w: &mut Tx, target: &AgentId, refusal: &Refusal) -> Result<()> {
    for ask in w.asks_open_to(target)? {
        fail(w, ask.ask_id, refusal)?;
    }
    Ok(())
}

/// Closes the asks that a turn still waits for when it ends, because nobody will read the answers.
pub fn abandon(w: &mut Tx, turn_id: TurnId) -> Result<()> {
    for mut ask in w.asks_open_of_turn(turn_id)? {
        ask.status = AskStatus::Failed;
        ask.error = Some("the asker's turn ended".into());
        ask.closed_at = Some(w.ctx.now());
        w.ask_put(&ask)?;
        closed(w, &ask)?;
    }
    Ok(())
}

fn close(w: &mut Tx, mut ask: Ask, status: AskStatus, outcome: CallOutcome) -> Result<()> {
    ask.status = status;
    ask.closed_at = Some(w.ctx.now());
    w.ask_put(&ask)?;
    if let (Some(turn_id), Some(call_id)) = (ask.asker.turn_id, ask.asker.call_id)
        && let Some(turn) = w.turn_get(turn_id)?
        && turn.status == TurnStatus::Open
    {
        let id = ask.asker.provider_call_id.clone().unwrap_or_default();
        // Several tools can ask, so the ledger row gives the tool's name.
        let tool = w.call_get(call_id)?.map_or_else(|| "syscall.ask".to_owned(), |row| row.tool);
        record_call_end(w, &turn, call_id, &id, &tool, &outcome)?;
    }
    closed(w, &ask)
}

/// Emits the event that an ask is closed, and signals it to the waiting asker.
fn closed(w: &mut Tx, ask: &Ask) -> Result<()> {
    let mut payload = json!({ "ask_id": ask.ask_id, "asker": ask.asker.party });
    let answered = ask.status == AskStatus::Answered;
    if !answered {
        (payload["status"], payload["error"]) = (json!(ask.status), json!(ask.error));
    }
    let kind = if answered { EventKind::AskAnswered } else { EventKind::AskFailed };
    w.emit(NewEvent::new(kind, payload).agent(&ask.target).correlation(ask.ask_id))?;
    w.signal(Signal::AskClosed { ask_id: ask.ask_id, asker: ask.asker.party.agent().cloned() });
    Ok(())
}
