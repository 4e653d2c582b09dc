//! The services `Toolboxes` and `Skills`: tools that come from outside ghostd with the trust in them, and the skills of the
//! world.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_config::plan::toolbox::{ToolboxKind, ToolboxPlan};
use ghost_config::skills::Skill;
use ghost_domain::text::nearest;
use ghost_domain::{AgentId, HeldSkill, Refusal};
use ghost_operations::mail;
use ghost_proto::v1;
use ghost_tools::mcp::Trust;

use crate::control::Control;
use crate::convert::input;
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// Largest length of a name, in characters.
const NAME_MAX: usize = 128;
/// Largest number of tools in one request.
const TOOLS_MAX: usize = 1_000;

fn rows(cx: &Control, toolbox: &ToolboxPlan, found: Vec<Trust>) -> Vec<v1::ToolboxTool> {
    let redactor = cx.redactor();
    let row = |trust: Trust| v1::ToolboxTool {
        name: toolbox.full(&trust.tool),
        state: trust.state.as_str().to_owned(),
        reason: trust.why.map(|why| redactor.redact(&why)),
        hash: trust.now.as_ref().map(|now| now.hash.clone()),
        description: trust.now.map(|now| redactor.redact(&now.description)),
    };
    found.into_iter().map(row).collect()
}

/// The tools of a toolbox as the world has them.
fn listed(cx: &Control, toolbox: &ToolboxPlan) -> Vec<v1::ToolboxTool> {
    let table = cx.world.engine().tools.current();
    let tool = |short: &str| {
        let name = toolbox.full(short);
        let reason = table.absent_reason(&name).map(str::to_owned);
        let is_there = table.names().any(|known| known == name);
        let state = if is_there { "available" } else { "absent" }.to_owned();
        v1::ToolboxTool { name, state, reason, hash: None, description: None }
    };
    let mut tools: Vec<v1::ToolboxTool> = toolbox.tool_names().map(tool).collect();
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    tools
}

async fn checked(cx: &Control, name: &str) -> Result<v1::ToolboxCheck> {
    let toolbox = cx.world.toolbox(name)?;
    let tools = match &toolbox.kind {
        ToolboxKind::Commands { .. } => listed(cx, &toolbox),
        ToolboxKind::Mcp(_) => {
            let found = cx.world.look_at_server(&toolbox).await?;
            rows(cx, &toolbox, found)
        }
    };
    Ok(v1::ToolboxCheck { toolbox: toolbox.name.clone(), tools })
}

pub(crate) async fn list(cx: Query, _: v1::ListToolboxesRequest) -> Result<v1::ListToolboxesResponse> {
    let plan = cx.world.plan();
    let toolboxes = plan.toolboxes.values().map(|toolbox| v1::Toolbox {
        name: toolbox.name.clone(),
        source: toolbox.source.clone(),
        kind: match &toolbox.kind {
            ToolboxKind::Commands { .. } => "commands",
            ToolboxKind::Mcp(_) => "mcp",
        }
        .to_owned(),
        skill: toolbox.skill.clone(),
        description: toolbox.description.clone(),
        tools: listed(&cx, toolbox),
    });
    Ok(v1::ListToolboxesResponse { toolboxes: toolboxes.collect() })
}

pub(crate) async fn check(cx: Query, request: v1::CheckToolboxRequest) -> Result<v1::ToolboxCheck> {
    let name = input::line("toolbox", &request.toolbox, NAME_MAX)?;
    checked(&cx, &name).await
}

pub(crate) async fn trust(cx: Mutation, request: v1::TrustToolboxRequest) -> Result<v1::ToolboxCheck> {
    let world = &cx.world;
    let name = input::line("toolbox", &request.toolbox, NAME_MAX)?;
    let wanted = request.tools;
    if wanted.len() > TOOLS_MAX {
        return Err(input::bad("tools", format!("has {} entries", wanted.len())));
    }
    // The effect is a file and a reload, which are not in the store. A repetition finds the answer.
    match cx.answered().await? {
        Some(done) => Ok(done),
        None => {
            let found = world.trust_server(&cx.by, &name, &wanted).await?;
            let toolbox = world.toolbox(&name)?;
            cx.answer(v1::ToolboxCheck { toolbox: name, tools: rows(&cx, &toolbox, found) }).await
        }
    }
}

fn skill_row(skill: &Skill, held: &[HeldSkill]) -> v1::Skill {
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

pub(crate) async fn list_skills(cx: Query, request: v1::ListSkillsRequest) -> Result<v1::ListSkillsResponse> {
    let after = input::unseal("skills", &request.cursor)?;
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
    let rows = rest.iter().take(limit).map(|skill| skill_row(skill, &held));
    let (skills, next_cursor) = queries::sealed("skills", rows, rest.len() > limit, |last| &last.name);
    Ok(v1::ListSkillsResponse { skills, next_cursor })
}

pub(crate) async fn get_skill(cx: Query, request: v1::GetSkillRequest) -> Result<v1::GetSkillResponse> {
    let name = input::line("name", &request.name, NAME_MAX)?;
    let skills = cx.world.engine().services.skills();
    match skills.get(&name) {
        Some(skill) => Ok(v1::GetSkillResponse { skill: Some(skill_row(skill, &[])), document: skill.text() }),
        None => {
            let near = nearest(&name, skills.all().keys().map(String::as_str));
            Err(Refusal::not_found("skill", &name, near))
        }
    }
}
