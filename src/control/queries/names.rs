//! Checks the names and ids in requests: names in list filters, the beginning of an id, the id of a root.
//!
//! An unknown name in a filter is probably a typo, and an empty list would hide the typo. Names of deleted agents and tools
//! are accepted, because their records remain: a name that some record contains must never be refused.

use ghost_domain::text::{nearest, shown};
use ghost_domain::tool_catalogue::{canonical, words};
use ghost_domain::{AgentId, Code, LedgerRow, Refusal, RootId, Scope, TurnId};
use ghost_operations::mail;
use ghost_store::Tx;
use ghost_store::tables::{IdKind, LedgerFilter, TaskFilter, TurnFilter, UsageFilter};
use ghost_world::World;
use serde_json::json;

use super::agents::all_agents;
use crate::convert::input::bad;

/// Largest number of archetypes in a refusal.
const ARCHETYPES_LISTED: usize = 20;

/// The agent in a filter. Deleted agents are accepted; an agent that never existed is refused.
pub async fn agent_in_filter(world: &World, field: &str, text: Option<&str>) -> Result<Option<AgentId>, Refusal> {
    let Some(agent_id) = crate::convert::input::parsed_if::<AgentId>(field, text)? else { return Ok(None) };
    if world.directory().card(&agent_id).is_some() {
        return Ok(Some(agent_id));
    }
    let id = agent_id.clone();
    let found: Result<(), Refusal> = world
        .store()
        .read(move |r| {
            if r.agent_get(&id)?.is_none() {
                mail::agent_named(r, &id)?;
            }
            Ok::<_, Refusal>(())
        })
        .await;
    found.map_err(|refusal| match refusal.code {
        Code::NotFound => refusal.details(json!({ "field": field })),
        _ => refusal,
    })?;
    Ok(Some(agent_id))
}

/// The archetype in a filter. It is refused if neither the world's files nor any agent's row contains
/// it.
pub async fn archetype_in_filter(world: &World, name: &str) -> Result<String, Refusal> {
    let plan = world.plan();
    if !plan.archetypes.contains_key(name) {
        // Agents may outlive their archetype.
        let agents = all_agents(world).await?;
        let known = || plan.archetypes.keys().map(String::as_str).chain(agents.iter().map(|a| a.archetype.as_str()));
        if !known().any(|known| known == name) {
            let near = nearest(name, known());
            let refusal = Refusal::not_found("archetype", name, near).details(json!({ "field": "archetype" }));
            let all: Vec<&str> = plan.archetypes.keys().map(String::as_str).take(ARCHETYPES_LISTED).collect();
            return Err(match near {
                Some(_) => refusal,
                None => refusal.hint(format!("this world has: {}", all.join(", "))),
            });
        }
    }
    Ok(name.to_owned())
}

/// The canonical name of the tool in a filter. It is refused if neither the code nor the ledger
/// contains it.
pub async fn tool_in_filter(world: &World, text: &str) -> Result<String, Refusal> {
    if let Some(name) = canonical(text) {
        return Ok(name.to_owned());
    }
    let tools = world.engine().tools.current();
    if tools.names().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    let filter = LedgerFilter { tool: Some(text.to_owned()), limit: 1, ..LedgerFilter::default() };
    let read = world.store().read(move |r| r.call_list(&filter));
    let rows: Vec<LedgerRow> = read.await?;
    if rows.is_empty() {
        let mut known: Vec<&str> = words().collect();
        known.extend(tools.names());
        let near = nearest(text, known);
        let refusal = Refusal::not_found("tool", text, near).details(json!({ "field": "tool" }));
        return Err(if near.is_some() {
            refusal
        } else {
            refusal.hint("`ghostctl tool list AGENT` shows their names")
        });
    }
    Ok(text.to_owned())
}

/// Refuses a turn that never existed. A turn may have no calls, and its calls are stored longer than
/// the turn itself.
pub async fn turn_in_filter(world: &World, turn_id: TurnId) -> Result<(), Refusal> {
    let calls = LedgerFilter { turn_id: Some(turn_id), limit: 1, ..LedgerFilter::default() };
    world
        .store()
        .read(move |r| match r.call_list(&calls)?.is_empty() && r.turn_get(turn_id)?.is_none() {
            true => Err(no_turn(turn_id)),
            false => Ok(()),
        })
        .await
}

/// Largest number of candidates in a refusal.
const CANDIDATES_MAX: usize = 5;
/// Hexadecimal digits in an id.
const DIGITS: usize = 32;

/// Kinds of ids: wire name, store kind, name in sentences.
const KINDS: [(&str, IdKind, &str); 9] = [
    ("approval", IdKind::Approval, "approval"),
    ("ask", IdKind::Ask, "ask"),
    ("conversation", IdKind::Conversation, "conversation"),
    ("dead_letter", IdKind::DeadLetter, "dead letter"),
    ("grant", IdKind::Grant, "write grant"),
    ("message", IdKind::Message, "message"),
    ("schedule", IdKind::Schedule, "schedule"),
    ("task", IdKind::Task, "task"),
    ("turn", IdKind::Turn, "turn"),
];

/// The only id of that kind with the prefix `typed`.
///
/// # Errors
/// If `kind` is unknown, `typed` is not a prefix of any id, no id matches, or several match.
pub async fn beginning_with(world: &World, kind: &str, typed: &str) -> Result<String, Refusal> {
    let Some((_, kind, name)) = KINDS.iter().find(|(known, _, _)| *known == kind).copied() else {
        let known = KINDS.map(|(known, _, _)| known).join(", ");
        return Err(bad("kind", format!("`{}` is not a kind of id", shown(kind, 40))).hint(format!("one of {known}")));
    };
    let Some((first, last)) = range(typed) else {
        return Err(bad("prefix", format!("`{}` is not the beginning of an id", shown(typed, 80))).hint(
            "an id consists of hexadecimal digits; the first digits are enough if no other id begins with them",
        ));
    };
    let limit = u32::try_from(CANDIDATES_MAX + 1).unwrap_or(u32::MAX);
    let read = world.store().read(move |r| r.ids_between(kind, first.0, last.0, limit));
    let found: Vec<String> = read.await?.iter().map(ToString::to_string).collect();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Refusal::not_found(name, &shown(typed, 80), None)),
        several => Err(ambiguous(name, typed, several)),
    }
}

fn ambiguous(name: &str, typed: &str, several: &[String]) -> Refusal {
    let more = if several.len() > CANDIDATES_MAX { " and more" } else { "" };
    let candidates = &several[..several.len().min(CANDIDATES_MAX)];
    let what = format!("`{}` is the beginning of several {name} ids", shown(typed, 80));
    Refusal::new(Code::InvalidArguments, what)
        .hint(format!("write more digits: {}{more}", candidates.join(", ")))
        .details(json!({ "candidates": candidates }))
}

/// The smallest and the largest id with this prefix. Hyphens and the case of letters do not matter.
fn range(typed: &str) -> Option<(RootId, RootId)> {
    let digits: String = typed.trim().chars().filter(|c| *c != '-').collect();
    if digits.is_empty() || digits.len() > DIGITS || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let bound = |fill: char| {
        let whole: String = digits.chars().chain(std::iter::repeat(fill)).take(DIGITS).collect();
        whole.parse().ok()
    };
    Some((bound('0')?, bound('f')?))
}

/// Refuses a root that no record carries: no account, tally, usage, job, turn, task or pending message. No table lists all
/// roots. Not for a frequent path: it reads the pending messages of all agents.
pub async fn root_named(world: &World, root_id: RootId) -> Result<(), Refusal> {
    if world.ctx().jobs().contains(&root_id) {
        return Ok(());
    }
    let inbox_max = world.ctx().limits().inbox_max;
    world.store().read(move |r| check(r, root_id, inbox_max)).await
}

fn check(r: &mut Tx, root_id: RootId, inbox_max: u32) -> Result<(), Refusal> {
    let usage = UsageFilter { root_id: Some(root_id), ..UsageFilter::default() };
    let turns = TurnFilter { root_id: Some(root_id), limit: 1, ..TurnFilter::default() };
    let tasks = TaskFilter { root_id: Some(root_id), limit: 1, ..TaskFilter::default() };
    if r.budget_get(&Scope::Root(root_id))?.is_some()
        || r.root_get(root_id)?.is_some()
        || !r.usage_sum(&usage)?.is_empty()
        || !r.turn_list(&turns)?.is_empty()
        || !r.task_list(&tasks)?.is_empty()
    {
        return Ok(());
    }
    for agent in r.agent_list(false)? {
        if r.inbox_depth(&agent.agent_id)? > 0
            && r.inbox_pending(&agent.agent_id, inbox_max)?.iter().any(|mail| mail.root_id == root_id)
        {
            return Ok(());
        }
    }
    Err(Refusal::not_found("root", &root_id.to_string(), None)
        .hint("`ghostctl --json turn list` and `ghostctl --json send` show the root of each piece of work"))
}

/// The refusal for an unknown turn.
pub(crate) fn no_turn(turn_id: TurnId) -> Refusal {
    Refusal::not_found("turn", &turn_id.to_string(), None).hint("see `ghostctl turn list`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range_of_ids() {
        let bounds = |typed: &str| range(typed).map(|(first, last)| (first.to_string(), last.to_string()));
        let wanted = ("0197d2a0-1000-0000-0000-000000000000", "0197d2a0-1fff-ffff-ffff-ffffffffffff");
        for typed in ["0197d2a0-1", "0197d2a01", " 0197D2A0-1 "] {
            assert_eq!(bounds(typed), Some((wanted.0.to_owned(), wanted.1.to_owned())), "{typed}");
        }
        let whole = "0197d2a0-1111-7000-8000-0123456789ab";
        assert_eq!(bounds(whole), Some((whole.to_owned(), whole.to_owned())));
        for typed in ["", "-", "xyz", "0197d2a0-1111-7000-8000-0123456789abc", "é"] {
            assert_eq!(bounds(typed), None, "{typed}");
        }
    }
}
