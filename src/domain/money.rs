//! Money in millionths of a US dollar, and the prices of models.
//!
//! A cost must never be rounded down. Costs round up to a millionth, and arithmetic saturates.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::{Refusal, refusal};
use crate::transcript::TokenUsage;

/// An amount in millionths of a US dollar. Arithmetic saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub u64);

impl Money {
    /// Converts US dollars, rounded to the nearest millionth.
    ///
    /// # Errors
    /// `InvalidArguments` for a number below 0 or above 1,000,000,000, for NaN and infinity, and
    /// for an amount above 0 that would round to 0.
    pub fn from_usd(usd: f64) -> Result<Self, Refusal> {
        let micros = usd * 1e6;
        if usd > 0.0 && micros.round() < 1.0 {
            return Err(refusal!(InvalidArguments, "{usd} is less than a millionth of a dollar")
                .hint("amounts are kept in millionths of a dollar"));
        }
        if micros.is_finite() && (0.0..=1e15).contains(&micros) {
            // The check above makes the conversion safe.
            Ok(Self(micros.round() as u64))
        } else {
            Err(refusal!(InvalidArguments, "{usd} is not an amount of dollars")
                .hint("give a number from 0 to 1000000000"))
        }
    }

    /// The amount in US dollars, for display. Amounts stay far below 2^53 millionths.
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

/// Prints `$1.23`, with up to six decimals if they are not zero. `ghostctl` prints money
/// in the same way; it cannot import this crate.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        let kept = whole.trim_end_matches('0').len().max(whole.len() - 4);
        write!(f, "${}", &whole[..kept])
    }
}

/// The price of a model for a million tokens of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Input tokens that are not in the provider's cache.
    pub input: Money,
    /// Output tokens.
    pub output: Money,
    /// Input tokens read from the provider's cache.
    pub cache_read: Money,
    /// Input tokens written to the provider's cache.
    pub cache_write: Money,
}

impl Price {
    /// The highest price of a million input tokens: plain, read from the cache or written to it.
    pub fn dearest_read(&self) -> Money {
        self.input.max(self.cache_read).max(self.cache_write)
    }

    /// The cost of `usage`, rounded up to a millionth of a dollar.
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
    fn money_prints_at_least_two_decimals_and_no_trailing_zeros_after_them() {
        for (micros, shown) in
            [(0, "$0.00"), (7, "$0.000007"), (500_000, "$0.50"), (1_234_500, "$1.2345"), (12_000_000, "$12.00")]
        {
            assert_eq!(Money(micros).to_string(), shown);
        }
    }

    #[test]
    fn invalid_amounts_are_refused() {
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
