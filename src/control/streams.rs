//! The event feed as a stream, for every transport: checks the request of a reader, and feeds its
//! stream.
//!
//! The code here must never depend on a transport. A stream must never open and then stay silent
//! because a name in the request was misspelled.

mod feeder;
pub(crate) mod item;
pub(crate) mod reader;

use std::sync::Arc;

use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::text::{clip, nearest};
use ghost_domain::{ChannelName, Code, Refusal};
use ghost_operations::chat::channel_named;
use ghost_operations::feed::Subscription;
use ghost_store::for_people;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::control::Control;
use crate::convert::input;
use crate::queries;

#[cfg(test)]
pub(crate) use feeder::{HEARTBEAT_EVERY, LAG_CHECK_EVERY};
pub(crate) use item::{EndReason, Ended, Item};
pub(crate) use reader::{DrainTimeout, PermitStream, StreamPermit};

/// Capacity of one reader's own queue, in events. Further events wait in the feed, which all readers
/// share.
pub(crate) const QUEUE: usize = 64;
/// Largest number of kinds in one filter.
const KINDS_MAX: usize = 64;
/// Largest length of a channel's name, in characters.
const CHANNEL_MAX: usize = 128;

/// The request of a reader, not checked yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamRequest {
    /// Event kinds, or families such as `turn.` or `turn.*`. Empty means all.
    pub kinds: Vec<String>,
    /// Only events about this agent.
    pub agent_id: Option<String>,
    /// Only events of this channel.
    pub channel: Option<String>,
    /// Where the stream begins.
    pub start: Start,
    /// Whether the stream goes on with new events.
    pub follow: bool,
    /// Whether to include ephemeral events, which are never stored.
    pub ephemeral: bool,
}

/// The start of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the oldest stored event.
    #[default]
    Oldest,
    /// At the next new event.
    Now,
    /// At the event after this sequence number. It must still be stored, or be the next one.
    After(i64),
}

/// An open stream.
pub(crate) struct Stream {
    /// The items of the stream. If they end without an [`Item::Ended`], the stream reached the present
    /// and `follow` was false.
    pub items: mpsc::Receiver<Item>,
    /// Completes when the feeder adds no more items to `items`.
    pub feeder: JoinHandle<()>,
    /// The reader's permit, shared with the feeder. The reader is counted until both have dropped
    /// it.
    pub permit: Arc<StreamPermit>,
}

/// Opens a stream.
///
/// # Errors
/// If the filter names something unknown, the sequence number is in the future or no longer stored, or
/// the limit of open streams is reached.
pub(crate) async fn open(control: &Control, request: StreamRequest) -> Result<Stream, Refusal> {
    let world = &control.world;
    let filter = filter(&request)?;
    // Events of a deleted agent can still be read. With an unknown name the stream would stay silent.
    queries::agent_in_filter(world, "agent_id", request.agent_id.as_deref()).await?;
    // Channels are never deleted, so an unknown channel was never created.
    if let Some(channel) = filter.channel.as_deref() {
        let channel: ChannelName = input::parsed("channel", channel)?;
        let found: Result<_, Refusal> = world.store().read(move |r| channel_named(r, &channel)).await;
        found.map_err(|refusal| match refusal.code {
            Code::NotFound => refusal.details(json!({ "field": "channel" })),
            _ => refusal,
        })?;
    }
    let permit = control.reader_permit()?;
    let after = match request.start {
        Start::Oldest => Some(0),
        Start::Now => None,
        Start::After(after) => Some(after),
    };
    let subscription = Subscription::open(world.store(), after, filter, request.follow).await?;
    let (sender, items) = mpsc::channel(QUEUE + 1);
    // One slot is reserved for the final item, so that a reader with a full queue also gets it.
    let final_slot =
        sender.clone().try_reserve_owned().map_err(|_| Refusal::new(Code::Internal, "a new queue is full"))?;
    let feeder = feeder::Feeder::new(control, subscription, sender, request.ephemeral);
    Ok(Stream { items, feeder: tokio::spawn(for_people(feeder.run(final_slot, Arc::clone(&permit)))), permit })
}

/// Checks the filter of a request. With an unknown kind the stream would stay silent.
pub(crate) fn filter(request: &StreamRequest) -> Result<EventFilter, Refusal> {
    if request.kinds.len() > KINDS_MAX {
        return Err(input::bad("kinds", format!("has {} entries", request.kinds.len()))
            .hint(format!("name at most {KINDS_MAX}, or families such as `turn.`")));
    }
    // `turn.*` is another spelling of `turn.`.
    let kinds: Vec<String> =
        request.kinds.iter().map(|kind| kind.strip_suffix('*').unwrap_or(kind).to_owned()).collect();
    for kind in &kinds {
        let mut known = EventKind::ALL.iter().map(|known| known.as_str());
        let is_known = match kind.strip_suffix('.') {
            Some(family) => !family.is_empty() && known.any(|known| known.starts_with(kind.as_str())),
            None => known.any(|known| known == kind),
        };
        if !is_known {
            let hint = nearest_kind(kind);
            return Err(Refusal::new(
                Code::InvalidArguments,
                format!("kinds: `{}` is not an event kind", clip(kind, 80)),
            )
            .hint(hint)
            .details(json!({ "field": "kinds" })));
        }
    }
    Ok(EventFilter {
        kinds,
        agent_id: input::parsed_if("agent_id", request.agent_id.as_deref())?,
        channel: input::line_if("channel", request.channel.as_deref(), CHANNEL_MAX)?,
    })
}

/// The hint for an unknown kind. If its family exists, only that family's kinds are suggested.
fn nearest_kind(kind: &str) -> String {
    let known = || EventKind::ALL.iter().map(|known| known.as_str());
    let family = kind.find('.').map_or("", |dot| &kind[..=dot]);
    let within: Vec<&str> = known().filter(|known| !family.is_empty() && known.starts_with(family)).collect();
    let near = if kind.ends_with('.') {
        nearest(kind, known().filter_map(|known| known.find('.').map(|dot| &known[..=dot])))
    } else if within.is_empty() {
        nearest(kind, known())
    } else {
        nearest(kind, within.iter().copied())
    };
    match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if !within.is_empty() => format!("the family `{family}` has: {}", within.join(", ")),
        None => "a kind is for example `turn.started`, a family is for example `turn.`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_of_a_known_family_gets_suggestions_from_that_family() {
        let hint = nearest_kind("turn.wholly-unknown");
        assert!(hint.contains("`turn.`") && hint.contains("turn.finished"), "{hint}");
        assert!(nearest_kind("turn.startd").contains("`turn.started`"));
        assert!(nearest_kind("tern.started").contains("`turn.started`"));
        assert!(nearest_kind("trun.").contains("`turn.`"));
        assert!(!nearest_kind("nonsense-of-some-kind").is_empty());
    }
}
