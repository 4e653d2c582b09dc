//! Lets an operator act as an agent (`as_agent`). The agent's access rules apply, and the record
//! names both the operator and the agent.
//!
//! Acting as an agent must never give the operator more access than the agent has.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_config::plan::Plan;
use ghost_domain::{Agent, AgentId, Code, Party, Refusal, Viewer};
use ghost_operations::Tx;
use ghost_operations::chat::Speaker;
use ghost_operations::droids;
use ghost_operations::knowledge::Author;
use ghost_operations::mail;
use serde_json::json;

use crate::control::Control;
use crate::convert::input;

/// As whom a request is carried out: as the operator itself, or as the agent in `as_agent`.
pub(crate) struct Acting {
    plan: Arc<Plan>,
    as_agent: Option<AgentId>,
}

impl Acting {
    pub(crate) fn read(cx: &Control, as_agent: Option<&str>) -> Result<Self, Refusal> {
        Ok(Self { plan: cx.world.plan(), as_agent: input::parsed_if("as_agent", as_agent)? })
    }

    /// The author of a change. `tool` is the canonical name of the tool with which the agent itself would do the same.
    ///
    /// # Errors
    /// If the agent does not exist, is a droid that has ended, or does not have `tool`.
    pub(crate) fn author(&self, r: &mut Tx, operator: &Party, tool: &str) -> Result<Author, Refusal> {
        let Some(agent_id) = &self.as_agent else {
            return Ok(Author { by: operator.clone(), viewer: Viewer::Everything, through: None });
        };
        let agent = mail::agent_for_operator(r, agent_id)?;
        droids::may_act(r, &agent)?;
        let groups = groups_if_granted(&self.plan, &agent, tool)?;
        let viewer = Viewer::Agent { agent_id: agent.agent_id.clone(), archetype: agent.archetype, groups };
        Ok(Author { by: Party::Agent(agent.agent_id), viewer, through: Some(operator.clone()) })
    }

    /// The author of a chat message, under the same rules.
    pub(crate) fn speaker(&self, r: &mut Tx, operator: &Party, tool: &str) -> Result<Speaker, Refusal> {
        let author = self.author(r, operator, tool)?;
        Ok(Speaker { party: author.by, via: author.through })
    }
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
