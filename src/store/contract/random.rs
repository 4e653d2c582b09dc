//! Random numbers for the scripts of commands. They depend only on the seed.

use super::prelude::*;
use std::fmt::Debug;

pub(super) const AGENTS: [&str; 3] = ["a", "b", "c"];

/// A small random number generator (splitmix64). The same seed gives the same numbers on every
/// machine.
pub(super) struct Random(u64);

impl Random {
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

/// The numbers of one operation: its own number `n`, and three random numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpNumbers {
    pub(super) n: u64,
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) c: u64,
}

impl OpNumbers {
    /// Creates the numbers of operation `n`.
    pub(super) fn of(n: u64, random: &mut Random) -> Self {
        Self { n, a: random.below(1_000), b: random.below(1_000), c: random.below(1_000) }
    }
}

pub(super) fn one_of<T: Copy>(all: &[T], random: u64) -> T {
    all[usize::try_from(random % u64::try_from(all.len()).unwrap()).unwrap()]
}

/// The time of operation `n`. Later operations have later times.
pub(super) fn moment(n: u64) -> Timestamp {
    Timestamp(1_000_000 + i64::try_from(n).unwrap())
}

/// Runs an operation of a script. Returns what it read, as text.
pub(super) type Run = fn(&mut Tx, OpNumbers) -> Result<String>;

/// What an operation read, as text.
pub(super) fn show(read: impl Debug) -> Result<String> {
    Ok(format!("{read:?}"))
}

/// The operations of a script, by name, each with what it reads. The first line names the transaction and the numbers.
macro_rules! operations {
    ($w:ident, $n:ident, $a:ident, $b:ident, $c:ident; $($name:literal: $read:expr;)+) => {
        pub(super) const ALL: &[(&str, Run)] = &[$(($name, {
            #[allow(unused_variables, reason = "an operation uses the numbers that it needs")]
            fn operation($w: &mut Tx, OpNumbers { n: $n, a: $a, b: $b, c: $c }: OpNumbers) -> Result<String> {
                show($read)
            }
            operation
        })),+];
    };
}
pub(super) use operations;
