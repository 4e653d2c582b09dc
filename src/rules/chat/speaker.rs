//! Who speaks in a channel, and under which name that is shown.
//!
//! Must never: judge what a speaker may do; that takes the channel.

use ghost_domain::Party;

/// Who acts in a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Speaker {
    /// In whose name, and with whose rights.
    pub party: Party,
    /// On whose word, if that is someone else: an operator who speaks as an agent.
    pub via: Option<Party>,
}

impl Speaker {
    /// Who reads what is said of it: a refusal is put in this one's words.
    #[must_use]
    pub fn told(&self) -> &Party {
        self.via.as_ref().unwrap_or(&self.party)
    }
}

impl From<Party> for Speaker {
    fn from(party: Party) -> Self {
        Self { party, via: None }
    }
}

/// The name that a post is shown under: an agent's id, or the party as text.
#[must_use]
pub fn shown_name(party: &Party) -> String {
    party.agent().map_or_else(|| party.to_string(), ToString::to_string)
}
