//! What all agents of a world work with.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ghost_config::spec::AgentSpec;
use ghost_domain::transcript::ToolSpec;
use ghost_domain::{Agent, ChannelContext, HeldSkill, Refusal};
use ghost_provider::{Entry, Outage, Providers};
use ghost_tools::{Caller, Registry, ToolTable, WorldServices};
use tokio::sync::Notify;

use crate::activity_port::ActivityPort;
use crate::budget_queue::BudgetQueue;
use crate::profile::{AgentProfile, AgentProfiles};

/// Lists of tools whose size is kept.
const SIZES_MAX: usize = 256;
/// Models that are known to reason first.
const REASONERS_MAX: usize = 256;

/// A model that does not answer.
#[derive(Clone, Debug)]
pub struct ModelDown {
    /// The provider's name in the world file.
    pub provider: String,
    /// The model's name there.
    pub model: String,
    /// Since when, and why.
    pub outage: Outage,
}

/// The engine of a world.
pub struct Engine {
    /// Rules, store, workspace, plan.
    pub services: Arc<WorldServices>,
    /// Every tool that the code has.
    pub tools: Arc<ToolTable>,
    /// Where actors show what they do.
    pub activity: Arc<dyn ActivityPort>,
    /// Who waits for what others hold of a budget.
    pub queue: Arc<BudgetQueue>,
    providers: RwLock<Arc<Providers>>,
    /// Rings when another plan and its providers are in force.
    pub(crate) in_force: Notify,
    /// Sizes of the lists of tools that agents share; see [`Engine::tool_bytes`].
    sizes: Mutex<Vec<(Arc<[ToolSpec]>, usize)>>,
    profiles: AgentProfiles,
    /// Models whose words begin within reasoning; see [`Engine::reasons_first`].
    reasoners: Mutex<BTreeSet<String>>,
}

impl Engine {
    /// An engine.
    #[must_use]
    pub fn new(
        services: Arc<WorldServices>,
        tools: Arc<ToolTable>,
        activity: Arc<dyn ActivityPort>,
        providers: Arc<Providers>,
    ) -> Self {
        Self {
            services,
            tools,
            activity,
            queue: Arc::default(),
            providers: RwLock::new(providers),
            sizes: Mutex::default(),
            profiles: AgentProfiles::default(),
            reasoners: Mutex::default(),
            in_force: Notify::new(),
        }
    }

    /// What an agent goes to work with in a turn with this channel context and these skills.
    ///
    /// # Errors
    /// As [`Engine::outfit_for`].
    pub fn profile(
        &self,
        agent: &Agent,
        channel: Option<ChannelContext>,
        held: &[HeldSkill],
    ) -> Result<Arc<AgentProfile>, Refusal> {
        self.profiles.of(self.services.plan(), agent, channel, held, || self.outfit_for(agent, channel))
    }

    /// Bytes of a list of tools as a request carries it. Agents with the same access share one list, so there are few.
    #[must_use]
    pub fn tool_bytes(&self, tools: &Arc<[ToolSpec]>) -> usize {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = sizes.iter().find(|(list, _)| Arc::ptr_eq(list, tools)) {
            return *bytes;
        }
        let bytes = ghost_provider::tool_bytes(tools);
        if sizes.len() >= SIZES_MAX {
            sizes.clear();
        }
        sizes.push((Arc::clone(tools), bytes));
        bytes
    }

    /// Whether a model has closed reasoning in its words that it had not opened there: its provider opens it in a prefix,
    /// so whatever comes before the close is not for people.
    #[must_use]
    pub fn reasons_first(&self, model: &str) -> bool {
        self.reasoners.lock().unwrap_or_else(PoisonError::into_inner).contains(model)
    }

    /// Remembers how a model has answered last.
    pub fn set_reasons_first(&self, model: &str, first: bool) {
        let mut reasoners = self.reasoners.lock().unwrap_or_else(PoisonError::into_inner);
        if !first {
            reasoners.remove(model);
        } else if reasoners.len() < REASONERS_MAX {
            reasoners.insert(model.to_owned());
        }
    }

    /// The providers in force.
    #[must_use]
    pub fn providers(&self) -> Arc<Providers> {
        // The lock is held for a pointer copy only, so a poisoned one still holds a whole value.
        Arc::clone(&self.providers.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The models that do not answer, by provider and name.
    #[must_use]
    pub fn models_down(&self) -> Vec<ModelDown> {
        let providers = self.providers();
        let of = |entry: &Entry| {
            let outages = entry.breaker.outages().into_iter();
            let down = |(model, outage)| ModelDown { provider: entry.name.clone(), model, outage };
            outages.map(down).collect::<Vec<_>>()
        };
        providers.iter().flat_map(|entry| of(entry)).collect()
    }

    /// Puts other providers in force, as a reload does. Calls under way end with the old ones; who is to count them takes
    /// their pools over first (see [`Providers::keep_pools`]).
    pub fn set_providers(&self, providers: Arc<Providers>) {
        providers.size_pools();
        *self.providers.write().unwrap_or_else(PoisonError::into_inner) = providers;
    }

    /// Says that another plan and its providers are in force. Whoever waits for a model of the one before looks again.
    pub fn say_in_force(&self) {
        self.in_force.notify_waiters();
    }

    /// What an agent is and may use, by the plan in force (ACC-05), in a turn that does not come from outside.
    pub fn outfit(&self, agent: &Agent) -> Result<(AgentSpec, Registry), Refusal> {
        self.outfit_for(agent, None)
    }

    /// The same for a turn with this channel context. The tools of the outside channel exist in such turns alone: those
    /// that the context brings, and those that the agent is granted besides (CONF-03).
    pub fn outfit_for(&self, agent: &Agent, channel: Option<ChannelContext>) -> Result<(AgentSpec, Registry), Refusal> {
        let plan = self.services.plan();
        let spec = plan.spec_for(agent)?;
        let caller = Caller {
            agent_id: agent.agent_id.clone(),
            write_acl: spec.write_acl.clone(),
            manages_tasks: spec.access.can_access("syscall.task.update"),
            updates_own_tasks: spec.access.may_update_own_tasks(),
            archetype: spec.archetype.name.clone(),
            groups: spec.access.groups().clone(),
            skills: spec.skills.clone(),
            channel,
        };
        let outside = channel.is_some();
        let registry = self.tools.registry(caller, &|name| plan.grants(&spec.access, name, outside)).of_plan(plan);
        Ok((spec, registry))
    }
}
