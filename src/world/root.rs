//! The root of the supervision tree: it brings a dead supervisor back, with what that one had in hand.
//!
//! Must never: take the daemon down, or end with a supervisor.

use std::collections::BTreeMap;
use std::sync::Arc;

use ghost_config::plan::TeamPlan;
use ghost_domain::AgentStatus;
use ghost_domain::restart::Intensity;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use crate::supervisor::{Start, Supervisor, TeamMsg, Tree};

/// The root: it brings supervisors back.
pub(crate) struct Root;

/// What the root is told.
#[derive(Debug)]
pub(crate) enum RootMsg {
    /// Supervise a team; the answer says that it is there.
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
                self.tree.switchboard.connect(name, supervisor);
            }
            Err(error) => tracing::error!(%error, "a supervisor could not start"),
        }
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
        // Whoever waited may have given up waiting.
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
            "a supervisor died; making another"
        );
        let name: Option<Arc<str>> = team.as_ref().map(|team| Arc::from(team.name.as_str()));
        // The plan in force may have changed the team since it was adopted.
        let plan = state.tree.engine.office.plan();
        let (team, intensity) = match &team {
            None => (None, plan.root_intensity),
            Some(old) => match plan.teams.iter().find(|new| new.name == old.name) {
                Some(new) => (Some(new.clone()), new.intensity),
                None => (team, intensity),
            },
        };
        state.adopt(&myself, team, intensity).await;
        let Some(supervisor) = state.tree.switchboard.supervisor(name.as_ref()) else { return Ok(()) };
        // Its children died with it. Their journals and inboxes did not.
        for card in state.tree.directory.cards() {
            if card.team == name {
                state.tree.directory.released(&card.agent_id, None);
                match card.status {
                    // Timers and orders that the dead supervisor held are given anew.
                    AgentStatus::Restarting => drop(supervisor.cast(TeamMsg::Restart(card.agent_id))),
                    AgentStatus::Stopping => drop(supervisor.cast(TeamMsg::Reconcile(card.agent_id))),
                    _ => state.tree.switchboard.wake(&card.agent_id),
                }
            }
        }
        Ok(())
    }
}
