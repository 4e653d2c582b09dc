//! What the filters of lists name. One that names nothing is a slip of the keyboard, and an empty list would hide it; what
//! is gone has left its records, and may be asked for.
//!
//! Must never: refuse a name that a record bears.

use ghost_domain::text::nearest;
use ghost_domain::tool_catalogue::{canonical, words};
use ghost_domain::{AgentId, Code, LedgerRow, Refusal, TurnId};
use ghost_rules::mail;
use ghost_store::tables::LedgerFilter;
use ghost_world::World;
use serde_json::json;

use super::agents::all_agents;
use super::outcome::{Result, refused};
use super::turns::no_turn;

/// Archetypes that a refusal names at most.
const ARCHETYPES_TOLD: usize = 20;

/// The agent that a filter names. One that never was is a slip of the keyboard, and an empty list would hide it; one that
/// was deleted has left its records.
pub async fn agent_in_filter(world: &World, field: &str, text: Option<&str>) -> Result<Option<AgentId>> {
    let Some(agent_id) = crate::convert::input::parsed_if::<AgentId>(field, text)? else { return Ok(None) };
    if world.directory().card(&agent_id).is_some() {
        return Ok(Some(agent_id));
    }
    let id = agent_id.clone();
    let found: Result<()> = world
        .store()
        .read(move |r| {
            Box::pin(async move {
                if r.agent_get(&id).await?.is_none() {
                    mail::agent_named(r, &id).await?;
                }
                Ok::<_, Refusal>(())
            })
        })
        .await;
    found.map_err(|refusal| match refusal.code {
        Code::NotFound => refusal.details(json!({ "field": field })),
        _ => refusal,
    })?;
    Ok(Some(agent_id))
}

/// The archetype that a filter names. One that neither the world's files nor any agent's record knows is a slip of the
/// keyboard.
pub async fn archetype_in_filter(world: &World, name: &str) -> Result<String> {
    let plan = world.plan();
    if !plan.archetypes.contains_key(name) {
        // Agents outlive the archetype that they were made from.
        let agents = all_agents(world).await?;
        let known = || plan.archetypes.keys().map(String::as_str).chain(agents.iter().map(|a| a.archetype.as_str()));
        if !known().any(|known| known == name) {
            let near = nearest(name, known());
            let refusal = Refusal::not_found("archetype", name, near).details(json!({ "field": "archetype" }));
            let all: Vec<&str> = plan.archetypes.keys().map(String::as_str).take(ARCHETYPES_TOLD).collect();
            return Err(match near {
                Some(_) => refusal,
                None => refusal.hint(format!("this world has: {}", all.join(", "))),
            });
        }
    }
    Ok(name.to_owned())
}

/// The canonical name of the tool that a filter names. One that no code and no record knows is a slip of the keyboard, and
/// an empty list would hide it; one that is no longer there has left its records.
pub async fn tool_in_filter(world: &World, text: &str) -> Result<String> {
    if let Some(name) = canonical(text) {
        return Ok(name.to_owned());
    }
    if world.engine().tools.names().any(|name| name == text) {
        return Ok(text.to_owned());
    }
    let filter = LedgerFilter { tool: Some(text.to_owned()), limit: 1, ..LedgerFilter::default() };
    let read = world.store().read(move |r| Box::pin(async move { r.call_list(&filter).await }));
    let rows: Vec<LedgerRow> = read.await.map_err(refused)?;
    if rows.is_empty() {
        let mut known: Vec<&str> = words().collect();
        known.extend(world.engine().tools.names());
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

/// Refuses a turn that never was. One may have called nothing, and its calls are kept for longer than itself.
pub async fn turn_in_filter(world: &World, turn_id: TurnId) -> Result<()> {
    let calls = LedgerFilter { turn_id: Some(turn_id), limit: 1, ..LedgerFilter::default() };
    world
        .store()
        .read(move |r| {
            Box::pin(async move {
                match r.call_list(&calls).await?.is_empty() && r.turn_get(turn_id).await?.is_none() {
                    true => Err(no_turn(turn_id)),
                    false => Ok(()),
                }
            })
        })
        .await
}

#[cfg(test)]
mod tests {
    use ghost_domain::{CallId, CallStatus, Timestamp};
    use ghost_proto::v1::ListLedgerRequest;
    use uuid::Uuid;

    use super::*;
    use crate::fixture::Scene;
    use crate::services::LedgerService;

    #[tokio::test]
    async fn calls_are_listed_by_a_turn_that_is_no_longer_kept() {
        let scene = Scene::new().await;
        let gone = TurnId(Uuid::from_u128(7));
        let call = LedgerRow {
            call_id: CallId(Uuid::from_u128(8)),
            agent_id: "ada".parse().unwrap(),
            turn_id: gone,
            tool: "workspace.read".into(),
            alias: None,
            arguments: "{}".into(),
            result: None,
            status: CallStatus::Ok,
            error_code: None,
            started_at: Timestamp(1),
            duration_ms: None,
            truncated: false,
        };
        let write = scene.world.store().write(move |w| Box::pin(async move { w.call_put(&call).await }));
        write.await.map_err(refused).unwrap();
        let list = async |turn_id: TurnId, status: Option<&str>| {
            let request = ListLedgerRequest {
                turn_id: Some(turn_id.to_string()),
                status: status.map(str::to_owned),
                ..ListLedgerRequest::default()
            };
            LedgerService(scene.control.clone()).page(request).await.map(|page| page.rows.len())
        };
        assert_eq!(list(gone, None).await, Ok(1));
        // What it called is another matter than what is left of that.
        assert_eq!(list(gone, Some("failed")).await, Ok(0));
        let never = list(TurnId(Uuid::from_u128(9)), Some("failed")).await.unwrap_err();
        assert_eq!(never.code, ghost_domain::Code::NotFound);
    }
}
