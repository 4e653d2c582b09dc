//! Makes a world's records agree with `world-config.yaml`, at boot and at every reload.

use std::sync::Arc;

use ghost_config::plan::{AgentPlan, Plan};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::ports::Signal;
use ghost_domain::{Agent, AgentId, AgentKind, Desired, Money, Party, Refusal};
use ghost_operations::agents::{self, NewAgent};
use ghost_operations::budgets;
use ghost_operations::declared;
use ghost_operations::knowledge;
use ghost_operations::mail::Chain;
use ghost_operations::schedules;
use ghost_operations::turns;
use ghost_operations::{OperationContext, Tx};
use ghost_tools::builtins::wanted_heartbeat;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::directory::Directory;

/// The result of a reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciled {
    /// Agents that were created.
    pub created: Vec<AgentId>,
    /// Agents whose record changed.
    pub updated: Vec<AgentId>,
    /// Agents that the file names again and that start again.
    #[serde(default)]
    pub started: Vec<AgentId>,
    /// Agents that the file no longer names. They are stopped and kept.
    pub stopped: Vec<AgentId>,
    /// Ids of new knowledge entries.
    pub knowledge: Vec<String>,
    /// Chat channels and cron jobs of the file that could not be created or changed, with the reason.
    #[serde(default)]
    pub refused: Vec<String>,
    /// The changes as text for people.
    pub plan: String,
}

/// When the reconciliation runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before anything runs.
    Boot,
    /// While agents work.
    Reload,
}

/// Gives the world rules and the directory what a plan says for them.
pub(crate) fn apply_rules(ctx: &OperationContext, directory: &Directory, plan: &Arc<Plan>) {
    ctx.set_limits(plan.limits.clone());
    directory.set_awake_max(plan.limits.awake_max);
    ctx.set_chat_wake(plan.chat_wake);
    ctx.set_webhooks(plan.webhook_agents());
    let plan = Arc::clone(plan);
    ctx.set_fitness(Arc::new(move |agent| plan.may_run(agent)));
}

/// Logs which rule decides what each agent may use.
pub(crate) fn log_access(plan: &Plan) {
    for agent in &plan.agents {
        tracing::info!(agent_id = %agent.agent_id, access = agent.access.mode().as_str(), "tool access");
    }
}

/// Records that one transaction of a reload looks at. It is some milliseconds of the writer's time.
const SLICE: usize = 500;

/// Where a reconciliation goes on.
enum Place {
    /// The agents that the file names, from this one on.
    Named(usize),
    /// Limits of the file that are not those of one agent.
    Limits,
    /// All agents after this id.
    Agents(String),
    /// What the file says beside its agents.
    Rest,
}

/// A reconciliation. It makes the records agree with a plan, slice by slice, so that a reload of a world with many agents
/// stops none of them. A world of some hundred agents is one slice. Each slice is complete in itself: after a crash the
/// next boot reconciles again from the start, and after a refusal the records follow the plan before.
///
/// An agent that an operator stopped stays stopped. An agent that the file no longer names is stopped and kept, and starts
/// again when the file names it again. An agent that cannot run under the plan is failed.
pub(crate) struct Reconciling {
    plan: Arc<Plan>,
    by: Party,
    stage: Stage,
    place: Place,
    pub(crate) done: Reconciled,
}

impl Reconciling {
    pub(crate) fn new(plan: Arc<Plan>, by: Party, stage: Stage) -> Self {
        Self { plan, by, stage, place: Place::Named(0), done: Reconciled::default() }
    }

    /// Reconciles what one transaction takes. Returns whether something is left.
    pub(crate) fn slice(&mut self, w: &mut Tx) -> Result<bool, Refusal> {
        let (plan, mut room) = (Arc::clone(&self.plan), SLICE);
        while room > 0 {
            self.place = match &self.place {
                Place::Named(from) => {
                    let next = (from + room).min(plan.agents.len());
                    room -= next - from;
                    plan.agents.iter().take(next).skip(*from).try_for_each(|named| self.named(w, named))?;
                    if next < plan.agents.len() { Place::Named(next) } else { Place::Limits }
                }
                Place::Limits => {
                    budgets::follow_file(w, &self.by, &plan.budgets)?;
                    turns::follow_root_default(w)?;
                    Place::Agents(String::new())
                }
                Place::Agents(after) => {
                    let agents = w.agent_page(after, u32::try_from(room).unwrap_or(u32::MAX))?;
                    let last = agents.last().filter(|_| agents.len() == room).map(|agent| agent.agent_id.to_string());
                    room -= agents.len();
                    self.agents(w, agents)?;
                    last.map_or(Place::Rest, Place::Agents)
                }
                Place::Rest => {
                    self.rest(w)?;
                    return Ok(false);
                }
            };
        }
        Ok(true)
    }

    /// Creates or changes an agent that the file names.
    fn named(&mut self, w: &mut Tx, named: &AgentPlan) -> Result<(), Refusal> {
        if w.agent_get(&named.agent_id)?.is_none_or(|agent| agent.is_deleted()) {
            let new = NewAgent {
                agent_id: named.agent_id.clone(),
                archetype: named.archetype.clone(),
                name: named.name.clone(),
                team: named.team.clone(),
                kind: AgentKind::Persistent,
                desired: if named.autostart { Desired::Running } else { Desired::Stopped },
                overrides: serde_json::Value::Null,
                daily_money: None,
                heartbeat: None,
                owner: None,
                goal: None,
                chain: Chain::root(w.ctx),
            };
            agents::create(w, &self.by, new)?;
            self.done.created.push(named.agent_id.clone());
            return Ok(());
        }
        let team = named.team.as_deref();
        if agents::update(w, &named.agent_id, &named.archetype, &named.name, team)? {
            self.done.updated.push(named.agent_id.clone());
        }
        if agents::named_again(w, &self.by, &named.agent_id, named.autostart)? {
            self.done.started.push(named.agent_id.clone());
        }
        Ok(())
    }

    /// Applies to agents what the plan says of each: whether it is still named and can run, its daily budget and its
    /// heartbeat.
    fn agents(&mut self, w: &mut Tx, mut agents: Vec<Agent>) -> Result<(), Refusal> {
        let plan = Arc::clone(&self.plan);
        for agent in &mut agents {
            let named = plan.agent(&agent.agent_id).is_some();
            if agent.kind == AgentKind::Persistent && !named && agent.desired == Desired::Running {
                agents::drop_unnamed(w, &self.by, &agent.agent_id)?;
                agent.desired = Desired::Stopped;
                self.done.stopped.push(agent.agent_id.clone());
            }
            apply_fitness(w, &self.by, &plan, self.stage, agent)?;
        }
        // For agents in the file, the file sets the daily budget. Other agents keep the budget of their
        // archetype, even if the archetype no longer exists.
        let daily = |agent: &Agent| match agent.kind {
            // Removes the budget that an archetype gave the agent before the file named it.
            AgentKind::Persistent => Some((agent.agent_id.clone(), None)),
            AgentKind::Droid => None,
            AgentKind::Dynamic => {
                let archetype = plan.archetypes.get(&agent.archetype)?;
                Some((agent.agent_id.clone(), archetype.config.daily_money))
            }
        };
        let daily: Vec<(AgentId, Option<Money>)> = agents.iter().filter_map(daily).collect();
        budgets::of_archetypes(w, &self.by, &daily)?;
        for agent in &agents {
            let heartbeat = match agent.kind {
                // An agent that was created at run time has that of its archetype.
                AgentKind::Dynamic => plan.heartbeat(&agent.agent_id, &agent.archetype),
                _ => plan.heartbeats.get(&agent.agent_id),
            };
            schedules::follow_heartbeat(w, &agent.agent_id, heartbeat.map(wanted_heartbeat).as_ref())?;
        }
        Ok(())
    }

    /// Applies what the file says beside its agents.
    fn rest(&mut self, w: &mut Tx) -> Result<(), Refusal> {
        self.done.knowledge = knowledge::seed(w, &self.plan.knowledge)?;
        self.done.refused = declared::follow(w, &self.plan.declared)?.refused;
        for line in &self.done.refused {
            tracing::warn!("{line}");
        }
        for warning in &self.plan.warnings {
            let event = NewEvent::new(EventKind::WorldWarning, json!({ "warning": warning.bare().to_string() }));
            w.emit(event)?;
        }
        Ok(())
    }
}

/// Fails an agent that should run but cannot under the plan, before it takes more mail, and records the reason.
/// Repairs one that can run again. During a reload, an agent in a turn is left to its supervisor,
/// which lets the turn finish within the grace period.
pub(crate) fn apply_fitness(w: &mut Tx, by: &Party, plan: &Plan, stage: Stage, agent: &Agent) -> Result<(), Refusal> {
    if agent.desired != Desired::Running {
        return Ok(());
    }
    match plan.may_run(agent) {
        Ok(()) if agent.cannot_run => agents::repaired(w, by, &agent.agent_id).map(drop),
        Ok(()) => Ok(()),
        Err(_) if stage == Stage::Reload && w.turn_open_of(&agent.agent_id)?.is_some() => {
            w.signal(Signal::Reconcile(agent.agent_id.clone()));
            Ok(())
        }
        Err(refusal) => agents::cannot_run(w, &agent.agent_id, &refusal),
    }
}
