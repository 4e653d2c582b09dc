//! The pool of one provider. It limits parallel calls, decides which call is next, and starts no
//! call during a pause that the provider asked for. Calls for people go before calls for machines,
//! but neither class waits for ever. Within a class no call overtakes an earlier one.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use ghost_domain::fair_queue::Class;
use ghost_domain::fair_queue::FairQueue;
use ghost_domain::{Clock, Timestamp};
use tokio::sync::oneshot;

/// The slots of one provider, given out first come, first served within a class.
pub struct Pool {
    queue: Arc<Mutex<Queue>>,
    clock: Arc<dyn Clock>,
    /// End of the current pause, in milliseconds since the epoch.
    closed_until: AtomicI64,
    queued: Arc<AtomicUsize>,
    in_use: Arc<AtomicUsize>,
}

/// The state of the slots and the waiting calls.
struct Queue {
    slots: usize,
    /// Slots in use; more than `slots` for a while after the pool was made smaller.
    slots_in_use: usize,
    waiting: FairQueue<Waiter>,
    tickets: u64,
}

struct Waiter {
    ticket: u64,
    grant: oneshot::Sender<()>,
}

impl Queue {
    /// Grants all free slots to waiting calls.
    fn grant_next(&mut self) {
        while self.slots_in_use < self.slots {
            let Some(next) = self.waiting.pop() else { return };
            self.slots_in_use += 1;
            // If the caller no longer waits, its dropped ticket gives the slot back.
            let _ = next.grant.send(());
        }
    }

    /// Removes a waiting call. Returns false if it has a slot already.
    fn leave(&mut self, ticket: u64) -> bool {
        self.waiting.remove(|waiter| waiter.ticket == ticket).is_some()
    }

    fn give_back(&mut self) {
        self.slots_in_use = self.slots_in_use.saturating_sub(1);
        self.grant_next();
    }
}

/// Permission for one call. Dropping it frees the slot.
pub struct Slot {
    held: HeldSlot,
    _in_use: Counted,
}

impl Slot {
    /// Whether the slot is of this pool.
    #[must_use]
    pub fn is_of(&self, pool: &Pool) -> bool {
        Arc::ptr_eq(&self.held.0, &pool.queue)
    }
}

/// One slot of the pool. Dropping it gives the slot back.
struct HeldSlot(Arc<Mutex<Queue>>);

impl Drop for HeldSlot {
    fn drop(&mut self) {
        lock(&self.0).give_back();
    }
}

/// A position in the queue. Dropping it leaves the queue, or gives back the slot that was granted.
struct Ticket {
    queue: Arc<Mutex<Queue>>,
    ticket: u64,
    taken: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.taken {
            let mut queue = lock(&self.queue);
            if !queue.leave(self.ticket) {
                queue.give_back();
            }
        }
    }
}

/// The queue is valid after every statement, so a poisoned lock is safe to use.
fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn slots_of(concurrency: u32) -> usize {
    usize::try_from(concurrency).unwrap_or(usize::MAX).max(1)
}

/// Adds one to a count while it lives.
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
    /// Creates a pool of `concurrency` slots, at least one.
    #[must_use]
    pub fn new(concurrency: u32, clock: Arc<dyn Clock>) -> Self {
        let queue = Queue { slots: slots_of(concurrency), slots_in_use: 0, waiting: FairQueue::default(), tickets: 0 };
        Self {
            queue: Arc::new(Mutex::new(queue)),
            clock,
            closed_until: AtomicI64::new(i64::MIN),
            queued: Arc::default(),
            in_use: Arc::default(),
        }
    }

    /// Changes the number of slots, at least one. Running calls continue; while they are more than
    /// the slots, no call starts.
    pub fn resize(&self, concurrency: u32) {
        let mut queue = lock(&self.queue);
        queue.slots = slots_of(concurrency);
        queue.grant_next();
    }

    /// Waits for a slot: after all earlier calls of its class, and until a pause is over. Dropping
    /// the future leaves the queue.
    pub async fn admit(&self, class: Class) -> Slot {
        let queued = Counted::new(&self.queued);
        let slot = self.slot(class).await;
        // The slot is held during the pause, so that the order of arrival is kept. The pause may be
        // prolonged meanwhile.
        loop {
            let until = Timestamp(self.closed_until.load(Ordering::Acquire));
            let left = until.since(self.clock.steady());
            if left.is_zero() {
                break;
            }
            self.clock.sleep(left).await;
        }
        drop(queued);
        Slot { held: slot, _in_use: Counted::new(&self.in_use) }
    }

    async fn slot(&self, class: Class) -> HeldSlot {
        let (granted, mut ticket) = {
            let mut queue = lock(&self.queue);
            queue.tickets += 1;
            let ticket = queue.tickets;
            let (grant, granted) = oneshot::channel();
            queue.waiting.push(class, Waiter { ticket, grant });
            queue.grant_next();
            (granted, Ticket { queue: Arc::clone(&self.queue), ticket, taken: false })
        };
        // The queue keeps the sender until it grants the slot, so the receiver cannot fail.
        let _ = granted.await;
        ticket.taken = true;
        HeldSlot(Arc::clone(&self.queue))
    }

    /// Starts no call before `until`, an instant of [`Clock::steady`]. A shorter pause than the current one changes nothing; running
    /// calls continue.
    pub fn cool_down(&self, until: Timestamp) {
        self.closed_until.fetch_max(until.0, Ordering::AcqRel);
    }

    /// The end of the current pause, if there is one, as an instant of [`Clock::steady`].
    #[must_use]
    pub fn closed_until(&self) -> Option<Timestamp> {
        let until = Timestamp(self.closed_until.load(Ordering::Acquire));
        (self.clock.steady() < until).then_some(until)
    }

    /// Number of waiting calls.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Number of running calls.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::{FutureExt, poll_immediate};
    use ghost_domain::testing::ManualClock;
    use std::pin::pin;
    use std::time::Duration;

    #[tokio::test]
    async fn callers_are_served_in_order_and_a_dropped_one_leaves_the_queue() {
        let pool = Pool::new(1, ManualClock::at(0));
        let first = pool.admit(Class::Machine).await;
        let mut second = Box::pin(pool.admit(Class::Machine));
        let mut third = Box::pin(pool.admit(Class::Machine));
        let mut fourth = Box::pin(pool.admit(Class::Machine));
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
    async fn people_go_before_machines_within_a_share() {
        let pool = Pool::new(1, ManualClock::at(0));
        let first = pool.admit(Class::Machine).await;
        let mut waiting = Vec::new();
        for (name, class) in [
            ("m1", Class::Machine),
            ("m2", Class::Machine),
            ("p1", Class::Person),
            ("p2", Class::Person),
            ("p3", Class::Person),
            ("p4", Class::Person),
        ] {
            let mut future = Box::pin(pool.admit(class));
            assert!(poll_immediate(&mut future).await.is_none());
            waiting.push((name, future));
        }
        drop(first);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let mut served = None;
            for (at, (name, future)) in waiting.iter_mut().enumerate() {
                if let Some(slot) = poll_immediate(future).await {
                    order.push(*name);
                    served = Some((at, slot));
                    break;
                }
            }
            let (at, slot) = served.expect("a call is next");
            drop(waiting.remove(at));
            drop(slot);
        }
        assert_eq!(order, ["p1", "p2", "p3", "m1", "p4", "m2"]);
    }

    #[tokio::test]
    async fn a_pool_is_resized_under_its_callers() {
        let pool = Pool::new(3, ManualClock::at(0));
        let (first, second) = (pool.admit(Class::Machine).await, pool.admit(Class::Machine).await);
        // One slot of three is free and is removed at once; another is removed when a call ends.
        pool.resize(1);
        let mut third = Box::pin(pool.admit(Class::Machine));
        assert!(poll_immediate(&mut third).await.is_none());
        drop(first);
        assert!(poll_immediate(&mut third).await.is_none(), "the one slot is in use");
        drop(second);
        let third = poll_immediate(&mut third).await.expect("it is next");
        let mut fourth = Box::pin(pool.admit(Class::Machine));
        assert!(poll_immediate(&mut fourth).await.is_none());
        // A removal that was not carried out is cancelled when the pool grows again.
        pool.resize(2);
        let fourth = poll_immediate(&mut fourth).await.expect("there are two");
        pool.resize(1);
        pool.resize(2);
        let mut fifth = Box::pin(pool.admit(Class::Machine));
        assert!(poll_immediate(&mut fifth).await.is_none());
        drop((third, fourth));
        let _fifth = poll_immediate(&mut fifth).await.expect("two are free");
        let _sixth = poll_immediate(&mut Box::pin(pool.admit(Class::Machine))).await.expect("one is free");
        assert!(poll_immediate(&mut Box::pin(pool.admit(Class::Machine))).await.is_none());
    }

    #[tokio::test]
    async fn a_granted_slot_that_is_dropped_goes_to_the_next() {
        let pool = Pool::new(1, ManualClock::at(0));
        let first = pool.admit(Class::Machine).await;
        let mut second = Box::pin(pool.admit(Class::Machine));
        let mut third = Box::pin(pool.admit(Class::Machine));
        assert!(poll_immediate(&mut second).await.is_none());
        assert!(poll_immediate(&mut third).await.is_none());
        drop(first);
        drop(second);
        assert!(poll_immediate(&mut third).await.is_some());
    }

    #[tokio::test]
    async fn a_pause_stops_all_callers_and_can_be_prolonged() {
        let clock = ManualClock::at(1_000);
        let pool = Pool::new(4, Arc::clone(&clock) as Arc<dyn Clock>);
        pool.cool_down(Timestamp(2_000));
        let mut waiting = pin!(pool.admit(Class::Machine));
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
