//! An agent as the world records it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::text_enum;
use crate::ids::{AgentId, RootId};
use crate::party::Party;
use crate::time::Timestamp;

text_enum! {
    /// What the supervisor says of an agent (DESIGN.md section 3).
    AgentStatus, "agent status" {
        /// Supervised; it may be asleep.
        Running = "running",
        /// Crashed, waiting out its back-off.
        Restarting = "restarting",
        /// Letting its current turn finish.
        Stopping = "stopping",
        /// Stopped by someone; stays so over boots.
        Stopped = "stopped",
        /// Past its restart intensity or its team's, or without a place in the world's files.
        Failed = "failed",
    }
}

text_enum! {
    /// What a running agent does. Lives in memory only.
    Activity, "activity" {
        /// No actor; woken by its next message.
        Asleep = "asleep",
        /// Awake without a turn.
        Idle = "idle",
        /// In a turn, waiting for a model slot, or for what others hold of a budget.
        Queued = "queued",
        /// In a turn, waiting for the model.
        Thinking = "thinking",
        /// In a turn, running tools.
        Acting = "acting",
        /// In a turn, waiting for another agent's answer.
        Asking = "asking",
    }
}

text_enum! {
    /// Where an agent came from.
    AgentKind, "agent kind" {
        /// Named in the world file.
        Persistent = "persistent",
        /// Created at run time; re-created at boot from the store.
        Dynamic = "dynamic",
    }
}

text_enum! {
    /// What was last asked of an agent. The supervisor works towards it; a boot starts from it.
    Desired, "desired state" {
        /// Should run.
        Running = "running",
        /// Should be stopped.
        Stopped = "stopped",
    }
}

/// The durable record of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its id.
    pub agent_id: AgentId,
    /// Counts the agents that have borne this id; a deleted agent's successor is one higher.
    pub incarnation: u32,
    /// The archetype it is made from.
    pub archetype: String,
    /// The name people see.
    pub name: String,
    /// The team it is supervised in; `None` is the world's own.
    pub team: Option<String>,
    /// Who created it, for a dynamic agent.
    pub owner: Option<String>,
    /// Where it came from.
    pub kind: AgentKind,
    /// What was last asked of it.
    pub desired: Desired,
    /// What the supervisor says of it.
    pub status: AgentStatus,
    /// Why it is stopped or failed.
    pub status_reason: Option<String>,
    /// How often it has been restarted after a crash, ever.
    pub restarts: u32,
    /// What narrows its archetype (BI-22), as the configuration room understands it.
    pub overrides: Value,
    /// The node that owns it.
    pub node: String,
    /// The fencing epoch of that ownership: a write under an older one is refused.
    pub epoch: i64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last started, or restarted after a crash; `None` if never, or by a version that did not say.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When this record last changed.
    pub updated_at: Timestamp,
    /// When its last turn ended, to the minute.
    pub last_active_at: Option<Timestamp>,
    /// Set on a tombstone.
    pub deleted_at: Option<Timestamp>,
    /// Since when its present creator pays for what its id spends; `None` is ever. What was spent before was somebody else's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid_since: Option<Timestamp>,
    /// The same of its present team; `None` is for as long as its creator. See [`Agent::team_pays_since`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_since: Option<Timestamp>,
    /// Whether it was stopped because the world file names it no longer, and nobody has asked anything of it since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
    /// Whether it is failed because the world's files have no place for it, and nobody has asked anything of it since: it goes
    /// on when they are repaired.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfit: bool,
    /// The root whose work an agent created it for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helps: Option<RootId>,
    /// Whether an agent stopped it, and nobody has asked anything of it since: a helper that was let go ends with its root.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub let_go: bool,
}

impl Agent {
    /// The agent that created it, if one did.
    #[must_use]
    pub fn creator(&self) -> Option<AgentId> {
        match self.owner.as_deref()?.parse() {
            Ok(Party::Agent(agent_id)) => Some(agent_id),
            _ => None,
        }
    }

    /// Since when its present creator, and whoever created that one, pay for what its id spends.
    #[must_use]
    pub fn creator_pays_since(&self) -> Timestamp {
        self.paid_since.unwrap_or(Timestamp(0))
    }

    /// Since when its present team pays for what its id spends.
    #[must_use]
    pub fn team_pays_since(&self) -> Timestamp {
        self.team_since.unwrap_or_else(|| self.creator_pays_since())
    }

    /// Whether the record is a tombstone.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.deleted_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_says_nothing_of_its_team_means_as_long_as_the_creator() {
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
