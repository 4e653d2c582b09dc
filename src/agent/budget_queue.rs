//! The line of model calls that wait for what other calls hold of a budget, one for each account that was full. When an
//! account has room again, the first in its line is called; whoever leaves calls the next. Who comes later lines up behind them, though
//! it may fit.
//!
//! Must never: let a call wait that nobody would call. What changes while one finds an account full is noticed before it lines
//! up, and one that was called and does not go on, for whatever reason, passes the call on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_domain::Scope;
use tokio::sync::Notify;

/// The line of a world.
#[derive(Default)]
pub struct BudgetQueue {
    /// How often any account had room again, or anybody left a line.
    changes: AtomicU64,
    tickets: AtomicU64,
    /// Who waits for room in an account, by their tickets: in the order in which they first came.
    waiting: Mutex<Waiting>,
    /// Rings when a limit was set: whoever found a budget spent looks again.
    pub(crate) raised: Notify,
    /// How often it rang.
    raises: AtomicU64,
}

type Waiting = BTreeMap<Scope, BTreeMap<u64, Arc<Notify>>>;

impl BudgetQueue {
    /// Calls the first who waits for each of these accounts.
    pub fn freed(&self, scopes: &[Scope]) {
        let mut waiting = self.lock();
        // Before anyone can line up who has not seen it.
        self.changes.fetch_add(1, Ordering::AcqRel);
        scopes.iter().for_each(|scope| call_next(&mut waiting, scope));
    }

    /// Has everyone look again who found a budget spent.
    pub fn limits_set(&self) {
        self.raises.fetch_add(1, Ordering::AcqRel);
        self.raised.notify_waiters();
    }

    /// How often a limit was set.
    pub(crate) fn raises(&self) -> u64 {
        self.raises.load(Ordering::Acquire)
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().values().map(BTreeMap::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn call_next(waiting: &mut Waiting, scope: &Scope) {
    let Some(line) = waiting.get_mut(scope) else { return };
    if let Some((_, bell)) = line.pop_first() {
        bell.notify_one();
    }
    if line.is_empty() {
        waiting.remove(scope);
    }
}

/// The place of one who may have to wait. Dropping it leaves the line.
pub(crate) struct Ticket {
    queue: Arc<BudgetQueue>,
    ticket: Option<u64>,
    /// What had changed when it last looked.
    seen: u64,
    /// The account that it waits for, or was called for and has not passed the call on.
    at: Option<Scope>,
}

impl Ticket {
    pub(crate) fn new(queue: &Arc<BudgetQueue>) -> Self {
        Self { queue: Arc::clone(queue), ticket: None, seen: 0, at: None }
    }

    /// Says that it looks now whether there is room. Gives the accounts for whose room others wait who came before it.
    pub(crate) fn check(&mut self) -> BTreeSet<Scope> {
        let waiting = self.queue.lock();
        self.seen = self.queue.changes.load(Ordering::Acquire);
        let before = |line: &BTreeMap<u64, Arc<Notify>>| {
            line.first_key_value().is_some_and(|(first, _)| self.ticket.is_none_or(|ticket| *first < ticket))
        };
        waiting.iter().filter(|(_, line)| before(line)).map(|(scope, _)| scope.clone()).collect()
    }

    /// Waits until there may be room in `scope`, which was full when it looked. Keeps its place over several waits.
    pub(crate) async fn wait(&mut self, scope: Scope) {
        let bell = Arc::new(Notify::new());
        if self.at.as_ref() != Some(&scope) {
            // The room that it was called for is somebody else's. That much it has changed itself.
            let before = self.at.is_some() && self.ticket.is_some();
            self.pass_on();
            self.seen += u64::from(before);
        }
        {
            let mut waiting = self.queue.lock();
            if self.queue.changes.load(Ordering::Acquire) != self.seen {
                return;
            }
            let ticket = *self.ticket.get_or_insert_with(|| self.queue.tickets.fetch_add(1, Ordering::Relaxed));
            waiting.entry(scope.clone()).or_default().insert(ticket, Arc::clone(&bell));
            self.at = Some(scope);
        }
        bell.notified().await;
    }

    /// Has the next tried instead, while this one cannot go on; it keeps its place.
    pub(crate) fn pass_on(&mut self) {
        let (Some(scope), Some(ticket)) = (self.at.take(), self.ticket) else { return };
        let mut waiting = self.queue.lock();
        // Who looked while this one was in the line, or another whom it calls, and has not lined up behind them yet, looks again:
        // there may be nobody left to call it.
        self.queue.changes.fetch_add(1, Ordering::AcqRel);
        let Some(line) = waiting.get_mut(&scope) else { return };
        // Whoever was called is in the line no more.
        if line.remove(&ticket).is_none() {
            call_next(&mut waiting, &scope);
        } else if line.is_empty() {
            waiting.remove(&scope);
        }
    }

    /// Gives the place up: its call goes on, and there may be room for another.
    pub(crate) fn leave(&mut self) {
        self.pass_on();
        self.ticket = None;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::future::poll_immediate;

    use super::*;

    fn team(name: &str) -> Scope {
        Scope::Team(name.into())
    }

    fn ticket(queue: &Arc<BudgetQueue>) -> Ticket {
        let mut ticket = Ticket::new(queue);
        ticket.check();
        ticket
    }

    #[tokio::test]
    async fn each_is_called_in_its_turn_and_whoever_goes_on_calls_the_next() {
        let queue = Arc::new(BudgetQueue::default());
        let (mut one, mut two, mut other) = (ticket(&queue), ticket(&queue), ticket(&queue));
        {
            let (mut first, mut second) = (pin!(one.wait(Scope::World)), pin!(two.wait(Scope::World)));
            let mut third = pin!(other.wait(team("a")));
            assert!(poll_immediate(&mut first).await.is_none() && poll_immediate(&mut second).await.is_none());
            assert!(poll_immediate(&mut third).await.is_none());
            queue.freed(&[Scope::World, team("b")]);
            assert!(poll_immediate(&mut second).await.is_none(), "one after the other");
            assert!(poll_immediate(&mut third).await.is_none(), "its account is as full as before");
            assert!(poll_immediate(&mut first).await.is_some());
        }
        drop((one, two, other));
        assert_eq!(queue.len(), 0, "whoever is gone is in no line");
    }

    #[tokio::test]
    async fn who_comes_later_sees_who_waits_and_is_never_left_behind_by_them() {
        let queue = Arc::new(BudgetQueue::default());
        let (mut one, mut later) = (ticket(&queue), Ticket::new(&queue));
        {
            let mut first = pin!(one.wait(Scope::World));
            assert!(poll_immediate(&mut first).await.is_none());
            assert_eq!(later.check(), BTreeSet::from([Scope::World]));
            // Called and gone before the other has lined up: it must not wait for somebody who will never call it.
            queue.freed(&[Scope::World]);
            assert!(poll_immediate(&mut first).await.is_some());
        }
        assert!(poll_immediate(pin!(later.wait(Scope::World))).await.is_some());
        assert_eq!(later.check(), BTreeSet::new());
        one.leave();
        assert!(poll_immediate(pin!(later.wait(Scope::World))).await.is_some(), "one that was called has left since");
        // Nobody is behind those who come after it, nor behind itself.
        later.check();
        assert!(poll_immediate(pin!(later.wait(Scope::World))).await.is_none());
        one.check();
        assert!(poll_immediate(pin!(one.wait(Scope::World))).await.is_none());
        assert_eq!((later.check(), one.check()), (BTreeSet::new(), BTreeSet::from([Scope::World])));
    }

    #[tokio::test]
    async fn a_call_is_passed_on_by_whoever_leaves_waits_for_another_account_or_cannot_go_on() {
        let leave = |mut place: Ticket| async move {
            place.leave();
            Some(place)
        };
        let gone = |place: Ticket| async move {
            drop(place);
            None
        };
        let elsewhere = |mut place: Ticket| async move {
            place.check();
            assert!(poll_immediate(pin!(place.wait(team("a")))).await.is_none());
            Some(place)
        };
        for way in 0..3 {
            let queue = Arc::new(BudgetQueue::default());
            let (mut one, mut two) = (ticket(&queue), ticket(&queue));
            let mut second = pin!(two.wait(Scope::World));
            {
                let mut first = pin!(one.wait(Scope::World));
                assert!(poll_immediate(&mut first).await.is_none() && poll_immediate(&mut second).await.is_none());
                queue.freed(&[Scope::World]);
                assert!(poll_immediate(&mut first).await.is_some());
            }
            assert!(poll_immediate(&mut second).await.is_none());
            let kept = match way {
                0 => leave(one).await,
                1 => gone(one).await,
                _ => elsewhere(one).await,
            };
            assert!(poll_immediate(&mut second).await.is_some(), "{way}");
            drop(kept);
        }
    }

    #[tokio::test]
    async fn one_that_was_called_and_finds_no_room_keeps_its_place_before_the_others() {
        let queue = Arc::new(BudgetQueue::default());
        let (mut one, mut two) = (ticket(&queue), ticket(&queue));
        assert!(poll_immediate(pin!(one.wait(Scope::World))).await.is_none());
        let mut second = pin!(two.wait(Scope::World));
        assert!(poll_immediate(&mut second).await.is_none());
        queue.freed(&[Scope::World]);
        one.check();
        let mut first = pin!(one.wait(Scope::World));
        assert!(poll_immediate(&mut first).await.is_none());
        assert!(poll_immediate(&mut second).await.is_none(), "it is not its turn");
        queue.freed(&[Scope::World]);
        assert!(poll_immediate(&mut first).await.is_some() && poll_immediate(&mut second).await.is_none());
    }

    #[tokio::test]
    async fn what_changes_between_the_look_and_the_wait_is_not_missed() {
        let queue = Arc::new(BudgetQueue::default());
        let mut one = ticket(&queue);
        queue.freed(&[Scope::World]);
        assert!(poll_immediate(pin!(one.wait(Scope::World))).await.is_some(), "it looks again at once");
        one.check();
        assert!(poll_immediate(pin!(one.wait(Scope::World))).await.is_none());
        drop(one);
        assert_eq!(queue.len(), 0);
    }
}
