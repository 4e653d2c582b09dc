//! Money, and what models cost.
//!
//! Must never: lose a millionth. Prices round up, and arithmetic saturates.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::{Code, Refusal};
use crate::transcript::TokenUsage;

/// Money in millionths of a US dollar. Never negative in a record; arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub u64);

impl Money {
    /// From US dollars; refuses what is not a finite number of 0 or more, too large to count, or so small that it would
    /// become nothing.
    pub fn from_usd(usd: f64) -> Result<Self, Refusal> {
        let micros = usd * 1e6;
        if usd > 0.0 && micros.round() < 1.0 {
            return Err(Refusal::new(Code::InvalidArguments, format!("{usd} is less than a millionth of a dollar"))
                .hint("amounts are kept in millionths of a dollar"));
        }
        if micros.is_finite() && (0.0..=1e15).contains(&micros) {
            // In range by the check above, so the conversion is exact to a millionth.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            Ok(Self(micros.round() as u64))
        } else {
            Err(Refusal::new(Code::InvalidArguments, format!("{usd} is not an amount of dollars"))
                .hint("give a number from 0 to 1000000000"))
        }
    }

    /// In US dollars, for output that people read.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // amounts stay far below 2^53 millionths
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// `$1.2345`: cents, and smaller parts as far as they say something. `ghostctl` prints money in the same way, from the
/// record room, which knows no noun of this one.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        let kept = whole.trim_end_matches('0').len().max(whole.len() - 4);
        write!(f, "${}", &whole[..kept])
    }
}

/// The price of a model: money for a million tokens of each sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// A million tokens read.
    pub input: Money,
    /// A million tokens written.
    pub output: Money,
    /// A million tokens read from the provider's cache.
    pub cache_read: Money,
    /// A million tokens written to the provider's cache.
    pub cache_write: Money,
}

impl Price {
    /// What a million tokens that are read cost at most, whatever the provider's cache has of them.
    #[must_use]
    pub fn dearest_read(&self) -> Money {
        self.input.max(self.cache_read).max(self.cache_write)
    }

    /// What `usage` costs, rounded up to a millionth of a dollar.
    #[must_use]
    pub fn of(&self, usage: TokenUsage) -> Money {
        let cached = usage.cache_read.saturating_add(usage.cache_write);
        let plain = usage.input.saturating_sub(cached);
        let sum = [
            (plain, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
            (usage.output, self.output),
        ]
        .iter()
        .map(|(tokens, price)| u128::from(*tokens) * u128::from(price.0))
        .sum::<u128>();
        Money(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price {
        input: Money(3_000_000),
        output: Money(15_000_000),
        cache_read: Money(300_000),
        cache_write: Money(3_750_000),
    };

    #[test]
    fn money_is_shown_in_cents_and_what_is_below_them() {
        for (micros, shown) in
            [(0, "$0.00"), (7, "$0.000007"), (500_000, "$0.50"), (1_234_500, "$1.2345"), (12_000_000, "$12.00")]
        {
            assert_eq!(Money(micros).to_string(), shown);
        }
    }

    #[test]
    fn amounts_too_small_to_keep_are_refused() {
        assert_eq!(Money::from_usd(0.0).unwrap(), Money(0));
        assert_eq!(Money::from_usd(0.000_001).unwrap(), Money(1));
        assert!(Money::from_usd(0.000_000_1).unwrap_err().message.contains("millionth"));
        assert!(Money::from_usd(f64::NAN).is_err() && Money::from_usd(-1.0).is_err());
    }

    #[test]
    fn prices_round_up_and_count_cached_tokens_once() {
        let usage = TokenUsage { input: 1_000, output: 100, cache_read: 600, cache_write: 200 };
        // 200 * 3 + 600 * 0.3 + 200 * 3.75 + 100 * 15 millionths
        assert_eq!(PRICE.of(usage), Money(600 + 180 + 750 + 1_500));
        assert_eq!(
            Price { input: Money(1), ..Price::default() }.of(TokenUsage { input: 1, ..TokenUsage::default() }),
            Money(1)
        );
    }
}
