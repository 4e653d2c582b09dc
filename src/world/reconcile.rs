//! Makes a world's records agree with `world-config.yaml`, at boot and at every reload.

use std::collections::BTreeMap;
use std::sync::Arc;

use ghost_config::plan::Plan;
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
use ghost_operations::{Fitness, OperationContext};
use ghost_store::Tx;
use ghost_tools::heartbeats::wanted;
use serde::{Deserialize, Serialize};
use serde_json::json;

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

/// Whether an agent can run under a plan, in the form that the rules need.
pub(crate) fn fitness(plan: &Arc<Plan>) -> Fitness {
    let plan = Arc::clone(plan);
    Arc::new(move |agent| plan.may_run(agent))
}

/// Logs which rule decides what each agent may use (CONF-02).
pub(crate) fn log_access(plan: &Plan) {
    for agent in &plan.agents {
        tracing::info!(agent_id = %agent.agent_id, access = agent.access.mode().as_str(), "tool access");
    }
}

/// Adds the heartbeats of agents that were created at run time.
fn of_dynamic_agents(heartbeats: &mut BTreeMap<AgentId, schedules::Wanted>, agents: Vec<Agent>, plan: &Plan) {
    for agent in agents.into_iter().filter(|agent| agent.kind == AgentKind::Dynamic) {
        if let Some(heartbeat) = plan.heartbeat(&agent.agent_id, &agent.archetype) {
            heartbeats.insert(agent.agent_id, wanted(heartbeat));
        }
    }
}

/// Makes the records agree with `plan`. An agent that an operator stopped stays stopped. An agent
/// that the file no longer names is stopped and kept, and starts again when the file names it
/// again. An agent that cannot run under the plan is failed.
pub(crate) fn records(
    w: &mut Tx,
    ctx: &OperationContext,
    by: &Party,
    plan: &Plan,
    stage: Stage,
) -> Result<Reconciled, Refusal> {
    let mut done = Reconciled::default();
    for named in &plan.agents {
        let living = w.agent_get(&named.agent_id)?.filter(|agent| !agent.is_deleted());
        match living {
            None => {
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
                    chain: Chain::root(ctx),
                };
                agents::create(w, ctx, by, new)?;
                done.created.push(named.agent_id.clone());
            }
            Some(_) => {
                let changed =
                    agents::update(w, ctx, &named.agent_id, &named.archetype, &named.name, named.team.as_deref())?;
                if changed {
                    done.updated.push(named.agent_id.clone());
                }
                if agents::named_again(w, ctx, by, &named.agent_id, named.autostart)? {
                    done.started.push(named.agent_id.clone());
                }
            }
        }
    }
    for agent in w.agent_list(false)? {
        let named = plan.agent(&agent.agent_id).is_some();
        if agent.kind == AgentKind::Persistent && !named && agent.desired == Desired::Running {
            agents::drop_unnamed(w, ctx, by, &agent.agent_id)?;
            done.stopped.push(agent.agent_id);
        }
    }
    apply_fitness(w, ctx, by, plan, stage)?;
    budgets::follow_file(w, ctx, by, &plan.budgets)?;
    turns::follow_root_default(w, ctx)?;
    // For agents in the file, the file sets the daily budget. Other agents keep the budget of their
    // archetype, even if the archetype no longer exists.
    let daily = |agent: Agent| match agent.kind {
        // Removes the budget that an archetype gave the agent before the file named it.
        AgentKind::Persistent => Some((agent.agent_id, None)),
        AgentKind::Droid => None,
        AgentKind::Dynamic => {
            plan.archetypes.get(&agent.archetype).map(|archetype| (agent.agent_id, archetype.config.daily_money))
        }
    };
    let daily: Vec<(AgentId, Option<Money>)> = w.agent_list(false)?.into_iter().filter_map(daily).collect();
    budgets::of_archetypes(w, ctx, by, &daily)?;
    done.knowledge = knowledge::seed(w, ctx, &plan.knowledge)?;
    done.refused = declared::follow(w, ctx, &plan.declared)?.refused;
    for line in &done.refused {
        tracing::warn!("{line}");
    }
    let mut heartbeats: BTreeMap<_, _> =
        plan.heartbeats.iter().map(|(id, heartbeat)| (id.clone(), wanted(heartbeat))).collect();
    if !plan.archetype_heartbeats.is_empty() {
        of_dynamic_agents(&mut heartbeats, w.agent_list(false)?, plan);
    }
    schedules::heartbeats(w, ctx, &heartbeats)?;
    for warning in &plan.warnings {
        let event = NewEvent::new(EventKind::WorldWarning, json!({ "warning": warning.bare().to_string() }));
        ctx.emit(w, event)?;
    }
    Ok(done)
}

/// Fails each agent that should run but cannot under the plan, before it takes more mail, and records the reason
/// (WORLD-07). Repairs agents that can run again. During a reload, an agent in a turn is left to its supervisor,
/// which lets the turn finish within the grace period.
pub(crate) fn apply_fitness(
    w: &mut Tx,
    ctx: &OperationContext,
    by: &Party,
    plan: &Plan,
    stage: Stage,
) -> Result<(), Refusal> {
    for agent in w.agent_list(false)? {
        if agent.desired != Desired::Running {
            continue;
        }
        match plan.may_run(&agent) {
            Ok(()) if agent.cannot_run => drop(agents::repaired(w, ctx, by, &agent.agent_id)?),
            Ok(()) => {}
            Err(_) if stage == Stage::Reload && w.turn_open_of(&agent.agent_id)?.is_some() => {
                w.signal(Signal::Reconcile(agent.agent_id));
            }
            Err(refusal) => agents::cannot_run(w, ctx, &agent.agent_id, &refusal)?,
        }
    }
    Ok(())
}
