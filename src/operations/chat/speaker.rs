//! The party that acts in a channel, and the name that is shown for it.
//!
//! This module must never decide which actions a speaker may take. That depends on the channel.

use crate::prelude::*;

/// The party that acts in a channel, and on whose behalf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// The party in whose name it acts, with that party's rights.
    pub party: Party,
    /// The operator on whose behalf the action happens, if an operator acts as an agent.
    pub via: Option<Party>,
}

impl Speaker {
    /// The party that reads the refusals. Their hints are written for it.
    #[must_use]
    pub fn reader(&self) -> &Party {
        self.via.as_ref().unwrap_or(&self.party)
    }
}

impl From<Party> for Speaker {
    fn from(party: Party) -> Self {
        Self { party, via: None }
    }
}

/// The name that is shown with a chat message: an agent's id, or the party as text.
#[must_use]
pub fn shown_name(party: &Party) -> String {
    party.agent().map_or_else(|| party.to_string(), ToString::to_string)
}
