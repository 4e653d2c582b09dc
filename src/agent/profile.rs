//! Agent profiles: an agent's spec, its tools and the stable parts of its prompt. They stay the
//! same from turn to turn until one of their sources changes, so they are cached.
//!
//! The cache must never return a profile whose plan, agent record, skills or channel context have
//! changed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::{Agent, AgentId, AgentKind, ChannelContext, HeldSkill, Refusal};
use ghost_tools::{Registry, ToolTable};
use serde_json::Value;

use crate::prompt::{self, Part, Section};

/// Maximum profiles in the cache. Each needs some kilobytes. If more agents work, the cache is
/// cleared and profiles are built again.
const PROFILES_MAX: usize = 256;

/// What profiles are built from: a plan and the tools of the world.
type Sources = (Arc<Plan>, Arc<ToolTable>);

/// The data that an agent needs to run a turn. It is built from a plan, the agent's record, its
/// skills and the turn's channel context.
pub struct AgentProfile {
    /// The plan that the profile was built from.
    pub plan: Arc<Plan>,
    agent: Agent,
    channel: Option<ChannelContext>,
    held: Vec<HeldSkill>,
    /// The agent's spec: its archetype, limits, access and model.
    pub spec: Arc<AgentSpec>,
    /// The tools that the agent may use.
    pub registry: Registry,
    /// The system part of the agent's prompts.
    pub system: Arc<Part>,
    /// The briefing part of the agent's prompts.
    pub briefing: Arc<Part>,
}

impl AgentProfile {
    fn new(
        plan: Arc<Plan>,
        agent: &Agent,
        channel: Option<ChannelContext>,
        held: &[HeldSkill],
        (spec, registry): (AgentSpec, Registry),
        parts: Parts,
    ) -> Self {
        Self {
            plan,
            agent: agent.clone(),
            channel,
            held: held.to_vec(),
            spec: Arc::new(spec),
            registry,
            system: parts.system,
            briefing: parts.briefing,
        }
    }

    fn matches(
        &self,
        (plan, tools): &Sources,
        agent: &Agent,
        channel: Option<ChannelContext>,
        held: &[HeldSkill],
    ) -> bool {
        // Status, restarts and times of the agent's record appear in no prompt, so they may differ.
        let past = |agent: &Agent| (agent.status, agent.status_reason.clone(), agent.restarts);
        let same = |kept: &Agent| {
            let (status, status_reason, restarts) = past(agent);
            let (started_at, updated_at, last_active_at) = (agent.started_at, agent.updated_at, agent.last_active_at);
            Agent { status, status_reason, restarts, started_at, updated_at, last_active_at, ..kept.clone() } == *agent
        };
        Arc::ptr_eq(&self.plan, plan)
            && Arc::ptr_eq(self.registry.table(), tools)
            && self.channel == channel
            && self.held == held
            && same(&self.agent)
    }
}

/// The stable parts of a prompt.
#[derive(Clone)]
struct Parts {
    system: Arc<Part>,
    briefing: Arc<Part>,
}

impl Parts {
    fn new(plan: &Plan, agent: &Agent, held: &[HeldSkill], spec: &AgentSpec, registry: &Registry) -> Self {
        let system = prompt::system(plan, agent, spec);
        let briefing = prompt::briefing(spec, &registry.offer().deferred, &plan.skills, held);
        let part = |sections: &[Section]| Arc::new(Part::new(prompt::join(sections)));
        Self { system: part(&system), briefing: part(&briefing) }
    }
}

/// The parts of the last droid's prompt, and what they were built from. Droids with the same terms have the same parts.
struct DroidParts {
    sources: Sources,
    terms: Value,
    parts: Parts,
}

/// A cache of agent profiles.
#[derive(Default)]
pub struct AgentProfiles {
    kept: Mutex<BTreeMap<AgentId, Arc<AgentProfile>>>,
    droid: Mutex<Option<DroidParts>>,
}

impl AgentProfiles {
    /// The agent's profile from these sources for a turn with this channel context and these skills. If
    /// the cache has none that matches, `build` supplies the spec and the tools for a new one.
    ///
    /// # Errors
    /// The errors of `build`.
    pub fn get_or_build(
        &self,
        sources: Sources,
        agent: &Agent,
        channel: Option<ChannelContext>,
        held: &[HeldSkill],
        build: impl FnOnce() -> Result<(AgentSpec, Registry), Refusal>,
    ) -> Result<Arc<AgentProfile>, Refusal> {
        if agent.kind == AgentKind::Droid {
            // Most droids have one turn, so their profiles would only drive out others.
            let (spec, registry) = build()?;
            let parts = self.droid_parts(&sources, agent, channel, held, &spec, &registry);
            return Ok(Arc::new(AgentProfile::new(sources.0, agent, channel, held, (spec, registry), parts)));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(profile) = kept.get(&agent.agent_id)
            && profile.matches(&sources, agent, channel, held)
        {
            return Ok(Arc::clone(profile));
        }
        let (spec, registry) = build()?;
        let parts = Parts::new(&sources.0, agent, held, &spec, &registry);
        let profile = Arc::new(AgentProfile::new(sources.0, agent, channel, held, (spec, registry), parts));
        if kept.len() >= PROFILES_MAX && !kept.contains_key(&agent.agent_id) {
            kept.clear();
        }
        kept.insert(agent.agent_id.clone(), Arc::clone(&profile));
        Ok(profile)
    }

    fn droid_parts(
        &self,
        sources: &Sources,
        agent: &Agent,
        channel: Option<ChannelContext>,
        held: &[HeldSkill],
        spec: &AgentSpec,
        registry: &Registry,
    ) -> Parts {
        let mut last = self.droid.lock().unwrap_or_else(PoisonError::into_inner);
        let bare = channel.is_none() && held.is_empty();
        let same = |of: &&DroidParts| {
            let (plan, tools) = &of.sources;
            bare && Arc::ptr_eq(plan, &sources.0) && Arc::ptr_eq(tools, &sources.1) && of.terms == agent.overrides
        };
        if let Some(known) = last.as_ref().filter(same) {
            return known.parts.clone();
        }
        let parts = Parts::new(&sources.0, agent, held, spec, registry);
        if bare {
            *last = Some(DroidParts { sources: sources.clone(), terms: agent.overrides.clone(), parts: parts.clone() });
        }
        parts
    }
}
