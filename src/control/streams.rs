//! The event feed as a stream, for every transport: checks the request of a reader, and moves events from the feed into its
//! queue. A stream never stays silent because a name in the request was misspelled, a slow reader holds no more than its
//! queue, and no stream ends without the position to resume at.

pub(crate) mod reader;

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::text::{clip, nearest};
use ghost_domain::{ChannelName, Code, Limits, Refusal};
use ghost_operations::chat::channel_named;
use ghost_operations::feed::{FeedEvent, Subscription};
use ghost_proto::v1::SubscribeRequest;
use ghost_store::for_people;
use ghost_world::World;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::reader::RecentEvents;
use crate::control::Control;
use crate::convert::input;
use crate::queries;
pub(crate) use reader::{DrainTimeout, EndReason, Ended, Item, PermitStream, StreamPermit};

/// Capacity of one reader's own queue, in events. Further events wait in the feed, which all readers
/// share.
pub(crate) const QUEUE: usize = 64;
/// Largest number of kinds in one filter.
const KINDS_MAX: usize = 64;
/// Largest length of a channel's name, in characters.
const CHANNEL_MAX: usize = 128;

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

/// Opens a stream of the events after the sequence number `start`, which must still be stored, or be the next one; 0 is before
/// the oldest event, and without it the stream begins with the next new event. The request is not checked yet.
///
/// # Errors
/// If the filter names something unknown, the sequence number is in the future or no longer stored, or
/// the limit of open streams is reached.
pub(crate) async fn open(control: &Control, request: SubscribeRequest, start: Option<i64>) -> Result<Stream, Refusal> {
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
    let subscription = Subscription::open(world.store(), start, filter, request.follow).await?;
    let (sender, items) = mpsc::channel(QUEUE + 1);
    // One slot is reserved for the final item, so that a reader with a full queue also gets it.
    let final_slot =
        sender.clone().try_reserve_owned().map_err(|_| Refusal::new(Code::Internal, "a new queue is full"))?;
    let feeder = Feeder::new(control, subscription, sender, request.ephemeral);
    Ok(Stream { items, feeder: tokio::spawn(for_people(feeder.run(final_slot, Arc::clone(&permit)))), permit })
}

/// Checks the filter of a request. With an unknown kind the stream would stay silent.
pub(crate) fn filter(request: &SubscribeRequest) -> Result<EventFilter, Refusal> {
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

/// How often the lag of a reader with a full queue is checked.
pub(crate) const LAG_CHECK_EVERY: Duration = Duration::from_secs(2);
/// How often a quiet stream sends its position, as a sign of life.
pub(crate) const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);

/// One reader's feeder.
pub(super) struct Feeder {
    subscription: Subscription,
    sender: mpsc::Sender<Item>,
    world: Arc<World>,
    recent: Arc<RecentEvents>,
    closed: watch::Receiver<bool>,
    ephemeral: bool,
    /// Every stored event up to this sequence number that matches has been queued.
    position: i64,
}

/// Why a stream ends.
enum End {
    /// The present was reached, and the reader does not follow.
    Done,
    /// The reader has disconnected.
    Disconnected,
    /// The daemon is stopping.
    Stopping,
    /// The reader is too far behind the feed.
    Lagged,
    /// The reader has read nothing for this long.
    Stalled(Duration),
    /// The feed could not be read.
    Failed(Refusal),
}

impl Feeder {
    pub(super) fn new(
        control: &Control,
        subscription: Subscription,
        sender: mpsc::Sender<Item>,
        ephemeral: bool,
    ) -> Self {
        Self {
            position: subscription.seen(),
            subscription,
            sender,
            world: Arc::clone(&control.world),
            recent: Arc::clone(&control.recent),
            closed: control.closed.clone(),
            ephemeral,
        }
    }

    /// Feeds until the stream ends, then sends the reason.
    pub(super) async fn run(mut self, final_slot: mpsc::OwnedPermit<Item>, permit: Arc<StreamPermit>) {
        let Err(end) = self.feed().await;
        let position = self.position;
        let (reason, refusal) = match end {
            End::Done | End::Disconnected => return,
            End::Failed(refusal) => (EndReason::Failed, refusal),
            End::Stopping => (
                EndReason::Stopping,
                Refusal::new(Code::Unavailable, "the daemon is stopping")
                    .hint(format!("subscribe again after {position} when it is back; nothing is lost")),
            ),
            End::Stalled(limit) => (
                EndReason::Lagged,
                Refusal::new(
                    Code::RateLimited,
                    format!("this reader read nothing for {limit:?} after sequence {position}"),
                )
                .hint("subscribe again after that sequence; nothing is lost"),
            ),
            End::Lagged => (
                EndReason::Lagged,
                Refusal::new(Code::RateLimited, format!("this reader fell too far behind after sequence {position}"))
                    .hint("subscribe again after that sequence; nothing is lost"),
            ),
        };
        if matches!(reason, EndReason::Lagged) {
            permit.count_cut_off();
        }
        final_slot.send(Item::Ended(Ended { reason, refusal, position }));
    }

    /// Feeds until the stream must end.
    async fn feed(&mut self) -> Result<std::convert::Infallible, End> {
        let clock = Arc::clone(&self.world.ctx().ports.clock);
        loop {
            let next = tokio::select! {
                biased;
                () = self.sender.closed() => return Err(End::Disconnected),
                next = self.subscription.next() => Some(next),
                // Checked after the subscription, so that readers get the last events of a world.
                _ = self.closed.wait_for(|closed| *closed) => return Err(End::Stopping),
                () = clock.sleep(HEARTBEAT_EVERY) => None,
            };
            match next {
                None => self.send_position().await?,
                Some(Ok(Some(event))) => self.send_all(event).await?,
                Some(Ok(None)) => {
                    self.send_position().await?;
                    return Err(End::Done);
                }
                Some(Err(refusal)) if is_lag(&refusal) => {
                    // No event is waiting, so everything that was examined has been sent.
                    self.position = self.subscription.seen();
                    return Err(End::Lagged);
                }
                Some(Err(refusal)) => return Err(End::Failed(refusal)),
            }
        }
    }

    async fn send_position(&mut self) -> Result<(), End> {
        self.position = self.subscription.seen();
        self.send(Item::Position(self.position), self.position).await
    }

    /// Sends `event` and all events that are ready after it.
    async fn send_all(&mut self, event: FeedEvent) -> Result<(), End> {
        let mut ready = Some(event);
        while let Some(event) = ready {
            ready = self.subscription.try_next();
            let ephemeral = event.kind.is_ephemeral();
            if ephemeral && !self.ephemeral {
                continue;
            }
            let reached = match &ready {
                // The last of a batch moves the position past the events that did not match.
                None => self.subscription.seen(),
                Some(_) if ephemeral => self.position,
                Some(_) => event.seq,
            };
            let reached = self.position.max(reached);
            self.send(Item::Event(self.recent.encoded(&event), reached), reached).await?;
        }
        Ok(())
    }

    /// Queues one item. If the queue is full, waits until it has free capacity, or the reader lags
    /// or has stalled.
    async fn send(&mut self, item: Item, reached: i64) -> Result<(), End> {
        let permit = match self.sender.try_reserve() {
            Ok(permit) => permit,
            Err(mpsc::error::TrySendError::Closed(())) => return Err(End::Disconnected),
            Err(mpsc::error::TrySendError::Full(())) => self.wait_for_room().await?,
        };
        permit.send(item);
        self.position = self.position.max(reached);
        Ok(())
    }

    async fn wait_for_room(&self) -> Result<mpsc::Permit<'_, Item>, End> {
        let clock = Arc::clone(&self.world.ctx().ports.clock);
        let mut closed = self.closed.clone();
        let limit = Limits::seconds(self.world.ctx().limits().reader_stall_seconds);
        let mut stalled = clock.sleep(limit);
        loop {
            tokio::select! {
                biased;
                permit = self.sender.reserve() => return permit.map_err(|_| End::Disconnected),
                _ = closed.wait_for(|closed| *closed) => return Err(End::Stopping),
                () = stalled.as_mut() => return Err(End::Stalled(limit)),
                () = clock.sleep(LAG_CHECK_EVERY) => {
                    let behind = self.world.store().last_seq().saturating_sub(self.position);
                    if behind > i64::from(self.world.ctx().limits().subscriber_buffer) {
                        return Err(End::Lagged);
                    }
                }
            }
        }
    }
}

fn is_lag(refusal: &Refusal) -> bool {
    refusal.details.as_ref().is_some_and(|details| details["lagged"] == true)
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
