//! What random scripts are thrown with: the same seed gives the same numbers on every machine.

use ghost_domain::Timestamp;

pub(super) const AGENTS: [&str; 3] = ["a", "b", "c"];

/// A small generator of numbers (splitmix64): the same seed gives the same script on every machine.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// The numbers of one operation: `n`, that no other has, and three dice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roll {
    pub(super) n: u64,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) c: u64,
}

impl Roll {
    /// The numbers of operation `n`.
    pub(super) fn of(n: u64, dice: &mut Dice) -> Self {
        Self { n, a: dice.below(1_000), b: dice.below(1_000), c: dice.below(1_000) }
    }
}

pub(super) fn one_of<T: Copy>(all: &[T], dice: u64) -> T {
    all[usize::try_from(dice % u64::try_from(all.len()).unwrap()).unwrap()]
}

/// The time of operation `n`: later operations are later.
pub(super) fn moment(n: u64) -> Timestamp {
    Timestamp(1_000_000 + i64::try_from(n).unwrap())
}
