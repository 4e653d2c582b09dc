//! Stores the hashes of issued secrets: tickets, each valid for one stream for a short time, and
//! session cookies, which last longer.
//!
//! A secret must never be stored in plain text. A ticket must never be accepted twice.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ghost_domain::Timestamp;
use sha2::{Digest as _, Sha256};

/// Lifetime of a ticket.
pub(super) const LIFETIME: Duration = Duration::from_secs(30);
/// Largest number of valid secrets in one store.
pub(super) const TICKETS_MAX: usize = 1_024;

type Hash = [u8; 32];

/// Secrets that were issued and are still valid, by hash. The time of a lookup reveals nothing about
/// the stored secrets.
pub(super) struct Tickets {
    valid: Mutex<BTreeMap<Hash, Timestamp>>,
    lifetime: Duration,
}

impl Tickets {
    /// An empty store. Each secret is valid for `lifetime`.
    pub(super) fn with_lifetime(lifetime: Duration) -> Self {
        Self { valid: Mutex::default(), lifetime }
    }

    /// Adds a secret and returns its expiry. Returns `None` if too many are valid.
    pub(super) fn add(&self, ticket: &str, now: Timestamp) -> Option<Timestamp> {
        // The map is never left half-changed, so a poisoned lock is safe to use.
        let mut valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        valid.retain(|_, until| *until > now);
        if valid.len() >= TICKETS_MAX {
            return None;
        }
        let until = now.plus(self.lifetime);
        valid.insert(Sha256::digest(ticket.as_bytes()).into(), until);
        Some(until)
    }

    /// Whether the secret was issued and has not expired.
    pub(super) fn is_valid(&self, ticket: &str, now: Timestamp) -> bool {
        let valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        let hash: Hash = Sha256::digest(ticket.as_bytes()).into();
        valid.get(&hash).is_some_and(|until| *until > now)
    }

    /// Like `is_valid`, and also removes the secret.
    pub(super) fn redeem(&self, ticket: &str, now: Timestamp) -> bool {
        let mut valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        let hash: Hash = Sha256::digest(ticket.as_bytes()).into();
        valid.remove(&hash).is_some_and(|until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_valid_once_until_it_expires() {
        let tickets = Tickets::with_lifetime(LIFETIME);
        let start = Timestamp(1_000_000);
        let until = tickets.add("a", start).unwrap();
        assert_eq!(until, start.plus(LIFETIME));
        assert!(!tickets.redeem("b", start) && !tickets.redeem("", start));
        assert!(tickets.is_valid("a", start) && !tickets.is_valid("b", start) && !tickets.is_valid("a", until));
        assert!(tickets.redeem("a", start), "once");
        assert!(!tickets.redeem("a", start) && !tickets.is_valid("a", start), "not twice");
        tickets.add("late", start).unwrap();
        assert!(!tickets.redeem("late", until), "not after its expiry");
        for number in 0..TICKETS_MAX {
            tickets.add(&number.to_string(), start).unwrap();
        }
        assert_eq!(tickets.add("one more", start), None, "the limit is reached");
        assert!(tickets.add("later", until).is_some(), "expired tickets make room");
    }
}
