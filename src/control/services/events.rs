//! The feed as a stream: stored events, then what happens next, for as many readers as the world allows.
//!
//! Must never: let a reader that does not read hold more than its queue, or end a stream without saying where to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ghost_commons::feed::Subscription;
use ghost_domain::event::{Event, EventFilter, EventKind};
use ghost_domain::text::{clip, nearest};
use ghost_domain::{Code, Refusal};
use ghost_proto::LAST_SEQ_TRAILER;
use ghost_proto::v1::{SubscribeRequest, SubscribeResponse, events_server};
use ghost_world::World;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use super::Control;
use crate::convert::input;
use crate::refusal::{status, to_status};
use crate::{caller, convert};

/// Events that wait for one reader in its own queue. Those beyond wait in the feed, which all readers share.
const QUEUE: usize = 64;
/// A reader with a full queue is looked at this often.
const PATIENCE: Duration = Duration::from_secs(2);
/// A quiet stream says this often that it lives, and up to where it has looked.
const ALIVE: Duration = Duration::from_secs(15);
/// Kinds in one filter.
const KINDS_MAX: usize = 64;
/// Characters of a channel's name.
const CHANNEL_MAX: usize = 128;

/// `ghost.v1.Events`.
pub struct EventsService(pub Control);

/// How many event streams are open, over all listeners.
#[derive(Default)]
pub(crate) struct Readers(Arc<AtomicUsize>);

/// One open stream's place among them.
struct Seat(Arc<AtomicUsize>);

impl Readers {
    fn take(&self, most: u32) -> Result<Seat, Refusal> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| (open < most).then_some(open + 1));
        match taken {
            Ok(_) => Ok(Seat(Arc::clone(&self.0))),
            Err(open) => {
                Err(Refusal::new(Code::RateLimited, format!("{open} readers of events are as many as may be"))
                    .hint("end one of them, or raise limits.subscribers_max in world-config.yaml")
                    .details(serde_json::json!({ "subscribers_max": most })))
            }
        }
    }

    /// Streams that are open now.
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[tonic::async_trait]
impl events_server::Events for EventsService {
    type SubscribeStream = ReceiverStream<Result<SubscribeResponse, Status>>;

    async fn subscribe(&self, request: Request<SubscribeRequest>) -> Result<Response<Self::SubscribeStream>, Status> {
        caller::party(&request)?;
        let request = request.into_inner();
        let filter = filter(&request).map_err(to_status)?;
        let Control { world, readers, closed, .. } = &self.0;
        let seat = readers.take(world.cx().limits().subscribers_max).map_err(to_status)?;
        // 0 is the oldest event that is kept.
        let after = Some(request.after_seq.unwrap_or(0));
        let subscription = Subscription::open(world.store(), after, filter, request.follow).await.map_err(to_status)?;
        let (sender, receiver) = mpsc::channel(QUEUE + 1);
        // Kept for the end, so that a reader with a full queue is still told why.
        let last_word = sender
            .clone()
            .try_reserve_owned()
            .map_err(|_| to_status(Refusal::new(Code::Internal, "a new queue had no room")))?;
        let feeder = Feeder {
            position: subscription.seen(),
            subscription,
            sender,
            world: Arc::clone(world),
            closed: closed.clone(),
            ephemeral: request.ephemeral,
        };
        tokio::spawn(feeder.run(last_word, seat));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// What a request wants to see, checked: a kind that cannot happen would be a stream that stays silent.
fn filter(request: &SubscribeRequest) -> Result<EventFilter, Refusal> {
    if request.kinds.len() > KINDS_MAX {
        return Err(input::bad("kinds", format!("has {} entries", request.kinds.len()))
            .hint(format!("name at most {KINDS_MAX}, or families such as `turn.`")));
    }
    for kind in &request.kinds {
        let mut known = EventKind::ALL.iter().map(|known| known.as_str());
        let is_known = match kind.strip_suffix('.') {
            Some(family) => !family.is_empty() && known.any(|known| known.starts_with(kind.as_str())),
            None => known.any(|known| known == kind),
        };
        if !is_known {
            let hint = match nearest(kind, EventKind::ALL.iter().map(|known| known.as_str())) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "a kind is such as `turn.started`, a family such as `turn.`".to_owned(),
            };
            return Err(input::bad("kinds", format!("has `{}`, which is no kind of event", clip(kind, 80))).hint(hint));
        }
    }
    Ok(EventFilter {
        kinds: request.kinds.clone(),
        agent_id: input::parsed_if("agent_id", request.agent_id.as_deref())?,
        channel: input::line_if("channel", request.channel.as_deref(), CHANNEL_MAX)?,
    })
}

type Item = Result<SubscribeResponse, Status>;

/// Moves events from the feed into one reader's queue.
struct Feeder {
    subscription: Subscription,
    sender: mpsc::Sender<Item>,
    world: Arc<World>,
    closed: watch::Receiver<bool>,
    ephemeral: bool,
    /// Every stored event up to here that matches is in the queue or read.
    position: i64,
}

/// Why a stream ends.
enum End {
    /// The present was reached, and the reader did not want more.
    Done,
    /// The reader has gone.
    Gone,
    /// The daemon goes.
    Stopping,
    /// The reader is too slow.
    Lagged,
    /// The feed cannot be read.
    Failed(Refusal),
}

impl Feeder {
    async fn run(mut self, last_word: mpsc::OwnedPermit<Item>, _seat: Seat) {
        let Err(end) = self.feed().await;
        let position = self.position;
        let told = match end {
            End::Done | End::Gone => return,
            End::Failed(refusal) => status(&refusal),
            End::Stopping => ended(
                tonic::Code::Unavailable,
                &Refusal::new(Code::Unavailable, "the daemon is stopping")
                    .hint(format!("subscribe again after {position} when it is back; nothing is lost")),
                position,
            ),
            End::Lagged => ended(
                tonic::Code::Aborted,
                &Refusal::new(Code::RateLimited, format!("this reader fell too far behind after sequence {position}"))
                    .hint("subscribe again after that sequence; nothing is lost"),
                position,
            ),
        };
        last_word.send(Err(told));
    }

    /// Feeds until there is a reason to end.
    async fn feed(&mut self) -> Result<std::convert::Infallible, End> {
        let clock = Arc::clone(&self.world.cx().ports.clock);
        loop {
            let next = tokio::select! {
                biased;
                () = self.sender.closed() => return Err(End::Gone),
                next = self.subscription.next() => Some(next),
                // Only when nothing is at hand any more: the last events of a world reach its readers.
                _ = self.closed.wait_for(|closed| *closed) => return Err(End::Stopping),
                () = clock.sleep(ALIVE) => None,
            };
            match next {
                None => {
                    self.position = self.subscription.seen();
                    self.send_at(None, self.position).await?;
                }
                Some(Ok(Some(event))) => self.send_all(event).await?,
                Some(Ok(None)) => {
                    self.position = self.subscription.seen();
                    self.send_at(None, self.position).await?;
                    return Err(End::Done);
                }
                Some(Err(refusal)) if is_lag(&refusal) => {
                    // Nothing is at hand, so all that was looked at has been sent.
                    self.position = self.subscription.seen();
                    return Err(End::Lagged);
                }
                Some(Err(refusal)) => return Err(End::Failed(refusal)),
            }
        }
    }

    /// Sends `event` and all that is ready after it.
    async fn send_all(&mut self, event: Event) -> Result<(), End> {
        let mut ready = Some(event);
        while let Some(event) = ready {
            ready = self.subscription.try_next();
            let ephemeral = event.kind.is_ephemeral();
            if ephemeral && !self.ephemeral {
                continue;
            }
            let reached = match &ready {
                // The last of a batch takes the position past those that did not match.
                None => self.subscription.seen(),
                Some(_) if ephemeral => self.position,
                Some(_) => event.seq,
            };
            self.send_at(Some((event, ephemeral)), reached).await?;
        }
        Ok(())
    }

    /// Queues one message. A reader without room is waited for until it is too far behind.
    async fn send_at(&mut self, event: Option<(Event, bool)>, reached: i64) -> Result<(), End> {
        let clock = Arc::clone(&self.world.cx().ports.clock);
        let permit = loop {
            match self.sender.try_reserve() {
                Ok(permit) => break permit,
                Err(mpsc::error::TrySendError::Closed(())) => return Err(End::Gone),
                Err(mpsc::error::TrySendError::Full(())) => {}
            }
            tokio::select! {
                biased;
                permit = self.sender.reserve() => break permit.map_err(|_| End::Gone)?,
                _ = self.closed.wait_for(|closed| *closed) => return Err(End::Stopping),
                () = clock.sleep(PATIENCE) => {
                    let behind = self.world.store().last_seq().saturating_sub(self.position);
                    if behind > i64::from(self.world.cx().limits().subscriber_buffer) {
                        return Err(End::Lagged);
                    }
                }
            }
        };
        self.position = self.position.max(reached);
        let ephemeral = event.as_ref().is_some_and(|(_, ephemeral)| *ephemeral);
        let event = event.map(|(event, _)| convert::event(&event));
        permit.send(Ok(SubscribeResponse { event, ephemeral, position_seq: self.position }));
        Ok(())
    }
}

fn is_lag(refusal: &Refusal) -> bool {
    refusal.details.as_ref().is_some_and(|details| details["lagged"] == true)
}

/// An end that a reader can go on from.
fn ended(code: tonic::Code, refusal: &Refusal, position: i64) -> Status {
    let told = status(refusal);
    let mut trailer = told.metadata().clone();
    trailer.insert(LAST_SEQ_TRAILER, MetadataValue::from(position));
    Status::with_metadata(code, told.message(), trailer)
}

#[cfg(test)]
mod tests;
