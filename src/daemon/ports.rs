//! The real clock, ids and random numbers.

use std::sync::Arc;

use ghost_domain::ports::{Ids, Ports, Rng};
pub use ghost_sandbox::SystemClock;
use uuid::Uuid;

/// UUIDs of version 7. They grow with time, so new rows go to the same database pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct UuidIds;

impl Ids for UuidIds {
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// Random numbers for jitter, from UUIDs of version 4.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsRng;

impl Rng for OsRng {
    fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Modulo is off by less than one in 2^40 for the small bounds of jitter.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        (high ^ low.rotate_left(17)) % bound
    }
}

/// The ports of a real daemon.
#[must_use]
pub fn system_ports() -> Ports {
    Ports { clock: Arc::new(SystemClock), ids: Arc::new(UuidIds), rng: Arc::new(OsRng) }
}
