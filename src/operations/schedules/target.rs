//! Checks that the target of a cron job's last text exists (SCHED-05). So the party that sets the
//! job learns about a mistake, and not only the record of each run.
//!
//! This module must never check who may post there. That may change before the job runs, and the
//! record of the run reports it.

use ghost_domain::schedule::mode::LAST;

use crate::conversations;
use crate::prelude::*;
use crate::suggestion::{self, Unknown};

/// Refuses a chat channel or conversation that does not exist. The last conversation is found when
/// the job ends, and webhooks belong to the world file.
///
/// # Errors
/// `NotFound`, with a suggestion.
pub(super) fn check(r: &mut Tx, mode: &JobMode) -> Result<()> {
    let with_field = |refusal: Refusal| refusal.details(json!({ "field": "to" }));
    let channel = match mode.own_turn().map(|turn| &turn.target) {
        Some(Target::Conversation(conversation_id)) => {
            return conversations::get(r, *conversation_id).map(drop).map_err(with_field);
        }
        Some(Target::Channel(channel)) => channel,
        Some(Target::Nowhere | Target::Last | Target::Webhook { .. }) | None => return Ok(()),
    };
    if r.chat_channel_get(channel)?.is_some() {
        return Ok(());
    }
    let near = nearest(channel.as_str(), [LAST]);
    let refusal = with_field(Refusal::not_found("channel", channel.as_str(), near));
    Err(match near {
        Some(_) => refusal,
        None => {
            let refusal = refusal.hint("give last, the name of a chat channel or the id of a conversation");
            suggestion::unknown_name(r, refusal, Unknown::Channel(channel.clone()))?
        }
    })
}
