//! Whether what a cron job's last words should go to is there (SCHED-05): a slip is told to whoever sets the job, not run by
//! run to nobody.
//!
//! Must never: judge who may speak there. That may change before the job runs, and is said in the record of its run.

use ghost_domain::schedule::options::LAST;
use ghost_domain::schedule::{Deliver, JobOptions};
use ghost_domain::text::nearest;
use ghost_domain::{ChannelName, ConversationId, Refusal};
use ghost_store::Reads;
use serde_json::json;

use crate::suggestion::{self, Unknown};
use crate::{Result, conversations};

/// Refuses a chat channel or a conversation that there is not. `last` is looked for when the job ends, and webhooks are the
/// world file's.
///
/// # Errors
/// `NotFound`, with which the nearest is looked for.
pub(super) async fn check(r: &mut dyn Reads, options: &JobOptions) -> Result<()> {
    if options.deliver != Deliver::Announce || options.to == LAST {
        return Ok(());
    }
    let of_to = |refusal: Refusal| refusal.details(json!({ "field": "to" }));
    if let Ok(conversation_id) = options.to.parse::<ConversationId>() {
        return conversations::get(r, conversation_id).await.map(drop).map_err(of_to);
    }
    let channel: ChannelName = options.to.parse().map_err(of_to)?;
    if r.chat_channel_get(&channel).await?.is_some() {
        return Ok(());
    }
    let near = nearest(channel.as_str(), [LAST]);
    let refusal = of_to(Refusal::not_found("channel", channel.as_str(), near));
    Err(match near {
        Some(_) => refusal,
        None => {
            let refusal = refusal.hint("give last, the name of a chat channel or the id of a conversation");
            suggestion::missed(r, refusal, Unknown::Channel(channel)).await?
        }
    })
}
