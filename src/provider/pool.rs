//! The pool of one provider: how many calls run at once, who is next, and for how long nobody is, because the provider
//! asked for a pause. People go before machines, within a share, so that neither waits for ever.
//!
//! Must never: let a later caller overtake an earlier one of its class, or keep the place of a caller that has gone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_domain::{Clock, Timestamp};
use tokio::sync::oneshot;

/// How many slots in a row go to people while machines wait.
const PEOPLE_IN_A_ROW: u32 = 3;

/// On whose behalf a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A person waits for it: an operator, or someone in a conversation.
    Person,
    /// Agents among themselves, timers, jobs.
    Machine,
}

/// Slots of one provider, handed out first come first served within a class.
pub struct Pool {
    queue: Arc<Mutex<Queue>>,
    clock: Arc<dyn Clock>,
    /// Milliseconds since the epoch before which nobody is let in.
    closed_until: AtomicI64,
    queued: Arc<AtomicUsize>,
    in_use: Arc<AtomicUsize>,
}

/// Who holds a slot and who waits for one.
struct Queue {
    slots: usize,
    /// Slots that are out; more than `slots` for a while after the pool was made smaller.
    out: usize,
    people: VecDeque<Waiter>,
    machines: VecDeque<Waiter>,
    people_in_a_row: u32,
    tickets: u64,
}

struct Waiter {
    ticket: u64,
    call: oneshot::Sender<()>,
}

impl Queue {
    /// Calls as many as there are free slots for.
    fn call_next(&mut self) {
        while self.out < self.slots {
            let machines_turn = self.people_in_a_row >= PEOPLE_IN_A_ROW && !self.machines.is_empty();
            let person = if machines_turn { None } else { self.people.pop_front() };
            let next = match person {
                Some(person) => {
                    self.people_in_a_row += 1;
                    Some(person)
                }
                None => {
                    self.people_in_a_row = 0;
                    self.machines.pop_front()
                }
            };
            let Some(next) = next else { return };
            self.out += 1;
            // One that has gone meanwhile finds its ticket called and gives the slot back.
            let _ = next.call.send(());
        }
    }

    /// Takes a waiter out that has not been called yet.
    fn leave(&mut self, ticket: u64) -> bool {
        for line in [&mut self.people, &mut self.machines] {
            if let Some(at) = line.iter().position(|waiter| waiter.ticket == ticket) {
                line.remove(at);
                return true;
            }
        }
        false
    }

    fn give_back(&mut self) {
        self.out = self.out.saturating_sub(1);
        self.call_next();
    }
}

/// The right to one call. Dropping it lets the next one in.
pub struct Slot {
    _place: Place,
    _in_use: Counted,
}

/// A place among those that a pool has.
struct Place(Arc<Mutex<Queue>>);

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.0).give_back();
    }
}

/// A place in the line. Dropping it leaves the line, or gives back the slot that it was called for.
struct Ticket {
    queue: Arc<Mutex<Queue>>,
    ticket: u64,
    taken: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.taken {
            let mut queue = locked(&self.queue);
            if !queue.leave(self.ticket) {
                queue.give_back();
            }
        }
    }
}

/// The queue is whole after every statement, so that of a lock which a panic poisoned is, too.
fn locked(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bounded(concurrency: u32) -> usize {
    usize::try_from(concurrency).unwrap_or(usize::MAX).max(1)
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
        let queue = Queue {
            slots: bounded(concurrency),
            out: 0,
            people: VecDeque::new(),
            machines: VecDeque::new(),
            people_in_a_row: 0,
            tickets: 0,
        };
        Self {
            queue: Arc::new(Mutex::new(queue)),
            clock,
            closed_until: AtomicI64::new(i64::MIN),
            queued: Arc::default(),
            in_use: Arc::default(),
        }
    }

    /// Makes it a pool of `concurrency` slots, at least one. Calls under way go on; while there are more of them than that,
    /// nobody is let in.
    pub fn resize(&self, concurrency: u32) {
        let mut queue = locked(&self.queue);
        queue.slots = bounded(concurrency);
        queue.call_next();
    }

    /// Waits for a place: behind everyone of its class who came before, and until a cool-down is over. Dropping the future
    /// gives the place up.
    pub async fn admit(&self, class: Class) -> Slot {
        let queued = Counted::new(&self.queued);
        let place = self.place(class).await;
        // The slot is held through the cool-down, so that the order of arrival stays. It may be prolonged meanwhile.
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

    async fn place(&self, class: Class) -> Place {
        let (called, mut ticket) = {
            let mut queue = locked(&self.queue);
            queue.tickets += 1;
            let ticket = queue.tickets;
            let (call, called) = oneshot::channel();
            let line = match class {
                Class::Person => &mut queue.people,
                Class::Machine => &mut queue.machines,
            };
            line.push_back(Waiter { ticket, call });
            queue.call_next();
            (called, Ticket { queue: Arc::clone(&self.queue), ticket, taken: false })
        };
        // The queue keeps the sender until it calls, so this never ends otherwise.
        let _ = called.await;
        ticket.taken = true;
        Place(Arc::clone(&self.queue))
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
            let (at, slot) = served.expect("somebody is next");
            drop(waiting.remove(at));
            drop(slot);
        }
        assert_eq!(order, ["p1", "p2", "p3", "m1", "p4", "m2"]);
    }

    #[tokio::test]
    async fn a_pool_is_resized_under_its_callers() {
        let pool = Pool::new(3, ManualClock::at(0));
        let (first, second) = (pool.admit(Class::Machine).await, pool.admit(Class::Machine).await);
        // One slot is free and goes at once, one of the two that are out when it comes back.
        pool.resize(1);
        let mut third = Box::pin(pool.admit(Class::Machine));
        assert!(poll_immediate(&mut third).await.is_none());
        drop(first);
        assert!(poll_immediate(&mut third).await.is_none(), "one is out, and there is one");
        drop(second);
        let third = poll_immediate(&mut third).await.expect("its turn");
        let mut fourth = Box::pin(pool.admit(Class::Machine));
        assert!(poll_immediate(&mut fourth).await.is_none());
        // What was to go stays when there are to be more again before it went.
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
    async fn a_place_that_was_won_but_never_polled_again_goes_to_the_next() {
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
    async fn a_cool_down_holds_everyone_and_can_be_prolonged() {
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
