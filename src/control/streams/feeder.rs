//! Moves events from the feed into one reader's queue.
//!
//! A slow reader must never hold more than its queue. A stream must never end without the position
//! to resume at.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::{Code, Limits, Refusal};
use ghost_operations::feed::{FeedEvent, Subscription};
use ghost_world::World;
use tokio::sync::{mpsc, watch};

use super::item::RecentEvents;
use super::item::{EndReason, Ended, Item};
use super::reader::StreamPermit;
use crate::control::Control;

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
