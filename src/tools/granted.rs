//! Decides whether an agent has a tool: the one place where the rules of the plan and the origin of a tool meet, for every
//! source.

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::HeldSkill;

use crate::origin::Origin;
use crate::tool::Tool;

/// Whether an agent with this spec and these skills has `tool` in its registry. `outside` says whether the turn came from a
/// conversation outside.
#[must_use]
pub fn is_granted(plan: &Plan, spec: &AgentSpec, held: &[HeldSkill], outside: bool, tool: &Tool) -> bool {
    match &tool.origin {
        Origin::Builtin => plan.grants(&spec.access, &tool.spec.name, outside),
        Origin::Toolbox(toolbox) => {
            let config = &spec.archetype.config;
            plan.grants_of_toolbox((config, &spec.access), held, toolbox, &tool.spec.name)
        }
    }
}
