//! The `Skills` service: the skills of the world, and which of them an agent holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_config::skills::Skill;
use ghost_domain::text::nearest;
use ghost_domain::{AgentId, HeldSkill, Refusal};
use ghost_operations::mail;
use ghost_proto::v1;

use crate::control::Control;
use crate::convert::input;
use crate::dispatch::{Query, Result};
use crate::queries;

/// Largest length of a skill's name, in characters.
const NAME_MAX: usize = 128;
/// The name of the list in its cursors.
const LIST: &str = "skills";

fn shown(skill: &Skill, held: &[HeldSkill]) -> v1::Skill {
    let hold = held.iter().find(|hold| hold.skill == skill.name);
    v1::Skill {
        name: skill.name.clone(),
        description: skill.description.clone(),
        eligible: skill.missing.is_empty(),
        missing: skill.missing.clone(),
        path: skill.root.join(&skill.path).display().to_string(),
        held: hold.is_some(),
        active: hold.is_some_and(|hold| hold.active),
        faults: u32::try_from(skill.faults.len()).unwrap_or(u32::MAX),
    }
}

/// The filter of an agent and what it holds.
async fn of_agent(cx: &Control, agent_id: AgentId) -> Result<(Option<BTreeSet<String>>, Vec<HeldSkill>), Refusal> {
    let world = &cx.world;
    let read = world.store().read(move |r| {
        let agent = mail::agent_named(r, &agent_id)?;
        let held = r.skills_held(&agent.agent_id)?;
        Ok::<_, Refusal>((agent, held))
    });
    let (agent, held) = read.await?;
    // An agent that cannot run has no skills to choose from.
    let filter = world.plan().spec_for(&agent)?.skills;
    Ok((filter, held))
}

pub(crate) async fn list(cx: Query, request: v1::ListSkillsRequest) -> Result<v1::ListSkillsResponse> {
    let after = input::unseal(LIST, &request.cursor)?;
    let agent_id: Option<AgentId> = input::parsed_if("agent_id", request.agent_id.as_deref())?;
    let skills = cx.world.engine().services.skills();
    let (selected, held): (Vec<Arc<Skill>>, Vec<HeldSkill>) = match agent_id {
        None => (skills.all().values().cloned().collect(), Vec::new()),
        Some(agent_id) => {
            let (filter, held) = of_agent(&cx, agent_id).await?;
            (skills.visible(filter.as_ref()).cloned().collect(), held)
        }
    };
    let limit = input::page(request.limit);
    let mut rest: Vec<&Arc<Skill>> = selected.iter().filter(|skill| skill.name.as_str() > after).collect();
    rest.sort_by(|one, other| one.name.cmp(&other.name));
    let rows = rest.iter().take(limit).map(|skill| shown(skill, &held));
    let (skills, next_cursor) = queries::sealed(LIST, rows, rest.len() > limit, |last| &last.name);
    Ok(v1::ListSkillsResponse { skills, next_cursor })
}

pub(crate) async fn get(cx: Query, request: v1::GetSkillRequest) -> Result<v1::GetSkillResponse> {
    let name = input::line("name", &request.name, NAME_MAX)?;
    let skills = cx.world.engine().services.skills();
    match skills.get(&name) {
        Some(skill) => Ok(v1::GetSkillResponse { skill: Some(shown(skill, &[])), document: skill.text() }),
        None => {
            let near = nearest(&name, skills.all().keys().map(String::as_str));
            Err(Refusal::not_found("skill", &name, near))
        }
    }
}
