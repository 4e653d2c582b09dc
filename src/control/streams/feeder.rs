//! Moves events from the feed into one reader's queue.
//!
//! Must never: let a reader that does not read hold more than its queue, or end a stream without saying where to go on.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::{Code, Limits, Refusal};
use ghost_rules::feed::{FeedEvent, Subscription};
use ghost_world::World;
use tokio::sync::{mpsc, watch};

use super::item::{Ended, Item, Why};
use super::readers::Seat;
use super::shown::Lately;
use crate::control::Control;

/// A reader with a full queue is looked at this often.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// A quiet stream says this often that it lives, and up to where it has looked.
pub(crate) const ALIVE: Duration = Duration::from_secs(15);

/// One reader's feeder.
pub(super) struct Feeder {
    subscription: Subscription,
    sender: mpsc::Sender<Item>,
    world: Arc<World>,
    lately: Arc<Lately>,
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
    /// The reader has taken nothing for too long.
    Stalled(Duration),
    /// The feed cannot be read.
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
            lately: Arc::clone(&control.lately),
            closed: control.closed.clone(),
            ephemeral,
        }
    }

    /// Feeds until the end, and says what it was.
    pub(super) async fn run(mut self, last_word: mpsc::OwnedPermit<Item>, seat: Arc<Seat>) {
        let Err(end) = self.feed().await;
        let position = self.position;
        let (why, refusal) = match end {
            End::Done | End::Gone => return,
            End::Failed(refusal) => (Why::Failed, refusal),
            End::Stopping => (
                Why::Stopping,
                Refusal::new(Code::Unavailable, "the daemon is stopping")
                    .hint(format!("subscribe again after {position} when it is back; nothing is lost")),
            ),
            End::Stalled(most) => (
                Why::Lagged,
                Refusal::new(
                    Code::RateLimited,
                    format!("this reader took nothing for {most:?} after sequence {position}"),
                )
                .hint("subscribe again after that sequence; nothing is lost"),
            ),
            End::Lagged => (
                Why::Lagged,
                Refusal::new(Code::RateLimited, format!("this reader fell too far behind after sequence {position}"))
                    .hint("subscribe again after that sequence; nothing is lost"),
            ),
        };
        if matches!(why, Why::Lagged) {
            seat.lags();
        }
        last_word.send(Item::Ended(Ended { why, refusal, position }));
    }

    /// Feeds until there is a reason to end.
    async fn feed(&mut self) -> Result<std::convert::Infallible, End> {
        let clock = Arc::clone(&self.world.ctx().ports.clock);
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
                None => self.say_position().await?,
                Some(Ok(Some(event))) => self.send_all(event).await?,
                Some(Ok(None)) => {
                    self.say_position().await?;
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

    async fn say_position(&mut self) -> Result<(), End> {
        self.position = self.subscription.seen();
        self.send(Item::Position(self.position), self.position).await
    }

    /// Sends `event` and all that is ready after it.
    async fn send_all(&mut self, event: FeedEvent) -> Result<(), End> {
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
            let reached = self.position.max(reached);
            self.send(Item::Event(self.lately.shown(&event), reached), reached).await?;
        }
        Ok(())
    }

    /// Queues one item. A reader without room is waited for until it is too far behind, or has taken nothing for
    /// too long.
    async fn send(&mut self, item: Item, reached: i64) -> Result<(), End> {
        let permit = match self.sender.try_reserve() {
            Ok(permit) => permit,
            Err(mpsc::error::TrySendError::Closed(())) => return Err(End::Gone),
            Err(mpsc::error::TrySendError::Full(())) => self.wait_for_room().await?,
        };
        permit.send(item);
        self.position = self.position.max(reached);
        Ok(())
    }

    async fn wait_for_room(&self) -> Result<mpsc::Permit<'_, Item>, End> {
        let clock = Arc::clone(&self.world.ctx().ports.clock);
        let mut closed = self.closed.clone();
        let most = Limits::seconds(self.world.ctx().limits().reader_stall_seconds);
        let mut stalled = clock.sleep(most);
        loop {
            tokio::select! {
                biased;
                permit = self.sender.reserve() => return permit.map_err(|_| End::Gone),
                _ = closed.wait_for(|closed| *closed) => return Err(End::Stopping),
                () = stalled.as_mut() => return Err(End::Stalled(most)),
                () = clock.sleep(PATIENCE) => {
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
