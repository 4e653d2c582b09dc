//! The tools that an agent has now, for every transport.

use std::sync::Arc;

use ghost_domain::transcript::ToolSpec;
use ghost_domain::{AgentId, Refusal};
use ghost_operations::mail::agent_for_operator;
use ghost_tools::Registry;
use ghost_world::World;

/// All tools of an agent, whether its requests carry them or not.
pub(crate) async fn listed(world: &World, agent_id: &AgentId) -> Result<Arc<[ToolSpec]>, Refusal> {
    Ok(registry(world, agent_id).await?.specs())
}

pub(crate) async fn registry(world: &World, agent_id: &AgentId) -> Result<Registry, Refusal> {
    let agent_id = agent_id.clone();
    let agent = world.read(move |r| agent_for_operator(r, &agent_id)).await?;
    Ok(world.engine().spec_and_tools(&agent).await?.1)
}

/// The tools as text, one line `- name: description` each.
pub(crate) fn brief(tools: &[ToolSpec]) -> String {
    tools.iter().map(|tool| format!("- {}: {}\n", tool.name, tool.description)).collect()
}
