//! Checks the promises against the records of a finished world and against witnesses outside it.
//!
//! A check must never rely on the world's own records if a witness outside the world has counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ghost_domain::Scope;
use ghost_domain::journal::Step;
use ghost_domain::{
    AgentId, AskStatus, CallStatus, DeadLetterStatus, Envelope, EventKind, Kind, LedgerRow, MailState, Money, TurnId,
    TurnStatus,
};

use super::facts::{Facts, argument, token_of};
use super::log_check;
use super::model::{Asked, mark_of};
use super::operator::Acknowledged;
use super::random_actions::POISON_WORD;
use super::tools::{MARK, OUTSIDE, OutsideEvents};

/// Maximum delay of an ask's end after its deadline.
const LATE_MAX: Duration = Duration::from_secs(30);

/// The evidence of a finished run: the records of the world, and the witnesses outside it.
#[derive(Clone)]
pub(crate) struct Evidence {
    /// The records of the world.
    pub(crate) facts: Facts,
    /// The effects and panics outside the world.
    pub(crate) outside: OutsideEvents,
    /// The requests to the model.
    pub(crate) asked: Vec<Asked>,
    /// The results that the world acknowledged to operators.
    pub(crate) acknowledged: Acknowledged,
}

/// Runs all checks. Returns the violations.
pub(crate) fn check(evidence: &Evidence) -> Vec<String> {
    let Evidence { facts, outside, asked, acknowledged } = evidence;
    let mut found = outside.wrongs.clone();
    let wrongs = &mut found;
    log_check::check(&facts.events, outside, wrongs);
    mail(facts, acknowledged, wrongs);
    turns(facts, wrongs);
    in_world_effects(facts, wrongs);
    outside_effects(facts, outside, wrongs);
    files(facts, wrongs);
    model(facts, asked, wrongs);
    asks(facts, acknowledged, wrongs);
    budgets(facts, wrongs);
    turns_and_usage(facts, wrongs);
    dead_letters(facts, asked, wrongs);
    let wrong_count = |(name, count, rows): &(String, i64, i64)| format!("the count {name} is {count}, of {rows} rows");
    wrongs.extend(facts.wrong_counts.iter().map(wrong_count));
    found
}

/// Nothing acknowledged is lost, and every message is processed exactly once.
fn mail(facts: &Facts, acknowledged: &Acknowledged, wrongs: &mut Vec<String>) {
    for message_id in &acknowledged.messages {
        if !facts.messages.contains_key(message_id) {
            wrongs.push(format!("message {message_id} was acknowledged and is gone"));
        }
    }
    for task_id in &acknowledged.tasks {
        if !facts.tasks.contains_key(task_id) {
            wrongs.push(format!("task {task_id} was acknowledged and is gone"));
        }
    }
    for mail in facts.messages.values() {
        if let Some(what) = misplaced(facts, mail) {
            wrongs.push(format!("message {} to {} ({}): {what}", mail.message_id, mail.to, mail.kind));
        }
    }
    // Mail that a turn took at its beginning belongs to no other turn, unless an earlier turn
    // returned it to the inbox.
    let mut dealt_with: BTreeMap<&str, TurnId> = BTreeMap::new();
    for event in facts.events.iter().filter(|event| event.kind == EventKind::TurnStarted) {
        let turn = event.payload.get("turn_id").and_then(|id| id.as_str()?.parse().ok()).map(TurnId);
        let Some(turn) = turn.and_then(|turn_id| facts.turns.get(&turn_id)).filter(|turn| turn.status.is_final())
        else {
            continue;
        };
        for message_id in event.payload.get("messages").and_then(|ids| ids.as_array()).into_iter().flatten() {
            if let Some(text) = message_id.as_str()
                && let Some(other) = dealt_with.insert(text, turn.turn_id)
            {
                wrongs.push(format!("message {text} was dealt with in {other} and again in {}", turn.turn_id));
            }
        }
    }
}

fn misplaced(facts: &Facts, mail: &Envelope) -> Option<String> {
    let turn = mail.turn_id.and_then(|turn_id| facts.turns.get(&turn_id));
    let letters = || facts.dead_letters.iter().filter(|dead_letter| dead_letter.messages.contains(&mail.message_id));
    match mail.state {
        MailState::Pending if facts.runs(&mail.to) && mail.wake => {
            Some("still waits for an agent that runs".to_owned())
        }
        MailState::Pending => None,
        MailState::Taken => match turn {
            Some(turn) if turn.status == TurnStatus::Open && !facts.runs(&mail.to) => None,
            other => Some(format!("is taken by {:?}", other.map(|turn| turn.status))),
        },
        MailState::Consumed => match turn {
            Some(turn) if turn.status.is_final() => None,
            _ if letters().any(|dead_letter| dead_letter.status == DeadLetterStatus::Dropped) => None,
            // Its receiver was deleted before it read the message.
            _ if facts.agents.get(&mail.to).is_some_and(|agent| agent.is_deleted() || agent.incarnation > 1) => None,
            other => Some(format!("is consumed by {:?}", other.map(|turn| turn.status))),
        },
        MailState::Dead => {
            let held = letters().filter(|dead_letter| dead_letter.status == DeadLetterStatus::Held).count();
            (held != 1).then(|| format!("is dead, with {held} held dead letters"))
        }
    }
}

fn turns(facts: &Facts, wrongs: &mut Vec<String>) {
    for turn in facts.turns.values() {
        if turn.status == TurnStatus::Open && facts.runs(&turn.agent_id) {
            wrongs.push(format!("turn {} of {} is open at rest", turn.turn_id, turn.agent_id));
        }
        if turn.status != TurnStatus::Open {
            for row in facts.ledger.iter().filter(|row| row.turn_id == turn.turn_id) {
                if row.status == CallStatus::Started {
                    wrongs.push(format!("call {} ({}) of an ended turn never ended", row.call_id, row.tool));
                }
            }
        }
    }
}

fn ok(row: &&LedgerRow) -> bool {
    row.status == CallStatus::Ok
}

/// An effect in the world happened once if its call succeeded, and not at all otherwise.
fn in_world_effects(facts: &Facts, wrongs: &mut Vec<String>) {
    let mut expected: BTreeMap<String, u32> = BTreeMap::new();
    for row in facts.ledger.iter().filter(ok).filter(|row| row.tool == MARK) {
        *expected.entry(token_of(row).unwrap_or_default()).or_default() += 1;
    }
    for (token, count) in &facts.marks {
        let wanted = expected.remove(token).unwrap_or(0);
        if *count != wanted || wanted > 1 {
            wrongs.push(format!("mark {token} was made {count} times; its calls went well {wanted} times"));
        }
    }
    for row in facts.ledger.iter().filter(|row| row.tool == "syscall.message.send") {
        let Some(content) = argument(row, "content").filter(|content| content.starts_with("word ")) else { continue };
        same(
            facts,
            row,
            &content,
            |facts, text| facts.messages.values().filter(|mail| mail.body == text).count(),
            wrongs,
        );
    }
    for row in facts.ledger.iter().filter(|row| row.tool == "syscall.task.create") {
        let Some(title) = argument(row, "title") else { continue };
        same(facts, row, &title, |facts, text| facts.tasks.values().filter(|task| task.title == text).count(), wrongs);
    }
    for row in facts.ledger.iter().filter(|row| row.tool == "syscall.broadcast") {
        let Some(text) = argument(row, "message") else { continue };
        let copies: Vec<&Envelope> = facts.messages.values().filter(|mail| mail.body == text).collect();
        let receivers: BTreeSet<_> = copies.iter().map(|mail| (&mail.to, mail.kind)).collect();
        if receivers.len() != copies.len() || (!ok(&row) && !copies.is_empty()) {
            wrongs.push(format!("broadcast `{text}` is {} and has {} copies", row.status, copies.len()));
        }
    }
}

fn same(facts: &Facts, row: &LedgerRow, text: &str, count: impl Fn(&Facts, &str) -> usize, wrongs: &mut Vec<String>) {
    let (found, wanted) = (count(facts, text), usize::from(ok(&row)));
    if found != wanted {
        wrongs.push(format!("`{text}` of {} is there {found} times; its call is {}", row.tool, row.status));
    }
}

/// An outside effect happens at most once and is always recorded. If its outcome is unknown, the ledger says so.
fn outside_effects(facts: &Facts, outside: &OutsideEvents, wrongs: &mut Vec<String>) {
    let mut rows: BTreeMap<String, Vec<&LedgerRow>> = BTreeMap::new();
    for row in facts.ledger.iter().filter(|row| row.tool == OUTSIDE) {
        rows.entry(token_of(row).unwrap_or_default()).or_default().push(row);
    }
    for (token, executions) in &outside.executions {
        if *executions > 1 {
            wrongs.push(format!("outside effect {token} happened {executions} times"));
        }
        if !rows.contains_key(token) {
            wrongs.push(format!("outside effect {token} happened and is in no ledger"));
        }
    }
    for (token, rows) in &rows {
        let happened = outside.executions.contains_key(token);
        if rows.len() > 1 {
            wrongs.push(format!("outside call {token} has {} rows", rows.len()));
        }
        for row in rows {
            if row.status == CallStatus::Ok && !happened {
                wrongs.push(format!("outside call {token} went well and never happened"));
            }
        }
    }
}

/// A written file has its text, and appended text is there once.
fn files(facts: &Facts, wrongs: &mut Vec<String>) {
    for row in facts.ledger.iter().filter(|row| row.tool == "workspace.write") {
        let (Some(path), Some(content)) = (argument(row, "path"), argument(row, "content")) else { continue };
        let name = format!("agents/{}/{path}", row.agent_id);
        let text = facts.files.get(&name).map_or("", String::as_str);
        let times = text.matches(content.as_str()).count();
        if times > 1 || (ok(&row) && times != 1) {
            wrongs.push(format!("{name} holds {content:?} {times} times; the call is {}", row.status));
        }
    }
}

/// No journaled answer is requested again.
fn model(facts: &Facts, asked: &[Asked], wrongs: &mut Vec<String>) {
    let mut journaled: BTreeSet<u64> = BTreeSet::new();
    for row in facts.journals.values().flatten() {
        if let Step::ModelAnswered { blocks, .. } = &row.step
            && let Some(mark) = mark_of(blocks)
            && !journaled.insert(mark)
        {
            wrongs.push(format!("answer {mark} is journaled twice"));
        }
    }
    let mut settled: BTreeSet<(TurnId, usize)> = BTreeSet::new();
    for request in asked {
        let key = (request.turn_id, request.round);
        if settled.contains(&key) {
            wrongs.push(format!("turn {} asks again for round {}, which is journaled", key.0, key.1));
        }
        if request.answer.is_some_and(|mark| journaled.contains(&mark)) {
            settled.insert(key);
        }
    }
}

fn asks(facts: &Facts, acknowledged: &Acknowledged, wrongs: &mut Vec<String>) {
    for ask in &facts.asks_open {
        wrongs.push(format!("ask {} to {} is open at rest", ask.ask_id, ask.target));
    }
    for ask_id in &acknowledged.asks {
        if !facts.asks.contains_key(ask_id) {
            wrongs.push(format!("ask {ask_id} was acknowledged and is gone"));
        }
    }
    for ask in facts.asks.values() {
        // A full disk may delay the end of an ask a little. While no daemon runs, nothing ends, and a clock that is put
        // right then looks like a long stop.
        let late = ask.closed_at.map(|closed_at| {
            let starts = facts.events.iter().filter(|event| event.kind == EventKind::WorldStarted);
            let started = starts.map(|event| event.ts).filter(|ts| *ts <= closed_at).max();
            closed_at.since(started.map_or(ask.deadline_at, |ts| ts.max(ask.deadline_at)))
        });
        if late.is_some_and(|late| late > LATE_MAX) {
            wrongs.push(format!("ask {} was closed {late:?} after its deadline", ask.ask_id));
        }
    }
    for ask in facts.asks.values().filter(|ask| ask.status == AskStatus::Answered) {
        let answered = facts.messages.get(&ask.message_id).and_then(|mail| facts.turns.get(&mail.turn_id?));
        let gave = |turn: &ghost_domain::Turn| match (&turn.text, &ask.reply) {
            (Some(text), Some(reply)) if turn.truncated => reply.starts_with(text.as_str()),
            (text, reply) => turn.status == TurnStatus::Finished && text == reply,
        };
        if !answered.is_some_and(gave) {
            wrongs.push(format!("ask {} has an answer that no turn gave", ask.ask_id));
        }
    }
    // Only asks have a correlation; other mail has none.
    for mail in facts.messages.values() {
        if (mail.kind == Kind::Ask) != mail.ask_id.is_some() {
            wrongs
                .push(format!("message {} is of kind {} and its ask is {:?}", mail.message_id, mail.kind, mail.ask_id));
        }
    }
}

fn budgets(facts: &Facts, wrongs: &mut Vec<String>) {
    for (turn_id, held) in &facts.held {
        wrongs.push(format!("reservation {} of turn {turn_id} is held at rest", held.reservation_id));
    }
    for budget in &facts.budgets {
        let scope = &budget.scope;
        if budget.reserved_tokens != 0 || budget.reserved_money != Money(0) {
            wrongs.push(format!("{scope} holds {} tokens at rest", budget.reserved_tokens));
        }
        if budget.limits.tokens.is_some_and(|limit| budget.spent_tokens > limit)
            || budget.limits.money.is_some_and(|limit| budget.spent_money > limit)
        {
            wrongs.push(format!(
                "{scope} spent {} tokens and {}: over its limit",
                budget.spent_tokens, budget.spent_money
            ));
        }
        let (mut tokens, mut money) = (0_u64, Money(0));
        for sum in &facts.usage {
            let counts = match scope {
                Scope::World => true,
                Scope::Agent(_) | Scope::Team(_) => charged(facts, &sum.agent_id, scope),
                Scope::Root(_) | Scope::Day(_) => continue,
            };
            if counts {
                tokens += sum.tokens.total();
                money = money.plus(sum.cost);
            }
        }
        if !matches!(scope, Scope::Root(_) | Scope::Day(_))
            && (tokens, money) != (budget.spent_tokens, budget.spent_money)
        {
            wrongs.push(format!(
                "{scope} spent {} tokens and {}; its usage rows say {tokens} and {money}",
                budget.spent_tokens, budget.spent_money
            ));
        }
    }
}

/// Whether the calls of an agent are charged to the scope of an agent or a team: its own, or that of its creator.
fn charged(facts: &Facts, agent_id: &AgentId, scope: &Scope) -> bool {
    let Some(agent) = facts.agents.get(agent_id) else { return false };
    let own = match scope {
        Scope::Agent(payer) => payer == agent_id,
        Scope::Team(team) => agent.team.as_ref() == Some(team),
        Scope::World | Scope::Root(_) | Scope::Day(_) => false,
    };
    // In a simulation, no agent is deleted and created again by an agent of its own.
    own || agent.creator().is_some_and(|creator| charged(facts, &creator, scope))
}

/// The usage of the turns equals the usage rows.
fn turns_and_usage(facts: &Facts, wrongs: &mut Vec<String>) {
    for agent_id in facts.agents.keys() {
        let of_turns =
            facts.turns.values().filter(|turn| turn.agent_id == *agent_id).fold((0, 0, 0), |all, turn| {
                (all.0 + turn.input_tokens, all.1 + turn.output_tokens, all.2 + turn.cost.0)
            });
        let of_rows = facts
            .usage
            .iter()
            .filter(|sum| sum.agent_id == *agent_id)
            .fold((0, 0, 0), |all, sum| (all.0 + sum.tokens.input, all.1 + sum.tokens.output, all.2 + sum.cost.0));
        if of_turns != of_rows {
            wrongs.push(format!("the turns of {agent_id} took {of_turns:?}; its usage rows say {of_rows:?}"));
        }
    }
}

/// Only poisoned mail, and mail that the model refused to answer or never answered in a form that can be read, becomes a
/// dead letter.
fn dead_letters(facts: &Facts, asked: &[Asked], wrongs: &mut Vec<String>) {
    let unusable: BTreeSet<TurnId> =
        asked.iter().filter(|request| request.unusable).map(|request| request.turn_id).collect();
    for dead_letter in &facts.dead_letters {
        let poisoned = dead_letter
            .messages
            .iter()
            .filter_map(|message_id| facts.messages.get(message_id))
            .any(|mail| mail.body.contains(POISON_WORD));
        if !poisoned && !unusable.contains(&dead_letter.turn_id) {
            wrongs.push(format!("innocent mail of {} was set aside: {}", dead_letter.agent_id, dead_letter.reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::run::tests::evidence;

    /// Forged evidence must fail the checks.
    #[test]
    fn every_forgery_is_found() {
        // A run in which many things failed.
        let eventful =
            |e: &Evidence| !e.facts.dead_letters.is_empty() && e.facts.ledger.iter().any(|row| row.tool == OUTSIDE);
        let honest = (0..50).map(evidence).find(eventful).unwrap();
        assert_eq!(check(&honest), Vec::<String>::new());
        let found = |forge: &dyn Fn(&mut Evidence), word: &str| {
            let mut forged = honest.clone();
            forge(&mut forged);
            let wrongs = check(&forged);
            assert!(wrongs.iter().any(|wrong| wrong.contains(word)), "{word}: {wrongs:?}");
        };
        found(&|e| drop(e.facts.events.remove(7)), "has a gap");
        found(&|e| e.facts.events[9].ts = ghost_domain::Timestamp(0), "time runs backwards");
        found(&|e| e.facts.messages.retain(|_, mail| !mail.body.starts_with("word")), "message.send is there 0 times");
        found(
            &|e| {
                let lost = *e.acknowledged.messages.first().unwrap();
                e.facts.messages.remove(&lost);
            },
            "was acknowledged and is gone",
        );
        found(&|e| e.facts.messages.values_mut().for_each(|mail| mail.state = MailState::Taken), "is taken by");
        found(&|e| e.facts.messages.values_mut().for_each(|mail| mail.state = MailState::Dead), "0 held dead letters");
        found(&|e| e.facts.marks.values_mut().for_each(|count| *count += 1), "was made 2 times");
        found(&|e| e.outside.executions.values_mut().for_each(|count| *count += 1), "happened 2 times");
        found(&|e| e.outside.executions.clear(), "went well and never happened");
        found(&|e| e.facts.ledger.retain(|row| row.tool != OUTSIDE), "is in no ledger");
        found(&|e| e.facts.files.clear(), "0 times; the call is ok");
        found(&|e| e.facts.files.values_mut().for_each(|text| *text = text.repeat(2)), "2 times");
        found(
            &|e| {
                let again = e.asked.iter().find(|asked| asked.answer.is_some()).unwrap().clone();
                e.asked.push(again);
            },
            "which is journaled",
        );
        found(&|e| e.facts.budgets.iter_mut().for_each(|budget| budget.spent_tokens += 1), "its usage rows say");
        found(&|e| e.facts.budgets.iter_mut().for_each(|budget| budget.reserved_tokens = 5), "holds 5 tokens");
        found(&|e| e.facts.budgets.iter_mut().for_each(|budget| budget.limits.tokens = Some(1)), "over its limit");
        found(&|e| e.facts.asks.values_mut().for_each(|ask| ask.reply = Some("forged".into())), "no turn gave");
        found(&|e| e.outside.panicked.clear(), "an innocent agent crashed");
        found(
            &|e| {
                e.facts.dead_letters.iter_mut().for_each(|dead| dead.messages.clear());
                e.asked.iter_mut().for_each(|request| request.unusable = false);
            },
            "innocent mail",
        );
        found(&|e| e.facts.turns.values_mut().for_each(|turn| turn.status = TurnStatus::Open), "is open at rest");
    }
}
