//! The feed as a stream, the same for every transport: what a reader may ask for, and what it gets.
//!
//! Must never: know a transport, or open a stream that stays silent because something in its request was misspelt.

mod drain_timeout;
mod feeder;
mod item;
pub(crate) mod readers;
mod seated_stream;
pub(crate) mod shown;

use std::sync::Arc;

use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::text::{clip, nearest};
use ghost_domain::{ChannelName, Code, Refusal};
use ghost_rules::chat::channel_named;
use ghost_rules::feed::Subscription;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::control::Control;
use crate::convert::input;
use crate::queries;

pub(crate) use drain_timeout::DrainTimeout;
#[cfg(test)]
pub(crate) use feeder::{ALIVE, PATIENCE};
pub(crate) use item::{Ended, Item, Why};
pub(crate) use readers::Seat;
pub(crate) use seated_stream::SeatedStream;

/// Events that wait for one reader in its own queue. Those beyond wait in the feed, which all readers share.
pub(crate) const QUEUE: usize = 64;
/// Kinds in one filter.
const KINDS_MAX: usize = 64;
/// Characters of a channel's name.
const CHANNEL_MAX: usize = 128;

/// What a reader asks for, as it said it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Of these kinds, or families such as `turn.` or `turn.*`; empty is all.
    pub kinds: Vec<String>,
    /// About this agent.
    pub agent_id: Option<String>,
    /// In this channel.
    pub channel: Option<String>,
    /// Where to begin.
    pub start: Start,
    /// Goes on with what happens next.
    pub follow: bool,
    /// With what is streamed only and never stored.
    pub ephemeral: bool,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Start {
    /// With the oldest event that is kept, whatever was before it.
    #[default]
    Oldest,
    /// With what happens next.
    Now,
    /// With the event after this sequence, which must be kept or still to come.
    After(i64),
}

/// An open stream.
pub(crate) struct Stream {
    /// What comes. At its end without an [`Item::Ended`] the present was reached, and no more was wanted.
    pub items: mpsc::Receiver<Item>,
    /// Ends when nothing more is put into `items`.
    pub feeder: JoinHandle<()>,
    /// Its place among the readers, shared with the feeder: who holds on to it after the feeder's end still counts.
    pub seat: Arc<Seat>,
}

/// Opens a stream, if there is room for one more reader.
///
/// # Errors
/// When the filter cannot be meant, the cursor lies in the future or before what is kept, or readers are too many.
pub(crate) async fn open(control: &Control, wanted: Wanted) -> Result<Stream, Refusal> {
    let world = &control.world;
    let filter = filter(&wanted)?;
    // What a deleted agent did is still to be read; a name that nobody bore would be a stream that stays silent.
    queries::agent_in_filter(world, "agent_id", wanted.agent_id.as_deref()).await?;
    // Channels are never taken away, so this goes for them just as much.
    if let Some(channel) = filter.channel.as_deref() {
        let channel: ChannelName = input::parsed("channel", channel)?;
        let found: Result<_, Refusal> =
            world.store().read(move |r| Box::pin(async move { channel_named(r, &channel).await })).await;
        found.map_err(|refusal| match refusal.code {
            Code::NotFound => refusal.details(json!({ "field": "channel" })),
            _ => refusal,
        })?;
    }
    let seat = Arc::new(control.readers.take(world.ctx().limits().subscribers_max)?);
    let after = match wanted.start {
        Start::Oldest => Some(0),
        Start::Now => None,
        Start::After(after) => Some(after),
    };
    let subscription = Subscription::open(world.store(), after, filter, wanted.follow).await?;
    let (sender, items) = mpsc::channel(QUEUE + 1);
    // Kept for the end, so that a reader with a full queue is still told why.
    let last_word =
        sender.clone().try_reserve_owned().map_err(|_| Refusal::new(Code::Internal, "a new queue had no room"))?;
    let feeder = feeder::Feeder::new(control, subscription, sender, wanted.ephemeral);
    Ok(Stream { items, feeder: tokio::spawn(feeder.run(last_word, Arc::clone(&seat))), seat })
}

/// What a request wants to see, checked: a kind that cannot happen would be a stream that stays silent.
pub(crate) fn filter(wanted: &Wanted) -> Result<EventFilter, Refusal> {
    if wanted.kinds.len() > KINDS_MAX {
        return Err(input::bad("kinds", format!("has {} entries", wanted.kinds.len()))
            .hint(format!("name at most {KINDS_MAX}, or families such as `turn.`")));
    }
    // A family may be written as people write it, over every transport: `turn.*` is `turn.`.
    let kinds: Vec<String> =
        wanted.kinds.iter().map(|kind| kind.strip_suffix('*').unwrap_or(kind).to_owned()).collect();
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
                format!("kinds: `{}` is no kind of event", clip(kind, 80)),
            )
            .hint(hint)
            .details(json!({ "field": "kinds" })));
        }
    }
    Ok(EventFilter {
        kinds,
        agent_id: input::parsed_if("agent_id", wanted.agent_id.as_deref())?,
        channel: input::line_if("channel", wanted.channel.as_deref(), CHANNEL_MAX)?,
    })
}

/// The kind, or for a family the family, that someone may have meant. Of a family that there is, another is not meant.
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
        None if !within.is_empty() => format!("of `{family}` there are: {}", within.join(", ")),
        None => "a kind is such as `turn.started`, a family such as `turn.`".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_a_family_that_there_is_is_looked_for_in_it() {
        let hint = nearest_kind("turn.wholly-unknown");
        assert!(hint.starts_with("of `turn.` there are: ") && hint.contains("turn.finished"), "{hint}");
        assert_eq!(nearest_kind("turn.startd"), "did you mean `turn.started`?");
        assert_eq!(nearest_kind("tern.started"), "did you mean `turn.started`?");
        assert_eq!(nearest_kind("trun."), "did you mean `turn.`?");
        assert!(nearest_kind("nonsense-of-some-kind").contains("a kind is such as"));
    }
}
