//! All random numbers of a simulation, from one seed.
//!
//! A random number must never depend on anything but the seed and the earlier draws.

use std::sync::{Mutex, PoisonError};

use ghost_domain::ports::{Ids, Rng};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use uuid::Uuid;

/// A named stream of random numbers. Streams of one seed are independent of each other.
#[derive(Clone)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of this name.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a. Any hash of the name would do; this one is the same on every platform.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in name.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(ChaCha8Rng::seed_from_u64(hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder is negligible.
        if bound == 0 { 0 } else { self.0.next_u64() % bound }
    }

    /// A number in `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from).saturating_add(1))
    }

    /// True with a probability of `percent` per cent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A random item; `None` if there are no items.
    pub fn pick<'i, T>(&mut self, items: &'i [T]) -> Option<&'i T> {
        let index = self.below(items.len() as u64);
        items.get(usize::try_from(index).unwrap_or(0))
    }
}

/// The port [`Rng`] from a seed.
pub struct SimRng(Mutex<Dice>);

impl SimRng {
    /// The random numbers for jitter.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(Dice::new(seed, "jitter")))
    }
}

impl Rng for SimRng {
    fn below(&self, bound: u64) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).below(bound)
    }
}

/// The port [`Ids`] from a seed. Ids grow, as the daemon's do.
pub struct SimIds(Mutex<(u64, Dice)>);

impl SimIds {
    /// The ids of the world with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new((0, Dice::new(seed, "ids"))))
    }
}

impl Ids for SimIds {
    fn next(&self) -> Uuid {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, dice) = &mut *guard;
        *count += 1;
        Uuid::from_u128((u128::from(*count) << 64) | u128::from(dice.below(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ_by_name_and_seed() {
        let draw = |seed, name| {
            let mut dice = Dice::new(seed, name);
            (0..8).map(|_| dice.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
        let (ids, again) = (SimIds::new(7), SimIds::new(7));
        let first = ids.next();
        assert_eq!(first, again.next());
        assert!(first < ids.next());
    }
}
