//! Finds a channel, and builds the refusal for non-members.
//!
//! This module must never change a channel.

use super::speaker::shown_name;
use crate::prelude::*;
use crate::suggestion::{self, Unknown};

/// The number of members from which a new ungated channel gets a warning (CHAT-10).
pub(super) const CROWD: u32 = 3;

/// Returns the channel of this name. The refusal gets a suggestion; see
/// [`with_nearest`](crate::mail::with_nearest).
pub fn channel_named(r: &mut Tx, channel: &ChannelName) -> Result<ChatChannel> {
    match r.chat_channel_get(channel)? {
        Some(found) => Ok(found),
        None => {
            let refusal = Refusal::not_found("channel", channel.as_str(), None);
            let refusal = refusal.hint("the list of channels has their names");
            Err(suggestion::unknown_name(r, refusal, Unknown::Channel(channel.clone()))?)
        }
    }
}

/// Builds the refusal for a party that is not in a channel and wants to do `what` there.
pub(super) fn not_a_member(channel: &ChatChannel, party: &Party, what: &str) -> Refusal {
    let creator = channel.creator.agent().map(|creator| format!(", its creator {creator}")).unwrap_or_default();
    refusal!(AccessDenied, "{} is no member of #{}", shown_name(party), channel.channel)
        .hint(format!("only its members{creator} and operators may {what}"))
}
