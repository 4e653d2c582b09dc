//! What an agent goes to work with: its spec, its tools and the stable parts of its prompt. The same from turn to turn while
//! nothing that it is made of changes, so it is kept.
//!
//! Must never: outlive a change of the plan, the agent's record, its skills or the turn's channel.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::{Agent, AgentId, ChannelContext, HeldSkill, Refusal};
use ghost_tools::Registry;

use crate::prompt::{self, Part};

/// Kits that are kept: some kilobytes each. A world with more agents at work makes some of them anew.
const KITS_MAX: usize = 256;

/// See the module.
pub struct AgentProfile {
    /// What it was made by.
    pub plan: Arc<Plan>,
    agent: Agent,
    channel: Option<ChannelContext>,
    held: Vec<HeldSkill>,
    /// What the agent is.
    pub spec: Arc<AgentSpec>,
    /// What it may use.
    pub registry: Registry,
    /// The system part of its prompts.
    pub system: Arc<Part>,
    /// The briefing.
    pub briefing: Arc<Part>,
}

impl AgentProfile {
    fn fits(&self, plan: &Arc<Plan>, agent: &Agent, channel: Option<ChannelContext>, held: &[HeldSkill]) -> bool {
        // What a record says of the agent's past is in no prompt.
        let past = |agent: &Agent| (agent.status, agent.status_reason.clone(), agent.restarts);
        let same = |kept: &Agent| {
            let (status, status_reason, restarts) = past(agent);
            let (started_at, updated_at, last_active_at) = (agent.started_at, agent.updated_at, agent.last_active_at);
            Agent { status, status_reason, restarts, started_at, updated_at, last_active_at, ..kept.clone() } == *agent
        };
        Arc::ptr_eq(&self.plan, plan) && self.channel == channel && self.held == held && same(&self.agent)
    }
}

/// The kits of the agents that were at work last.
#[derive(Default)]
pub struct AgentProfiles {
    kept: Mutex<BTreeMap<AgentId, Arc<AgentProfile>>>,
}

impl AgentProfiles {
    /// The agent's kit under `plan` for a turn with this channel context and these skills. `outfit` says what the agent is
    /// and may use, if that has to be found out.
    ///
    /// # Errors
    /// Those of `outfit`.
    pub fn of(
        &self,
        plan: Arc<Plan>,
        agent: &Agent,
        channel: Option<ChannelContext>,
        held: &[HeldSkill],
        outfit: impl FnOnce() -> Result<(AgentSpec, Registry), Refusal>,
    ) -> Result<Arc<AgentProfile>, Refusal> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(profile) = kept.get(&agent.agent_id)
            && profile.fits(&plan, agent, channel, held)
        {
            return Ok(Arc::clone(profile));
        }
        let (spec, registry) = outfit()?;
        let system = Part::new(prompt::join(&prompt::system(&plan, agent, &spec)));
        let briefing = Part::new(prompt::join(&prompt::briefing(&spec, &registry.specs(), held)));
        let profile = Arc::new(AgentProfile {
            plan,
            agent: agent.clone(),
            channel,
            held: held.to_vec(),
            spec: Arc::new(spec),
            registry,
            system: Arc::new(system),
            briefing: Arc::new(briefing),
        });
        if kept.len() >= KITS_MAX && !kept.contains_key(&agent.agent_id) {
            kept.clear();
        }
        kept.insert(agent.agent_id.clone(), Arc::clone(&profile));
        Ok(profile)
    }
}
