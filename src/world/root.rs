//! The root of the supervision tree. It restarts a supervisor that died, and gives it its agents.
//!
//! The root must never take the daemon down or end when a supervisor dies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ghost_config::plan::TeamPlan;
use ghost_domain::restart::Intensity;
use ghost_domain::{AgentId, AgentStatus};
use ghost_store::StoreError;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use crate::supervisor::{Start, Supervisor};
use crate::team_msg::TeamMsg;
use crate::tree::Tree;

/// The root actor.
pub(crate) struct Root;

/// Messages to the root.
#[derive(Debug)]
pub(crate) enum RootMsg {
    /// Start a supervisor for a team. The channel is answered when it runs.
    Adopt(Option<TeamPlan>, Intensity, oneshot::Sender<()>),
}

/// The root's state.
pub(crate) struct RootState {
    tree: Arc<Tree>,
    teams: BTreeMap<ActorId, (Option<TeamPlan>, Intensity)>,
}

impl RootState {
    async fn adopt(&mut self, myself: &ActorRef<RootMsg>, team: Option<TeamPlan>, intensity: Intensity) {
        let start = Start { tree: Arc::clone(&self.tree), team: team.clone(), intensity };
        match Actor::spawn_linked(None, Supervisor, start, myself.get_cell()).await {
            Ok((supervisor, _)) => {
                let name = team.as_ref().map(|team| Arc::from(team.name.as_str()));
                self.teams.insert(supervisor.get_id(), (team, intensity));
                self.tree.signal_router.connect(name, supervisor);
            }
            Err(error) => tracing::error!(%error, "a supervisor could not start"),
        }
    }
}

impl RootState {
    /// The agents of the supervisor of `own`: the agents in the directory, and the agents that so
    /// far only have a record.
    async fn members_of(&self, own: Option<&Arc<str>>) -> BTreeSet<AgentId> {
        let (directory, signal_router) = (&self.tree.directory, &self.tree.signal_router);
        let cards = directory.cards().into_iter();
        let known = cards.filter(|card| signal_router.has_agents_of(own, card.team.as_ref())).map(|card| card.agent_id);
        let mut members: BTreeSet<AgentId> = known.collect();
        match self.tree.engine.services.store.read(|r| r.agent_list(false)).await {
            Ok(records) => members.extend(records.into_iter().filter_map(|agent| {
                let team = agent.team.as_deref().map(Arc::from);
                (directory.card(&agent.agent_id).is_none() && signal_router.has_agents_of(own, team.as_ref()))
                    .then_some(agent.agent_id)
            })),
            Err(error) => {
                let error: StoreError = error;
                tracing::warn!(%error, "the agents' records cannot be read; a new agent may start late");
            }
        }
        members
    }
}

impl Actor for Root {
    type Msg = RootMsg;
    type State = RootState;
    type Arguments = Arc<Tree>;

    async fn pre_start(&self, _: ActorRef<RootMsg>, tree: Arc<Tree>) -> Result<RootState, ActorProcessingErr> {
        Ok(RootState { tree, teams: BTreeMap::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<RootMsg>,
        message: RootMsg,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        let RootMsg::Adopt(team, intensity, done) = message;
        state.adopt(&myself, team, intensity).await;
        // The receiver may have stopped waiting.
        let _ = done.send(());
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<RootMsg>,
        event: SupervisionEvent,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, reason) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell, error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, reason) => (cell, reason.unwrap_or_default()),
            _ => return Ok(()),
        };
        let Some((team, intensity)) = state.teams.remove(&cell.get_id()) else { return Ok(()) };
        tracing::error!(
            team = team.as_ref().map(|team| team.name.as_str()),
            reason,
            "a supervisor died; starting another"
        );
        let name: Option<Arc<str>> = team.as_ref().map(|team| Arc::from(team.name.as_str()));
        // The plan may have changed the team since the supervisor started.
        let plan = state.tree.engine.services.plan();
        let (team, intensity) = match &team {
            None => (None, plan.root_intensity),
            Some(old) => match plan.teams.iter().find(|new| new.name == old.name) {
                Some(new) => (Some(new.clone()), new.intensity),
                None => (team, intensity),
            },
        };
        state.adopt(&myself, team, intensity).await;
        let Some(supervisor) = state.tree.signal_router.supervisor(name.as_ref()) else { return Ok(()) };
        // Its agents' actors died with it. Their journals and inboxes are in the store.
        for agent_id in state.members_of(name.as_ref()).await {
            state.tree.directory.remove_actor(&agent_id);
            let restarting =
                state.tree.directory.card(&agent_id).map(|card| card.status) == Some(AgentStatus::Restarting);
            // The dead supervisor's restart timers and unfinished orders are lost. So each agent is restarted or
            // reconciled with its record. Both also wake it.
            let order = if restarting { TeamMsg::Restart(agent_id) } else { TeamMsg::Reconcile(agent_id) };
            // If this supervisor dies too, the next one gets the same orders.
            drop(supervisor.cast(order));
        }
        Ok(())
    }
}
