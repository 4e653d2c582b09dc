//! What the agent reports about tokens and cost. It is the agent's word, and nothing checks it.

use serde_json::Value;

use ghost_coding::text::one_line;

/// What the agent reported last. Every part may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Tokens of the turn or of the session: agents differ.
    pub tokens: Option<Tokens>,
    /// How full the context window is.
    pub context: Option<Context>,
    /// The cost of the session so far.
    pub cost: Option<Cost>,
}

/// Tokens, as the agent counts them: with some agents, `input` includes those that were read from a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Tokens of the input.
    pub input: u64,
    /// Tokens that the model wrote.
    pub output: u64,
    /// Tokens of the input that were read from a cache.
    pub cache_read: u64,
    /// Tokens of the input that were written to a cache.
    pub cache_write: u64,
}

/// The context window, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Tokens that are in it.
    pub used: u64,
    /// Tokens that fit.
    pub size: u64,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// How much.
    pub amount: f64,
    /// The code of the currency, for example `USD`. At most 8 characters.
    pub currency: String,
}

impl Cost {
    pub(crate) fn new(amount: f64, currency: &str) -> Self {
        Self { amount, currency: one_line(currency, 8) }
    }
}

impl Usage {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Tokens {
    /// The tokens in a `usage` object, if it has any of the known fields.
    pub(crate) fn read(usage: &Value) -> Option<Self> {
        let field = |names: &[&str]| names.iter().find_map(|name| usage.get(name)?.as_u64());
        let input = field(&["inputTokens", "input_tokens"]);
        let output = field(&["outputTokens", "output_tokens"]);
        let cache_read = field(&["cachedReadTokens", "cached_read_tokens", "cacheReadTokens"]);
        let cache_write = field(&["cachedWriteTokens", "cached_write_tokens", "cacheWriteTokens"]);
        input.or(output).or(cache_read).or(cache_write)?;
        let or_zero = Option::unwrap_or_default;
        Some(Self {
            input: or_zero(input),
            output: or_zero(output),
            cache_read: or_zero(cache_read),
            cache_write: or_zero(cache_write),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_are_read_under_both_spellings_and_nonsense_is_no_usage() {
        let expected = Some(Tokens { input: 1, output: 2, cache_read: 3, cache_write: 0 });
        assert_eq!(Tokens::read(&json!({"inputTokens": 1, "outputTokens": 2, "cachedReadTokens": 3})), expected);
        assert_eq!(Tokens::read(&json!({"input_tokens": 1, "output_tokens": 2, "cached_read_tokens": 3})), expected);
        for nonsense in [json!(null), json!(7), json!([]), json!({"outputTokens": -1}), json!({"outputTokens": "2"})] {
            assert_eq!(Tokens::read(&nonsense), None);
        }
    }
}
