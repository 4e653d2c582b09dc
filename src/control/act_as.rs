//! Lets an operator act as an agent (`as_agent`). The agent's access rules apply, and the record
//! names both the operator and the agent.
//!
//! Acting as an agent must never give the operator more access than the agent has.

use std::collections::BTreeSet;

use ghost_config::plan::Plan;
use ghost_domain::{Agent, AgentId, Code, Party, Refusal, Viewer};
use ghost_operations::Tx;
use ghost_operations::chat::Speaker;
use ghost_operations::droids;
use ghost_operations::knowledge::Author;
use ghost_operations::mail;
use serde_json::json;

use crate::convert::input;

/// The agent that the request names in `as_agent`, if any.
pub fn acting_agent(as_agent: Option<&str>) -> Result<Option<AgentId>, Refusal> {
    input::parsed_if("as_agent", as_agent)
}

/// The author of a change: `operator` itself, or the agent in `as_agent`.
///
/// # Errors
/// If the agent does not exist, is a droid that has ended, or does not have `tool`. `tool` is the canonical name of the tool with
/// which the agent itself would do the same.
pub fn author(
    r: &mut Tx,
    plan: &Plan,
    operator: Party,
    as_agent: Option<&AgentId>,
    tool: &str,
) -> Result<Author, Refusal> {
    let Some(agent_id) = as_agent else {
        return Ok(Author { by: operator, viewer: Viewer::Everything, through: None });
    };
    let agent = mail::agent_for_operator(r, agent_id)?;
    droids::may_act(r, &agent)?;
    let groups = groups_if_granted(plan, &agent, tool)?;
    let viewer = Viewer::Agent { agent_id: agent.agent_id.clone(), archetype: agent.archetype, groups };
    Ok(Author { by: Party::Agent(agent.agent_id), viewer, through: Some(operator) })
}

/// The author of a chat message, under the same rules as [`author`].
pub fn speaker(
    r: &mut Tx,
    plan: &Plan,
    operator: Party,
    as_agent: Option<&AgentId>,
    tool: &str,
) -> Result<Speaker, Refusal> {
    let author = author(r, plan, operator, as_agent, tool)?;
    Ok(Speaker { party: author.by, via: author.through })
}

/// The privilege groups of an agent that has `tool` in the current plan. An agent that the plan no
/// longer runs has no tools.
fn groups_if_granted(plan: &Plan, agent: &Agent, tool: &str) -> Result<BTreeSet<String>, Refusal> {
    let lacks = |why: &str, hint: &str| {
        Refusal::new(Code::AccessDenied, format!("{} may not use {tool}{why}", agent.agent_id))
            .hint(format!("{hint}, or act as yourself: omit as_agent"))
            .details(json!({ "field": "as_agent", "tool": tool }))
    };
    match plan.spec_for(agent) {
        Ok(spec) if spec.access.can_access(tool) => Ok(spec.access.groups().clone()),
        Ok(_) => Err(lacks("", "grant it the tool in the world's files")),
        Err(refusal) => Err(lacks(&format!(": {}", refusal.message), "correct the world's files")),
    }
}
