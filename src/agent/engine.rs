//! The engine: the services, the tools, the providers and some caches that all agents of a world share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::transcript::ToolSpec;
use ghost_domain::{Activity, Agent, AgentId, AgentKind, ChannelContext, HeldSkill, Refusal, Timestamp, budget};
use ghost_provider::{Entry, Outage, Providers};
use ghost_tools::{Caller, LiveTools, Offering, Registry, ToolTable, WorldServices, is_granted};
use serde_json::Value;
use tokio::sync::Notify;

use crate::budget_queue::BudgetQueue;
use crate::prompt::{self, Part, Section};

/// Tool lists whose size is cached.
const SIZES_MAX: usize = 256;
/// Maximum unknown stop reasons of models that are remembered.
const UNKNOWN_STOPS_MAX: usize = 256;
/// Maximum models that are remembered as beginning within reasoning.
const REASONERS_MAX: usize = 256;

/// A model that is down.
#[derive(Clone, Debug)]
pub struct ModelDown {
    /// The provider's name in `world-config.yaml`.
    pub provider: String,
    /// The model's name there.
    pub model: String,
    /// When the outage began, and why.
    pub outage: Outage,
}

/// Services and caches that all agents of a world share.
pub struct Engine {
    /// The world services: rules, store, workspace and plan.
    pub services: Arc<WorldServices>,
    /// The tools of the world, as they are now.
    pub tools: Arc<LiveTools>,
    /// The port to which actors report what their agents do.
    pub activity: Arc<dyn ActivityPort>,
    /// Model calls that wait for budget held by other calls.
    pub queue: Arc<BudgetQueue>,
    providers: RwLock<Arc<Providers>>,
    /// Notified when a reload has made another plan and its providers current.
    pub(crate) plan_changed: Notify,
    /// Number of times that [`Engine::forget_logs`] was called.
    logs_forgotten: AtomicU64,
    /// Sizes of the tool lists that agents share; see [`Engine::tool_bytes`].
    sizes: Mutex<Vec<(Arc<[ToolSpec]>, usize)>>,
    /// The profiles of agents, and the parts of the last droid's prompt; see [`Engine::profile`].
    profiles: Mutex<BTreeMap<AgentId, Arc<AgentProfile>>>,
    droid: Mutex<Option<DroidParts>>,
    /// Models whose text begins with unopened reasoning; see [`Engine::reasons_first`].
    reasoners: Mutex<BTreeSet<String>>,
    /// Unknown stop reasons, by model and reason, with the start of the day of the last warning.
    unknown_stops: Mutex<BTreeMap<(String, String), Timestamp>>,
}

impl Engine {
    /// Creates the engine of a world.
    pub fn new(
        services: Arc<WorldServices>,
        tools: Arc<LiveTools>,
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
            profiles: Mutex::default(),
            droid: Mutex::default(),
            reasoners: Mutex::default(),
            unknown_stops: Mutex::default(),
            plan_changed: Notify::new(),
            logs_forgotten: AtomicU64::new(0),
        }
    }

    /// The agent's profile for a turn with this channel context and these skills. It stays the same from turn to turn until
    /// one of its sources changes, so it is cached.
    ///
    /// # Errors
    /// The errors of [`Engine::spec_and_tools_for`].
    pub fn profile(
        &self,
        agent: &Agent,
        channel: Option<ChannelContext>,
        held: &[HeldSkill],
    ) -> Result<Arc<AgentProfile>, Refusal> {
        let sources = (self.services.plan(), self.tools.current());
        let is_droid = agent.kind == AgentKind::Droid;
        // Most droids have one turn, so their profiles would only drive out others.
        let mut kept = (!is_droid).then(|| self.profiles.lock().unwrap_or_else(PoisonError::into_inner));
        let known = kept.as_ref().and_then(|kept| kept.get(&agent.agent_id));
        if let Some(profile) = known.filter(|profile| profile.matches(&sources, agent, channel, held)) {
            return Ok(Arc::clone(profile));
        }
        let (spec, registry) = self.spec_and_tools_for(agent, channel, held)?;
        let parts = match is_droid {
            true => self.droid_parts(&sources, agent, channel, held, &spec, &registry),
            false => Parts::new(&sources.0, agent, held, &spec, &registry),
        };
        let (agent, held, spec) = (agent.clone(), held.to_vec(), Arc::new(spec));
        let profile = Arc::new(AgentProfile { plan: sources.0, agent, channel, held, spec, registry, parts });
        if let Some(kept) = &mut kept {
            let agent_id = &profile.agent.agent_id;
            if kept.len() >= PROFILES_MAX && !kept.contains_key(agent_id) {
                kept.clear();
            }
            kept.insert(agent_id.clone(), Arc::clone(&profile));
        }
        Ok(profile)
    }

    /// Droids with the same terms have the same parts.
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
        let same = |of: &&DroidParts| bare && is_same(&of.sources, sources) && of.terms == agent.overrides;
        if let Some(known) = last.as_ref().filter(same) {
            return known.parts.clone();
        }
        let parts = Parts::new(&sources.0, agent, held, spec, registry);
        if bare {
            *last = Some(DroidParts { sources: sources.clone(), terms: agent.overrides.clone(), parts: parts.clone() });
        }
        parts
    }

    /// Makes all agents read the logs of their sessions anew, because a session was reset.
    pub fn forget_logs(&self) {
        self.logs_forgotten.fetch_add(1, Ordering::AcqRel);
    }

    /// Changes when logs in memory must be read anew.
    pub(crate) fn log_version(&self) -> u64 {
        self.logs_forgotten.load(Ordering::Acquire)
    }

    /// Bytes of a list of tools as a request carries it. Agents with the same access share one
    /// list, so the sizes are cached by list.
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

    /// Whether the model's last complete answer closed a reasoning block that it had not opened.
    /// Its provider then opens the block in a prefix, so text before the closing tag is not for
    /// people.
    pub fn reasons_first(&self, model: &str) -> bool {
        self.reasoners.lock().unwrap_or_else(PoisonError::into_inner).contains(model)
    }

    /// Remembers whether the model's last complete answer closed a reasoning block that it had not
    /// opened.
    pub fn set_reasons_first(&self, model: &str, first: bool) {
        let mut reasoners = self.reasoners.lock().unwrap_or_else(PoisonError::into_inner);
        if !first {
            reasoners.remove(model);
        } else if reasoners.len() < REASONERS_MAX {
            reasoners.insert(model.to_owned());
        }
    }

    /// Whether an unknown stop reason of a model is to be warned about: once a day for each.
    pub fn warns_of_stop(&self, model: &str, reason: &str) -> bool {
        let today = budget::this_day(self.services.ctx.now());
        let mut known = self.unknown_stops.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (model.to_owned(), reason.to_owned());
        if known.len() >= UNKNOWN_STOPS_MAX && !known.contains_key(&key) {
            known.clear();
        }
        known.insert(key, today) != Some(today)
    }

    /// The current providers.
    pub fn providers(&self) -> Arc<Providers> {
        // The lock is held only to copy a pointer, so the value is valid even if the lock is
        // poisoned.
        Arc::clone(&self.providers.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The models that are down, by provider and name.
    pub fn models_down(&self) -> Vec<ModelDown> {
        let providers = self.providers();
        let models_of = |entry: &Entry| {
            let outages = entry.breaker.outages().into_iter();
            let down = |(model, outage)| ModelDown { provider: entry.name.clone(), model, outage };
            outages.map(down).collect::<Vec<_>>()
        };
        providers.iter().flat_map(|entry| models_of(entry)).collect()
    }

    /// Makes other providers current, as a reload does. Running calls finish with the old
    /// providers. To keep counting those calls, the new providers take over the old pools first
    /// (see [`Providers::keep_pools`]).
    pub fn set_providers(&self, providers: Arc<Providers>) {
        providers.size_pools();
        *self.providers.write().unwrap_or_else(PoisonError::into_inner) = providers;
    }

    /// Notifies waiting turns that another plan and its providers are current. Turns that wait for
    /// a model then check again.
    pub fn notify_plan_changed(&self) {
        self.plan_changed.notify_waiters();
    }

    /// The agent's spec and tools under the current plan, for a turn that does not come
    /// from an outside conversation.
    pub async fn spec_and_tools(&self, agent: &Agent) -> Result<(AgentSpec, Registry), Refusal> {
        let held = self.skills_held(&agent.agent_id).await?;
        self.spec_and_tools_for(agent, None, &held)
    }

    /// The skills that the agent holds.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn skills_held(&self, agent_id: &AgentId) -> Result<Vec<HeldSkill>, Refusal> {
        let id = agent_id.clone();
        self.services.store.read(move |r| Ok::<_, Refusal>(r.skills_held(&id)?)).await
    }

    /// The agent's spec and tools for a turn with this channel context and these skills. The tools of the outside
    /// channel exist only in such turns: the tools that the context brings, and the tools that the
    /// agent is granted in addition.
    pub fn spec_and_tools_for(
        &self,
        agent: &Agent,
        channel: Option<ChannelContext>,
        held: &[HeldSkill],
    ) -> Result<(AgentSpec, Registry), Refusal> {
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
            context_bytes: spec.limits.context_bytes,
            channel,
        };
        let outside = channel.is_some();
        let offering = Offering { bytes: self.services.ctx.limits().tools_bytes as usize, receivers: plan.receivers() };
        let is_granted = |tool: &ghost_tools::Tool| is_granted(&plan, &spec, held, outside, tool);
        let registry = self.tools.current().registry(caller, offering, &is_granted).of_plan(Arc::clone(&plan));
        Ok((spec, registry))
    }
}

/// Implemented by the world's directory of agents.
pub trait ActivityPort: Send + Sync + 'static {
    /// Publishes the agent's current activity.
    fn show(&self, agent_id: &AgentId, activity: Activity);

    /// Gives the agent's place among the awake ones (`limits.awake_max`) to others while it waits for something that
    /// may take long, such as a model that is down. With `waits` false it takes a place again, even if there is none.
    fn set_waits(&self, agent_id: &AgentId, waits: bool);

    /// Whether new turns may begin. False while the world is paused or shutting down, and for an
    /// agent that is stopping.
    fn may_begin(&self, agent_id: &AgentId) -> bool;

    /// Marks the beginning of an inbox read and returns the agent's current wake generation. Every
    /// wake-up raises the generation. After this call, the next wake-up is delivered to the actor
    /// again.
    fn begin_read(&self, agent_id: &AgentId) -> u64;

    /// Shows the agent as idle, unless a wake-up has arrived since the inbox read that returned
    /// generation `seen`. If this returns false, the actor must read the inbox again.
    fn try_rest(&self, agent_id: &AgentId, seen: u64) -> bool;

    /// Puts the agent to sleep, unless a wake-up has arrived since the inbox read that returned
    /// generation `seen`. If this returns true, the actor must exit at once: the next message
    /// starts a new actor.
    fn try_sleep(&self, agent_id: &AgentId, seen: u64) -> bool;
}

/// Maximum profiles in the cache. Each needs some kilobytes. If more agents work, the cache is
/// cleared and profiles are built again.
const PROFILES_MAX: usize = 256;

/// What profiles are built from: a plan and the tools of the world.
type Sources = (Arc<Plan>, Arc<ToolTable>);

fn is_same(some: &Sources, others: &Sources) -> bool {
    Arc::ptr_eq(&some.0, &others.0) && Arc::ptr_eq(&some.1, &others.1)
}

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
    /// The stable parts of the agent's prompts.
    pub parts: Parts,
}

impl AgentProfile {
    fn matches(
        &self,
        (plan, tools): &Sources,
        agent: &Agent,
        channel: Option<ChannelContext>,
        held: &[HeldSkill],
    ) -> bool {
        // Status, restarts and times of the agent's record appear in no prompt, so they may differ.
        let same = |kept: &Agent| {
            let (status, status_reason, restarts) = (agent.status, agent.status_reason.clone(), agent.restarts);
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
pub struct Parts {
    pub system: Arc<Part>,
    pub briefing: Arc<Part>,
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
