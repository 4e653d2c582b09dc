//! Checks the names in list filters. An unknown name is probably a typo, and an empty list would
//! hide the typo. Names of deleted agents and tools are accepted, because their records remain.
//!
//! A name that some record contains must never be refused.

use ghost_domain::text::nearest;
use ghost_domain::tool_catalogue::{canonical, words};
use ghost_domain::{AgentId, Code, LedgerRow, Refusal, TurnId};
use ghost_operations::mail;
use ghost_store::tables::LedgerFilter;
use ghost_world::World;
use serde_json::json;

use super::agents::all_agents;
use super::outcome::{Result, refused};
use super::turns::no_turn;

/// Largest number of archetypes in a refusal.
const ARCHETYPES_LISTED: usize = 20;

/// The agent in a filter. Deleted agents are accepted; an agent that never existed is refused.
pub async fn agent_in_filter(world: &World, field: &str, text: Option<&str>) -> Result<Option<AgentId>> {
    let Some(agent_id) = crate::convert::input::parsed_if::<AgentId>(field, text)? else { return Ok(None) };
    if world.directory().card(&agent_id).is_some() {
        return Ok(Some(agent_id));
    }
    let id = agent_id.clone();
    let found: Result<()> = world
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
pub async fn archetype_in_filter(world: &World, name: &str) -> Result<String> {
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
pub async fn tool_in_filter(world: &World, text: &str) -> Result<String> {
    if let Some(name) = canonical(text) {
        return Ok(name.to_owned());
    }
    let tools = world.engine().tools.current();
    if tools.names().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    let filter = LedgerFilter { tool: Some(text.to_owned()), limit: 1, ..LedgerFilter::default() };
    let read = world.store().read(move |r| r.call_list(&filter));
    let rows: Vec<LedgerRow> = read.await.map_err(refused)?;
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
pub async fn turn_in_filter(world: &World, turn_id: TurnId) -> Result<()> {
    let calls = LedgerFilter { turn_id: Some(turn_id), limit: 1, ..LedgerFilter::default() };
    world
        .store()
        .read(move |r| match r.call_list(&calls)?.is_empty() && r.turn_get(turn_id)?.is_none() {
            true => Err(no_turn(turn_id)),
            false => Ok(()),
        })
        .await
}

#[cfg(test)]
mod tests {
    use ghost_domain::{CallId, CallStatus, Timestamp};
    use ghost_proto::v1::ListLedgerRequest;
    use uuid::Uuid;

    use super::*;
    use crate::fixture::TestControl;
    use crate::services::ledger;

    #[tokio::test]
    async fn calls_of_a_deleted_turn_are_listed() {
        let test = TestControl::new().await;
        let gone = TurnId(Uuid::from_u128(7));
        let call_id = CallId(Uuid::from_u128(8));
        let started = LedgerRow::new(call_id, "ada".parse().unwrap(), gone, "workspace.read", Timestamp(1));
        let call = LedgerRow { status: CallStatus::Ok, ..started };
        let write = test.world.store().write(move |w| w.call_put(&call));
        write.await.map_err(refused).unwrap();
        let list = async |turn_id: TurnId, status: Option<&str>| {
            let request = ListLedgerRequest {
                turn_id: Some(turn_id.to_string()),
                status: status.map(str::to_owned),
                ..ListLedgerRequest::default()
            };
            ledger::list(test.query(), request).await.map(|page| page.rows.len())
        };
        assert_eq!(list(gone, None).await, Ok(1));
        // The turn is accepted even if none of its calls match.
        assert_eq!(list(gone, Some("failed")).await, Ok(0));
        let never = list(TurnId(Uuid::from_u128(9)), Some("failed")).await.unwrap_err();
        assert_eq!(never.code, ghost_domain::Code::NotFound);
    }
}
