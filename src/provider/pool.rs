//! The pool of one provider: how many calls run at once, who is next, and for how long nobody is, because the provider
//! asked for a pause.
//!
//! Must never: let a later caller overtake an earlier one, or keep the place of a caller that has gone.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_domain::{Clock, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Slots of one provider, handed out first come first served.
pub struct Pool {
    slots: Arc<Semaphore>,
    size: Arc<Mutex<Size>>,
    clock: Arc<dyn Clock>,
    /// Milliseconds since the epoch before which nobody is let in.
    closed_until: AtomicI64,
    queued: Arc<AtomicUsize>,
    in_use: Arc<AtomicUsize>,
}

/// How many slots a pool has, and how many of those that are out are not to come back, because it was made smaller.
struct Size {
    slots: usize,
    surplus: usize,
}

/// The right to one call. Dropping it lets the next one in.
pub struct Slot {
    _place: Place,
    _in_use: Counted,
}

/// A place among those that a pool has.
struct Place {
    permit: Option<OwnedSemaphorePermit>,
    size: Arc<Mutex<Size>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut size = locked(&self.size);
        if let Some(permit) = self.permit.take() {
            if size.surplus > 0 {
                size.surplus -= 1;
                permit.forget();
            } else {
                // Given back under the lock, or a pool that is made smaller at this moment would not find it.
                drop(permit);
            }
        }
    }
}

/// The numbers are whole after every statement, so those of a lock that a panic poisoned are, too.
fn locked(size: &Mutex<Size>) -> MutexGuard<'_, Size> {
    size.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bounded(concurrency: u32) -> usize {
    usize::try_from(concurrency).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS)
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
        let slots = bounded(concurrency);
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            size: Arc::new(Mutex::new(Size { slots, surplus: 0 })),
            clock,
            closed_until: AtomicI64::new(i64::MIN),
            queued: Arc::default(),
            in_use: Arc::default(),
        }
    }

    /// Makes it a pool of `concurrency` slots, at least one. Calls under way go on; while there are more of them than that,
    /// nobody is let in.
    pub fn resize(&self, concurrency: u32) {
        let (slots, mut size) = (bounded(concurrency), locked(&self.size));
        if slots > size.slots {
            let more = slots - size.slots;
            // Those that were not to come back may.
            let kept = more.min(size.surplus);
            size.surplus -= kept;
            self.slots.add_permits(more - kept);
        } else {
            let less = size.slots - slots;
            size.surplus += less - self.slots.forget_permits(less);
        }
        size.slots = slots;
    }

    /// Waits for a place: behind everyone who came before, and until a cool-down is over. Dropping the future gives
    /// the place up.
    pub async fn admit(&self) -> Slot {
        let queued = Counted::new(&self.queued);
        // The semaphore is private and never closed, so there is always a permit; its queue is first in, first out.
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok();
        let place = Place { permit, size: Arc::clone(&self.size) };
        // The permit is held through the cool-down, so that the order of arrival stays. It may be prolonged meanwhile.
        loop {
            let until = Timestamp(self.closed_until.load(Ordering::Acquire));
            if self.clock.now() >= until {
                break;
            }
            self.clock.sleep_until(until).await;
        }
        drop(queued);
        Slot { _place: place, _in_use: Counted::new(&self.in_use) }
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
    async fn a_pool_is_resized_under_its_callers() {
        let pool = Pool::new(3, ManualClock::at(0));
        let (first, second) = (pool.admit().await, pool.admit().await);
        // One slot is free and goes at once, one of the two that are out when it comes back.
        pool.resize(1);
        let mut third = Box::pin(pool.admit());
        assert!(poll_immediate(&mut third).await.is_none());
        drop(first);
        assert!(poll_immediate(&mut third).await.is_none(), "one is out, and there is one");
        drop(second);
        let third = poll_immediate(&mut third).await.expect("its turn");
        let mut fourth = Box::pin(pool.admit());
        assert!(poll_immediate(&mut fourth).await.is_none());
        // What was to go stays when there are to be more again before it went.
        pool.resize(2);
        let fourth = poll_immediate(&mut fourth).await.expect("there are two");
        pool.resize(1);
        pool.resize(2);
        let mut fifth = Box::pin(pool.admit());
        assert!(poll_immediate(&mut fifth).await.is_none());
        drop((third, fourth));
        let _fifth = poll_immediate(&mut fifth).await.expect("two are free");
        let _sixth = poll_immediate(&mut Box::pin(pool.admit())).await.expect("one is free");
        assert!(poll_immediate(&mut Box::pin(pool.admit())).await.is_none());
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
