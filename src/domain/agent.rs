//! The records of an agent, its states, and of the skills that it holds.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{AgentId, RootId};
use crate::macros::{record, text_enum};
use crate::party::Party;
use crate::time::Timestamp;

text_enum! {
    /// Status of an agent, as its supervisor sets it (`docs/design.md`, "Supervision and restart").
    AgentStatus, "agent status" {
        /// Supervised; it may be asleep.
        Running = "running",
        /// Crashed; it waits for the end of its back-off.
        Restarting = "restarting",
        /// It stops after its current turn.
        Stopping = "stopping",
        /// Stopped by an order. It stays stopped across restarts of the daemon.
        Stopped = "stopped",
        /// Crashed more often than its own limit or its team's allows, or the world's files do not
        /// allow it to run.
        Failed = "failed",
    }
}

text_enum! {
    /// The current activity of a running agent. Kept in memory only.
    Activity, "activity" {
        /// It has no actor. The next message wakes it.
        Asleep = "asleep",
        /// It has an actor and no turn.
        Idle = "idle",
        /// In a turn; it waits for a slot of a provider, or in a budget queue.
        Queued = "queued",
        /// In a turn; it waits for the model.
        Thinking = "thinking",
        /// In a turn; it runs tools.
        Acting = "acting",
        /// In a turn; it waits for another agent's answer.
        Asking = "asking",
    }
}

text_enum! {
    /// Origin of an agent.
    AgentKind, "agent kind" {
        /// Declared in `world-config.yaml`.
        Persistent = "persistent",
        /// Created at run time; restored from the store when the daemon starts.
        Dynamic = "dynamic",
        /// A droid: started at run time by an agent, for one piece of work.
        Droid = "droid",
    }
}

text_enum! {
    /// The last order for an agent. The supervisor works towards it, also after a restart of the
    /// daemon.
    Desired, "desired state" {
        /// The agent should run.
        Running = "running",
        /// The agent should be stopped.
        Stopped = "stopped",
    }
}

record! {
    /// The durable record of an agent.
    pub struct Agent {
        /// Id of the agent.
        pub agent_id: AgentId = agent_id.clone(),
        /// Number of agents that have had this id so far. If an agent is deleted, the next one with its
        /// id has a number one higher.
        pub incarnation: u32 = 1,
        /// Archetype of the agent.
        pub archetype: String = archetype.to_owned(),
        /// Name for people.
        pub name: String = agent_id.to_string(),
        /// Team of the agent; `None` if it has no team.
        pub team: Option<String> = None,
        /// Party that created the agent, if it is dynamic.
        pub owner: Option<String> = None,
        /// Origin of the agent.
        pub kind: AgentKind,
        /// The last order for the agent.
        pub desired: Desired = Desired::Running,
        /// Status of the agent.
        pub status: AgentStatus = AgentStatus::Running,
        /// Why the agent is stopped or failed.
        pub status_reason: Option<String> = None,
        /// Total number of restarts after a crash.
        pub restarts: u32 = 0,
        /// Overrides that narrow the archetype, in the form that `ghost-config` reads.
        pub overrides: Value = Value::Object(serde_json::Map::new()),
        /// The node that owns the agent.
        pub node: String = "local".to_owned(),
        /// Fencing epoch of that ownership. Writes with an older epoch are refused.
        pub epoch: i64 = 1,
        /// When the agent was created.
        pub created_at: Timestamp,
        /// When the agent was last started, or restarted after a crash. `None` if never, or if an older
        /// version did not record it.
        pub started_at: Option<Timestamp> = None,
        /// When this record last changed.
        pub updated_at: Timestamp = created_at,
        /// When the agent's last turn ended, to the minute.
        pub last_active_at: Option<Timestamp> = None,
        /// When the agent was deleted; the record is then a tombstone.
        pub deleted_at: Option<Timestamp> = None,
        /// The spending of this id since this time is charged to its present creator; `None` means all
        /// spending. Earlier spending belongs to an earlier agent with this id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub paid_since: Option<Timestamp> = None,
        /// The spending of this id since this time is charged to its present team; `None` means all
        /// spending since `paid_since`. See [`Agent::team_pays_since`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub team_since: Option<Timestamp> = None,
        /// Whether the agent was stopped because `world-config.yaml` no longer declares it, without a
        /// later order.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub dropped: bool = false,
        /// Whether the agent failed because the world's files do not allow it to run, without a later
        /// order. It runs again when the files are corrected.
        #[serde(default, alias = "unfit", skip_serializing_if = "std::ops::Not::not")]
        pub cannot_run: bool = false,
        /// If an agent created this agent: the root of the turn that created it. This agent can end
        /// with that root; see `let_go`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub helps: Option<RootId> = None,
        /// Whether an agent stopped this agent, without a later order. Then this agent is deleted after
        /// the root in `helps` ends.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub let_go: bool = false,
        /// Seconds that its turn may still run, if the order to stop it said so; else the world's setting.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub stop_grace_seconds: Option<u32> = None,
    }

    /// A new agent that runs: the first of its id, named like it, without a team, an owner and overrides.
    pub fn new(agent_id: AgentId, archetype: &str, kind: AgentKind, created_at: Timestamp)
}

impl Agent {
    /// The agent that created this one, if an agent did.
    pub fn creator(&self) -> Option<AgentId> {
        match self.owner.as_deref()?.parse() {
            Ok(Party::Agent(agent_id)) => Some(agent_id),
            _ => None,
        }
    }

    /// The start of the spending of this id that is charged to its creator and to the creators
    /// above that one.
    pub fn creator_pays_since(&self) -> Timestamp {
        self.paid_since.unwrap_or(Timestamp(0))
    }

    /// The start of the spending of this id that is charged to its present team.
    pub fn team_pays_since(&self) -> Timestamp {
        self.team_since.unwrap_or_else(|| self.creator_pays_since())
    }

    /// Whether the record is a tombstone.
    pub fn is_deleted(&self) -> bool {
        self.deleted_at.is_some()
    }
}

/// One skill that one agent holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldSkill {
    /// Id of the agent that holds the skill.
    pub agent_id: AgentId,
    /// Name of the skill.
    pub skill: String,
    /// Whether the agent has read the skill's text since it acquired the skill.
    pub active: bool,
    /// When the agent acquired the skill.
    pub acquired_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_own_time_the_team_pays_as_long_as_the_creator() {
        let record = serde_json::json!({
            "agent_id": "ada", "incarnation": 1, "archetype": "worker", "name": "ada", "team": "crew", "owner": null,
            "kind": "dynamic", "desired": "running", "status": "running", "status_reason": null, "restarts": 0,
            "overrides": null, "node": "n", "epoch": 1, "created_at": 5, "updated_at": 5, "last_active_at": null,
            "deleted_at": null, "paid_since": 7,
        });
        let mut agent: Agent = serde_json::from_value(record).unwrap();
        assert_eq!((agent.creator_pays_since(), agent.team_pays_since()), (Timestamp(7), Timestamp(7)));
        agent.team_since = Some(Timestamp(0));
        let again: Agent = serde_json::from_value(serde_json::to_value(&agent).unwrap()).unwrap();
        assert_eq!((again.creator_pays_since(), again.team_pays_since()), (Timestamp(7), Timestamp(0)));
        agent.paid_since = None;
        agent.team_since = None;
        assert_eq!((agent.creator_pays_since(), agent.team_pays_since()), (Timestamp(0), Timestamp(0)));
    }
}
