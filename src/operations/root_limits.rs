//! The limits of a root and of exchanges between agents: how much work one root may cause, and how
//! often two agents may repeat the same text. Counting begins when an agent acts on another agent.
//! Input from outside has other limits.
//!
//! These rules must never refuse actions of an operator or of the system, or count a repeated
//! request twice.

use ghost_domain::root_tally::RootTally;

use crate::prelude::*;

/// The names of the limits that are counted for each root.
const ROOT_LIMITS: [&str; 6] =
    ["root_messages_max", "root_turns_max", "root_spawns_max", "hops_max", "echoes_max", "reply_rounds_max"];

fn tally(r: &mut Tx, root_id: RootId) -> Result<RootTally> {
    Ok(r.root_get(root_id)?.unwrap_or_else(|| RootTally::new(root_id, r.ctx.now())))
}

fn save(w: &mut Tx, mut tally: RootTally) -> Result<()> {
    tally.updated_at = w.ctx.now();
    Ok(w.root_put(&tally)?)
}

/// Counts `count` messages that an agent sends to agents or chat channels in a chain. Refuses over
/// `limits.root_messages_max`.
pub fn sent(w: &mut Tx, from: &Party, chain: Chain, count: u64) -> Result<()> {
    let (Some(agent_id), true) = (from.agent(), chain.hop > 0) else { return Ok(()) };
    let most = u64::from(w.ctx.limits().root_messages_max);
    let mut tally = with_sent(w, chain, count).or_else(|refusal| refuse(w, agent_id, chain, refusal))?;
    if tally.messages >= most {
        limit_reached(w, agent_id, "root_messages_max", most, &mut tally, json!({ "hop": chain.hop }))?;
    }
    save(w, tally)
}

/// Returns the tally with `count` more messages, or the refusal.
fn with_sent(r: &mut Tx, chain: Chain, count: u64) -> Result<RootTally> {
    let most = u64::from(r.ctx.limits().root_messages_max);
    let mut tally = tally(r, chain.root_id)?;
    let before = tally.messages;
    tally.messages = before.saturating_add(count);
    if tally.messages > most {
        let what = format!("what began with root {} has caused {before} messages", chain.root_id);
        return Err(over("root_messages_max", most, &what, count));
    }
    Ok(tally)
}

/// Checks whether [`sent`] would refuse, without counting.
pub fn would_send(r: &mut Tx, from: &Party, chain: Chain, count: u64) -> Result<()> {
    if from.agent().is_some() && chain.hop > 0 {
        with_sent(r, chain, count)?;
    }
    Ok(())
}

/// Counts repetitions: messages with the same text from one agent to the same other agent. Refuses
/// over `limits.echoes_max`.
pub fn echoed(w: &mut Tx, from: &Party, to: &AgentId, text: &str, chain: Chain) -> Result<()> {
    let (Some(agent_id), true) = (from.agent(), chain.hop > 0) else { return Ok(()) };
    let most = w.ctx.limits().echoes_max;
    let echo = with_echo(w, agent_id, to, text, chain);
    let (mut tally, count) = echo.or_else(|refusal| refuse(w, agent_id, chain, refusal))?;
    if count == 0 {
        return Ok(());
    }
    if count == most {
        let more = json!({ "to": to, "hop": chain.hop });
        limit_reached(w, agent_id, "echoes_max", u64::from(most), &mut tally, more)?;
    }
    save(w, tally)
}

/// Returns the tally with this text counted, and the number of repetitions, or the refusal.
fn with_echo(r: &mut Tx, from: &AgentId, to: &AgentId, text: &str, chain: Chain) -> Result<(RootTally, u32)> {
    let most = r.ctx.limits().echoes_max;
    let mut tally = tally(r, chain.root_id)?;
    let count = tally.echo(from, to, text);
    if count > most {
        return Err(refusal!(LoopGuard, "you have sent {to} the same words {most} times in this exchange")
            .hint("it needs no further answer: end your turn, or write something that is new")
            .details(json!({ "limit": "echoes_max", "value": most, "to": to })));
    }
    Ok((tally, count))
}

/// Checks whether [`echoed`] would refuse, without counting.
pub fn would_echo(r: &mut Tx, from: &Party, to: &AgentId, text: &str, chain: Chain) -> Result<()> {
    if let (Some(agent_id), true) = (from.agent(), chain.hop > 0) {
        with_echo(r, agent_id, to, text, chain)?;
    }
    Ok(())
}

/// Counts an ask of one agent to another in a chain. Refuses over `limits.reply_rounds_max` in a
/// row, and after the other agent has ended the exchange.
pub fn asked(w: &mut Tx, from: &Party, to: &AgentId, chain: Chain) -> Result<()> {
    let (Some(agent_id), true) = (from.agent(), chain.hop > 0) else { return Ok(()) };
    let most = w.ctx.limits().reply_rounds_max;
    let mut tally = tally(w, chain.root_id)?;
    let rounds = tally.asked(agent_id, to).clone();
    let hint =
        "continue with the answers that you have; ask it again after you have asked another, or send it a message";
    if rounds.over {
        // This is not a limit: the other agent has ended the exchange.
        return Err(refusal!(LoopGuard, "{to} has ended this exchange").hint(hint));
    }
    if rounds.count > most {
        let refusal = refusal!(LoopGuard, "you have asked {to} {most} times in a row (limits.reply_rounds_max)")
            .hint(hint)
            .details(json!({ "limit": "reply_rounds_max", "value": most, "to": to }));
        return refuse(w, agent_id, chain, refusal);
    }
    if rounds.count == most {
        let more = json!({ "to": to, "hop": chain.hop });
        limit_reached(w, agent_id, "reply_rounds_max", most.into(), &mut tally, more)?;
    }
    save(w, tally)
}

/// Records that `to` has ended the exchange in which `from` asks it.
pub fn exchange_over(w: &mut Tx, root_id: RootId, from: &AgentId, to: &AgentId) -> Result<()> {
    let Some(mut tally) = w.root_get(root_id)? else { return Ok(()) };
    tally.ended(from, to);
    save(w, tally)
}

/// Emits an event when a chain reaches the last allowed hop.
pub fn last_hop(w: &mut Tx, from: &Party, to: &AgentId, chain: Chain) -> Result<()> {
    let most = w.ctx.limits().hops_max;
    let (Some(agent_id), true) = (from.agent(), chain.hop == most) else { return Ok(()) };
    reached_now(w, agent_id, chain, ("hops_max", most.into()), json!({ "to": to, "hop": chain.hop }))
}

/// Like [`limit_reached`], and saves the tally.
fn reached_now(w: &mut Tx, agent_id: &AgentId, chain: Chain, (limit, most): (&str, u64), more: Value) -> Result<()> {
    let mut tally = tally(w, chain.root_id)?;
    if limit_reached(w, agent_id, limit, most, &mut tally, more)? { save(w, tally) } else { Ok(()) }
}

/// Counts an agent that a chain creates. Refuses over `limits.root_spawns_max`.
pub fn spawned(w: &mut Tx, by: &Party, chain: Chain) -> Result<()> {
    let (Some(agent_id), true) = (by.agent(), chain.hop > 0) else { return Ok(()) };
    let most = w.ctx.limits().root_spawns_max;
    let mut tally = tally(w, chain.root_id)?;
    if tally.spawns >= most {
        let what = format!("what began with root {} has created {} agents", chain.root_id, tally.spawns);
        return refuse(w, agent_id, chain, over("root_spawns_max", most.into(), &what, 1));
    }
    tally.spawns += 1;
    if tally.spawns == most {
        limit_reached(w, agent_id, "root_spawns_max", u64::from(most), &mut tally, json!({ "hop": chain.hop }))?;
    }
    save(w, tally)
}

/// Returns why a turn of this chain must end at once, if its root has already opened
/// `limits.root_turns_max` turns, not counting this one. The turn's mail is consumed, so that it
/// does not wake the agent again.
pub fn turns_spent(w: &mut Tx, root_id: RootId, hop: u32) -> Result<Option<Refusal>> {
    if hop == 0 {
        return Ok(None);
    }
    let most = u64::from(w.ctx.limits().root_turns_max);
    let turns = w.root_get(root_id)?.map_or(0, |tally| tally.turns);
    let what = || format!("what began with root {root_id} has opened {turns} turns");
    Ok((turns >= most).then(|| over("root_turns_max", most, &what(), 1)))
}

/// Counts a turn that a chain opens.
pub fn turn_opened(w: &mut Tx, agent_id: &AgentId, chain: Chain) -> Result<()> {
    if chain.hop == 0 {
        return Ok(());
    }
    let most = u64::from(w.ctx.limits().root_turns_max);
    let mut tally = tally(w, chain.root_id)?;
    tally.turns = tally.turns.saturating_add(1);
    if tally.turns >= most {
        limit_reached(w, agent_id, "root_turns_max", most, &mut tally, json!({ "hop": chain.hop }))?;
    }
    save(w, tally)
}

/// Refuses one more of what a limit of the world bounds, and reports that the next one fills it.
pub(crate) fn room(w: &mut Tx, limit: &str, count: u32, most: u32, (what, hint): (&str, &str)) -> Result<()> {
    at_most(limit, count, most, what, hint)?;
    filled(w, limit, None, count.into(), most.into())
}

/// Emits an event when the next addition reaches a limit of the world or of one agent; `before` is
/// the count before it. It is emitted when the limit fills, because a refusal rolls its transaction
/// back and could leave no event.
pub fn filled(w: &mut Tx, limit: &str, about: Option<&AgentId>, before: u64, most: u64) -> Result<()> {
    if before.saturating_add(1) != most {
        return Ok(());
    }
    let event = NewEvent::new(EventKind::LimitReached, json!({ "limit": limit, "value": most }));
    w.emit(NewEvent { agent_id: about.cloned(), ..event })
}

/// Builds the refusal for `more` that would exceed a limit of a root; `so_far` describes the
/// current count.
fn over(limit: &str, most: u64, so_far: &str, more: u64) -> Refusal {
    refusal!(RateLimited, "{so_far}; {more} more would exceed the limit of {most} (limits.{limit})")
        .hint("end the work here and report its state; new work from outside starts a new root")
        .details(json!({ "limit": limit, "value": most, "more": more }))
}

/// Returns the refusal and emits its event, for a caller that continues after the refusal. If the
/// caller rolls back, the record of the refused call emits the event ([`refused`]).
fn refuse<T>(w: &mut Tx, agent_id: &AgentId, chain: Chain, refusal: Refusal) -> Result<T> {
    refused(w, agent_id, chain, &refusal)?;
    Err(refusal)
}

/// Emits the event for a refusal over a limit of a root, unless it was emitted when the limit was
/// reached. A step of more than one can exceed a limit without reaching it exactly, and so can a
/// lowered limit.
pub fn refused(w: &mut Tx, agent_id: &AgentId, chain: Chain, refusal: &Refusal) -> Result<()> {
    let Some(Value::Object(details)) = &refusal.details else { return Ok(()) };
    let limit = details.get("limit").and_then(Value::as_str).filter(|limit| ROOT_LIMITS.contains(limit));
    let (Some(limit), Some(most)) = (limit, details.get("value").and_then(Value::as_u64)) else { return Ok(()) };
    let mut more = json!({ "hop": chain.hop });
    for (name, value) in details.iter().filter(|(name, _)| matches!(name.as_str(), "to" | "more")) {
        more[name] = value.clone();
    }
    reached_now(w, agent_id, chain, (limit, most), more)
}

/// Emits the event that a limit is reached, unless it was emitted before. Returns whether it was
/// emitted now; the caller then has to save the tally.
fn limit_reached(
    w: &mut Tx,
    agent_id: &AgentId,
    limit: &str,
    most: u64,
    tally: &mut RootTally,
    more: Value,
) -> Result<bool> {
    // Repetitions and asks in a row are counted for each pair of agents.
    let between = match more.get("to").and_then(Value::as_str) {
        Some(to) if limit != "hops_max" => Some((agent_id.as_str(), to)),
        _ => None,
    };
    if !tally.report_once(limit, between, most) {
        return Ok(false);
    }
    let mut payload = json!({
        "limit": limit, "value": most, "root_id": tally.root_id, "messages": tally.messages, "turns": tally.turns,
        "spawns": tally.spawns,
    });
    if let (Some(payload), Value::Object(more)) = (payload.as_object_mut(), more) {
        payload.extend(more);
    }
    w.emit(NewEvent::new(EventKind::LimitReached, payload).agent(agent_id).correlation(tally.root_id))?;
    Ok(true)
}

/// A limit that is nearly or fully used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearBound {
    /// Name of the setting under `limits`.
    pub limit: String,
    /// The agent or root that it applies to; empty for the world.
    pub about: String,
    /// The current value.
    pub value: u64,
    /// The limit.
    pub most: u64,
}

/// Returns the limits of which at least four fifths are used, the fullest first, at most 50. `dynamic_agents` is the number
/// of agents that were created at run time: the caller knows it, and the store would have to count them.
pub fn near(r: &mut Tx, dynamic_agents: u64) -> Result<Vec<NearBound>> {
    let limits = r.ctx.limits();
    let mut found = Vec::new();
    let mut check = |limit: &str, about: String, value: u64, most: u64| {
        if most > 0 && u128::from(value) * 5 >= u128::from(most) * 4 {
            found.push(NearBound { limit: limit.to_owned(), about, value, most });
        }
    };
    let world = String::new;
    check("dynamic_agents_max", world(), dynamic_agents, limits.dynamic_agents_max.into());
    check("tasks_open_max", world(), r.task_count_open()?.into(), limits.tasks_open_max.into());
    check("asks_open_max", world(), r.ask_count_open()?.into(), limits.asks_open_max.into());
    check("chat_channels_max", world(), r.chat_channel_count()?.into(), limits.chat_channels_max.into());
    check("knowledge_entries_max", world(), r.knowledge_count()?.into(), limits.knowledge_entries_max.into());
    check("state_keys_max", world(), r.state_count()?.into(), limits.state_keys_max.into());
    let stored = r.store_bytes()?;
    check("store_bytes_max", world(), stored, limits.store_bytes_max);
    check("store_bytes_warn", world(), stored, limits.store_bytes_warn);
    check("world_mail_max", world(), r.inbox_total()?, limits.world_mail_max.into());
    for agent_id in r.inbox_waiting()? {
        let depth = r.inbox_depth(&agent_id)?;
        check("inbox_max", agent_id.to_string(), depth.into(), limits.inbox_max.into());
    }
    // Only roots that were active within the last hour are checked.
    let since = Timestamp(r.ctx.now().0.saturating_sub(3_600_000));
    for tally in r.root_list(100)?.into_iter().filter(|tally| tally.updated_at >= since) {
        let root = || tally.root_id.to_string();
        check("root_messages_max", root(), tally.messages, limits.root_messages_max.into());
        check("root_turns_max", root(), tally.turns, limits.root_turns_max.into());
        check("root_spawns_max", root(), tally.spawns.into(), limits.root_spawns_max.into());
    }
    found.sort_by(|a, b| {
        // Compares the shares without a division: a.value / a.most against b.value / b.most.
        let share = |near: &NearBound, other: &NearBound| u128::from(near.value) * u128::from(other.most);
        share(b, a).cmp(&share(a, b)).then_with(|| (&a.limit, &a.about).cmp(&(&b.limit, &b.about)))
    });
    found.truncate(50);
    Ok(found)
}
