//! The pool of one provider: how many calls run at once, who is next, and for how long nobody is, because the provider
//! asked for a pause.
//!
//! Must never: let a later caller overtake an earlier one, or keep the place of a caller that has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use ghost_domain::{Clock, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Slots of one provider, handed out first come first served.
pub struct Pool {
    slots: Arc<Semaphore>,
    clock: Arc<dyn Clock>,
    /// Milliseconds since the epoch before which nobody is let in.
    closed_until: AtomicI64,
    queued: Arc<AtomicUsize>,
    in_use: Arc<AtomicUsize>,
}

/// The right to one call. Dropping it lets the next one in.
pub struct Slot {
    _permit: Option<OwnedSemaphorePermit>,
    _in_use: Counted,
}

/// One in a count, for as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// A pool of `concurrency` slots, at least one.
    #[must_use]
    pub fn new(concurrency: u32, clock: Arc<dyn Clock>) -> Self {
        let slots = usize::try_from(concurrency).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            clock,
            closed_until: AtomicI64::new(i64::MIN),
            queued: Arc::default(),
            in_use: Arc::default(),
        }
    }

    /// Waits for a place: behind everyone who came before, and until a cool-down is over. Dropping the future gives
    /// the place up.
    pub async fn admit(&self) -> Slot {
        let queued = Counted::new(&self.queued);
        // The semaphore is private and never closed, so there is always a permit; its queue is first in, first out.
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok();
        // The permit is held through the cool-down, so that the order of arrival stays. It may be prolonged meanwhile.
        loop {
            let until = Timestamp(self.closed_until.load(Ordering::Acquire));
            if self.clock.now() >= until {
                break;
            }
            self.clock.sleep_until(until).await;
        }
        drop(queued);
        Slot { _permit: permit, _in_use: Counted::new(&self.in_use) }
    }

    /// Lets nobody in before `until`. A shorter pause than the one that holds changes nothing; calls under way go on.
    pub fn cool_down(&self, until: Timestamp) {
        self.closed_until.fetch_max(until.0, Ordering::AcqRel);
    }

    /// The instant up to which the pool is closed, if it is closed now.
    #[must_use]
    pub fn closed_until(&self) -> Option<Timestamp> {
        let until = Timestamp(self.closed_until.load(Ordering::Acquire));
        (self.clock.now() < until).then_some(until)
    }

    /// Callers that wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Slots that are out.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ManualClock;
    use futures_util::future::{FutureExt, poll_immediate};
    use std::pin::pin;
    use std::time::Duration;

    #[tokio::test]
    async fn callers_are_served_in_order_and_a_dropped_one_loses_its_place() {
        let pool = Pool::new(1, ManualClock::at(0));
        let first = pool.admit().await;
        let mut second = Box::pin(pool.admit());
        let mut third = Box::pin(pool.admit());
        let mut fourth = Box::pin(pool.admit());
        for waiting in [&mut second, &mut third, &mut fourth] {
            assert!(poll_immediate(waiting).await.is_none());
        }
        assert_eq!((pool.queued(), pool.in_use()), (3, 1));
        drop(second);
        assert_eq!(pool.queued(), 2);
        drop(first);
        assert!(poll_immediate(&mut fourth).await.is_none(), "the fourth must not overtake the third");
        let slot = poll_immediate(&mut third).await.expect("the third is next");
        assert_eq!((pool.queued(), pool.in_use()), (1, 1));
        drop(slot);
        assert!(poll_immediate(&mut fourth).await.is_some());
        assert_eq!((pool.queued(), pool.in_use()), (0, 0));
    }

    #[tokio::test]
    async fn a_place_that_was_won_but_never_polled_again_goes_to_the_next() {
        let pool = Pool::new(1, ManualClock::at(0));
        let first = pool.admit().await;
        let mut second = Box::pin(pool.admit());
        let mut third = Box::pin(pool.admit());
        assert!(poll_immediate(&mut second).await.is_none());
        assert!(poll_immediate(&mut third).await.is_none());
        drop(first);
        drop(second);
        assert!(poll_immediate(&mut third).await.is_some());
    }

    #[tokio::test]
    async fn a_cool_down_holds_everyone_and_can_be_prolonged() {
        let clock = ManualClock::at(1_000);
        let pool = Pool::new(4, Arc::clone(&clock) as Arc<dyn Clock>);
        pool.cool_down(Timestamp(2_000));
        let mut waiting = pin!(pool.admit());
        assert!(waiting.as_mut().now_or_never().is_none());
        pool.cool_down(Timestamp(3_000));
        pool.cool_down(Timestamp(1_500));
        clock.advance(Duration::from_millis(1_500));
        assert!(waiting.as_mut().now_or_never().is_none(), "prolonged to 3,000");
        assert_eq!(pool.closed_until(), Some(Timestamp(3_000)));
        clock.advance(Duration::from_millis(500));
        assert!(waiting.as_mut().now_or_never().is_some());
        assert_eq!(pool.closed_until(), None);
    }
}
