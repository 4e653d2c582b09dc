//! The secrets that were given out: tickets, each good for one stream, soon and once, and cookies, which last longer.
//!
//! Must never: keep a secret as it is, or take a ticket twice.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ghost_domain::Timestamp;
use sha2::{Digest as _, Sha256};

/// A ticket is good for so long.
pub(super) const GOOD_FOR: Duration = Duration::from_secs(30);
/// Tickets that wait to be used.
pub(super) const MOST: usize = 1_024;

type Hash = [u8; 32];

/// The tickets that were given out and not used, by their hashes: looking one up tells nothing about the others.
pub(super) struct Tickets {
    waiting: Mutex<BTreeMap<Hash, Timestamp>>,
    good_for: Duration,
}

impl Tickets {
    /// None yet; each is good for so long.
    pub(super) fn lasting(good_for: Duration) -> Self {
        Self { waiting: Mutex::default(), good_for }
    }

    /// Gives one out. Gives nothing if too many wait.
    pub(super) fn give(&self, ticket: &str, now: Timestamp) -> Option<Timestamp> {
        // What is put here is whole, so a poisoned lock still guards a whole value.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, until| *until > now);
        if waiting.len() >= MOST {
            return None;
        }
        let until = now.plus(self.good_for);
        waiting.insert(Sha256::digest(ticket.as_bytes()).into(), until);
        Some(until)
    }

    /// Whether a ticket was given out and is still good.
    pub(super) fn holds(&self, ticket: &str, now: Timestamp) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let hash: Hash = Sha256::digest(ticket.as_bytes()).into();
        waiting.get(&hash).is_some_and(|until| *until > now)
    }

    /// The same, and it is not any more after this.
    pub(super) fn take(&self, ticket: &str, now: Timestamp) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let hash: Hash = Sha256::digest(ticket.as_bytes()).into();
        waiting.remove(&hash).is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_for_a_while() {
        let tickets = Tickets::lasting(GOOD_FOR);
        let start = Timestamp(1_000_000);
        let until = tickets.give("a", start).unwrap();
        assert_eq!(until, start.plus(GOOD_FOR));
        assert!(!tickets.take("b", start) && !tickets.take("", start));
        assert!(tickets.holds("a", start) && !tickets.holds("b", start) && !tickets.holds("a", until));
        assert!(tickets.take("a", start), "once");
        assert!(!tickets.take("a", start) && !tickets.holds("a", start), "and not twice");
        tickets.give("late", start).unwrap();
        assert!(!tickets.take("late", until), "not too late");
        for number in 0..MOST {
            tickets.give(&number.to_string(), start).unwrap();
        }
        assert_eq!(tickets.give("one more", start), None, "bounded");
        assert!(tickets.give("later", until).is_some(), "what is too old makes room");
    }
}
