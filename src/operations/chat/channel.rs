//! Finds a channel, names who acts in it, and builds the refusal for non-members.
//!
//! This module must never change a channel.

use crate::prelude::*;
use crate::suggestion::{self, Unknown};

/// The number of members from which a new ungated channel gets a warning.
pub(super) const CROWD: u32 = 3;

/// Returns the channel of this name. The refusal gets a suggestion; see
/// [`with_nearest`](crate::mail::with_nearest).
pub fn channel_named(r: &mut StoreTx, channel: &ChannelName) -> Result<ChatChannel> {
    if let Some(found) = r.chat_channel_get(channel)? {
        return Ok(found);
    }
    let refusal = Refusal::not_found("channel", channel.as_str(), None).hint("the list of channels has their names");
    Err(suggestion::unknown_name(r, refusal, Unknown::Channel(channel.clone()))?)
}

/// Builds the refusal for a party that is not in a channel and wants to do `what` there.
pub(super) fn not_a_member(channel: &ChatChannel, party: &Party, what: &str) -> Refusal {
    let creator = channel.creator.agent().map(|creator| format!(", its creator {creator}")).unwrap_or_default();
    refusal!(AccessDenied, "{} is no member of #{}", shown_name(party), channel.channel)
        .hint(format!("only its members{creator} and operators may {what}"))
}

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
