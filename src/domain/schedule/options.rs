//! The options of a cron job as callers write them, and as they are stored and shown: flat words
//! and numbers. [`JobMode`](super::JobMode) is what they mean.

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;

text_enum! {
    /// Where a cron job runs.
    Session, "session" {
        /// In the agent's shared turns.
        Main = "main",
        /// In a turn of its own.
        Isolated = "isolated",
    }
}

text_enum! {
    /// What a run of a cron job is.
    Payload, "payload" {
        /// Mail. The agent's next turn takes it together with other mail.
        SystemEvent = "systemEvent",
        /// A turn of its own. It recalls nothing of other turns; other turns recall one line of it.
        AgentTurn = "agentTurn",
    }
}

impl Payload {
    /// The session of this payload. Each payload has exactly one.
    #[must_use]
    pub fn session(self) -> Session {
        match self {
            Self::SystemEvent => Session::Main,
            Self::AgentTurn => Session::Isolated,
        }
    }
}

impl Session {
    /// The payload of this session. Each session has exactly one.
    #[must_use]
    pub fn payload(self) -> Payload {
        match self {
            Self::Main => Payload::SystemEvent,
            Self::Isolated => Payload::AgentTurn,
        }
    }
}

text_enum! {
    /// When the mail of a cron job wakes its agent.
    WakeMode, "wake mode" {
        /// At once.
        Now = "now",
        /// Together with the agent's next heartbeat.
        NextHeartbeat = "next-heartbeat",
    }
}

text_enum! {
    /// Where the last text of a cron job's own turn goes.
    Deliver, "way to deliver" {
        /// Nowhere. The text stays in the turn's record.
        None = "none",
        /// To a chat channel or a conversation.
        Announce = "announce",
        /// To a webhook of the world file; the request is signed.
        Webhook = "webhook",
    }
}

/// The options of a cron job. `None` is an option that is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOptions {
    /// Where the job runs. It is not stored, because the payload says the same.
    #[serde(skip)]
    pub session: Option<Session>,
    /// What a run of the job is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// When its mail wakes the agent. The default is `now`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<WakeMode>,
    /// Where the last text of its turn goes. The default for a turn of its own is `announce`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver: Option<Deliver>,
    /// For `announce` `last` (the default), a chat channel or the id of a conversation; for
    /// `webhook` `<webhook>/<thread>`, or `<webhook>` for the job's own thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Most seconds of its turn's own work. The default is the agent's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Most model calls of its turn. The default is the agent's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// `model` or `provider/model`. The default is the agent's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl JobOptions {
    /// The name of the first given option that only a turn of its own has.
    #[must_use]
    pub fn turn_option(&self) -> Option<&'static str> {
        let given = [
            ("deliver", self.deliver.is_some()),
            ("to", self.to.is_some()),
            ("timeout_seconds", self.timeout_seconds.is_some()),
            ("max_rounds", self.max_rounds.is_some()),
            ("model", self.model.is_some()),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }
}
