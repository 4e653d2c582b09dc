//! The queue of model calls that wait for budget which other calls have reserved. A call waits for
//! one account at a time. When that account has free budget again, the first call that waits for it
//! is notified; calls that wait for other accounts are not held up. A new call waits behind the
//! calls that wait for one of its accounts, even if its own demand would fit.
//!
//! Every waiting call must be notified in the end. So a change between a call's budget check and its
//! wait makes it check again, and a notified call that does not proceed, for whatever reason,
//! notifies the next. Calls whose budget is spent, not reserved, do not wait here: they wait for
//! [`BudgetQueue::limits_changed`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_domain::Scope;
use tokio::sync::Notify;

/// The budget queue of a world.
#[derive(Default)]
pub struct BudgetQueue {
    state: Mutex<State>,
    /// Notified when a limit was set: calls that found a budget spent check again.
    pub(crate) limits_changed: Notify,
    /// How often a limit was set.
    limit_changes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// How often an account got free budget, or a call left the queue.
    changes: u64,
    /// Tickets issued so far.
    tickets: u64,
    /// The waiting calls, by account and ticket. Tickets rise in the order in which calls first
    /// waited.
    waiting: BTreeMap<(Scope, u64), Arc<Notify>>,
}

impl State {
    /// Removes and notifies the first call that waits for this account.
    fn notify_first(&mut self, scope: &Scope) {
        let first = self.waiting.range((scope.clone(), 0)..=(scope.clone(), u64::MAX)).next();
        if let Some(key) = first.map(|(key, _)| key.clone())
            && let Some(notify) = self.waiting.remove(&key)
        {
            notify.notify_one();
        }
    }
}

impl BudgetQueue {
    /// Notifies the first waiting call of each of these accounts.
    pub fn freed(&self, scopes: &[Scope]) {
        let mut state = self.lock();
        state.changes += 1;
        scopes.iter().for_each(|scope| state.notify_first(scope));
    }

    /// Makes all calls that found a budget spent check again.
    pub fn limits_set(&self) {
        self.limit_changes.fetch_add(1, Ordering::AcqRel);
        self.limits_changed.notify_waiters();
    }

    /// How often a limit was set.
    pub(crate) fn limit_changes(&self) -> u64 {
        self.limit_changes.load(Ordering::Acquire)
    }

    /// The number of waiting calls.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The position of one call in the queue. Dropping it leaves the queue.
pub(crate) struct Ticket {
    queue: Arc<BudgetQueue>,
    ticket: Option<u64>,
    /// The value of `changes` at the last check.
    seen: u64,
    /// The account that the call waits for, or was notified for and has not yet passed on.
    account: Option<Scope>,
}

impl Ticket {
    pub(crate) fn new(queue: &Arc<BudgetQueue>) -> Self {
        Self { queue: Arc::clone(queue), ticket: None, seen: 0, account: None }
    }

    /// Call this before a budget check. Returns the accounts for which calls with lower tickets
    /// wait.
    pub(crate) fn check(&mut self) -> BTreeSet<Scope> {
        let state = self.queue.lock();
        self.seen = state.changes;
        let before = state.waiting.keys().filter(|(_, other)| self.ticket.is_none_or(|own| *other < own));
        let mut accounts: Vec<&Scope> = before.map(|(account, _)| account).collect();
        accounts.dedup();
        accounts.into_iter().cloned().collect()
    }

    /// Waits until `scope`, whose budget was reserved at the last check, may have free budget. Keeps its ticket
    /// over several waits.
    pub(crate) async fn wait(&mut self, scope: Scope) {
        let notify = Arc::new(Notify::new());
        if self.account.as_ref() != Some(&scope) {
            // The call gives up the free budget that it was notified for. That is one change, its
            // own.
            let before = self.account.is_some() && self.ticket.is_some();
            self.pass_on();
            self.seen += u64::from(before);
        }
        {
            let mut state = self.queue.lock();
            if state.changes != self.seen {
                return;
            }
            let ticket = *self.ticket.get_or_insert_with(|| {
                state.tickets += 1;
                state.tickets
            });
            state.waiting.insert((scope.clone(), ticket), Arc::clone(&notify));
            self.account = Some(scope);
        }
        notify.notified().await;
    }

    /// Notifies the next call, while this one cannot proceed. This one keeps its ticket.
    pub(crate) fn pass_on(&mut self) {
        let (Some(scope), Some(ticket)) = (self.account.take(), self.ticket) else { return };
        let mut state = self.queue.lock();
        // Calls that checked before this one left and do not wait yet must check again: perhaps no
        // call is left that would notify them.
        state.changes += 1;
        let key = (scope, ticket);
        // A notified call has already been removed.
        if state.waiting.remove(&key).is_none() {
            state.notify_first(&key.0);
        }
    }

    /// Gives the ticket up: the call proceeds, and the account may have free budget for another.
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
    async fn freed_room_notifies_the_first_waiting_call_of_that_account() {
        let queue = Arc::new(BudgetQueue::default());
        let (mut one, mut two, mut other) = (ticket(&queue), ticket(&queue), ticket(&queue));
        {
            let (mut first, mut second) = (pin!(one.wait(Scope::World)), pin!(two.wait(Scope::World)));
            let mut third = pin!(other.wait(team("a")));
            assert!(poll_immediate(&mut first).await.is_none() && poll_immediate(&mut second).await.is_none());
            assert!(poll_immediate(&mut third).await.is_none());
            queue.freed(&[Scope::World, team("b")]);
            assert!(poll_immediate(&mut second).await.is_none(), "only the first is notified");
            assert!(poll_immediate(&mut third).await.is_none(), "its account got no room");
            assert!(poll_immediate(&mut first).await.is_some());
        }
        drop((one, two, other));
        assert_eq!(queue.len(), 0, "dropped tickets leave the queue");
    }

    #[tokio::test]
    async fn a_later_call_sees_which_accounts_are_waited_for_and_checks_again_after_a_change() {
        let queue = Arc::new(BudgetQueue::default());
        let (mut one, mut later) = (ticket(&queue), Ticket::new(&queue));
        {
            let mut first = pin!(one.wait(Scope::World));
            assert!(poll_immediate(&mut first).await.is_none());
            assert_eq!(later.check(), BTreeSet::from([Scope::World]));
            // The waiting call is notified and leaves before the later one joins the queue. The
            // later one must not wait for it.
            queue.freed(&[Scope::World]);
            assert!(poll_immediate(&mut first).await.is_some());
        }
        assert!(poll_immediate(pin!(later.wait(Scope::World))).await.is_some());
        assert_eq!(later.check(), BTreeSet::new());
        one.leave();
        assert!(poll_immediate(pin!(later.wait(Scope::World))).await.is_some(), "a notified call has left since");
        // A call waits neither behind later calls nor behind itself.
        later.check();
        assert!(poll_immediate(pin!(later.wait(Scope::World))).await.is_none());
        one.check();
        assert!(poll_immediate(pin!(one.wait(Scope::World))).await.is_none());
        assert_eq!((later.check(), one.check()), (BTreeSet::new(), BTreeSet::from([Scope::World])));
    }

    #[tokio::test]
    async fn a_notified_call_that_leaves_or_waits_elsewhere_notifies_the_next() {
        let leave = |mut ticket: Ticket| async move {
            ticket.leave();
            Some(ticket)
        };
        let dropped = |ticket: Ticket| async move {
            drop(ticket);
            None
        };
        let elsewhere = |mut ticket: Ticket| async move {
            ticket.check();
            assert!(poll_immediate(pin!(ticket.wait(team("a")))).await.is_none());
            Some(ticket)
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
                1 => dropped(one).await,
                _ => elsewhere(one).await,
            };
            assert!(poll_immediate(&mut second).await.is_some(), "{way}");
            drop(kept);
        }
    }

    #[tokio::test]
    async fn a_notified_call_that_finds_no_room_keeps_its_position() {
        let queue = Arc::new(BudgetQueue::default());
        let (mut one, mut two) = (ticket(&queue), ticket(&queue));
        assert!(poll_immediate(pin!(one.wait(Scope::World))).await.is_none());
        let mut second = pin!(two.wait(Scope::World));
        assert!(poll_immediate(&mut second).await.is_none());
        queue.freed(&[Scope::World]);
        one.check();
        let mut first = pin!(one.wait(Scope::World));
        assert!(poll_immediate(&mut first).await.is_none());
        assert!(poll_immediate(&mut second).await.is_none(), "the first is still before it");
        queue.freed(&[Scope::World]);
        assert!(poll_immediate(&mut first).await.is_some() && poll_immediate(&mut second).await.is_none());
    }

    #[tokio::test]
    async fn a_change_between_check_and_wait_is_not_missed() {
        let queue = Arc::new(BudgetQueue::default());
        let mut one = ticket(&queue);
        queue.freed(&[Scope::World]);
        assert!(poll_immediate(pin!(one.wait(Scope::World))).await.is_some(), "it returns at once, to check again");
        one.check();
        assert!(poll_immediate(pin!(one.wait(Scope::World))).await.is_none());
        drop(one);
        assert_eq!(queue.len(), 0);
    }
}
