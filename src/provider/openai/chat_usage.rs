//! Reads the token counts of a chat completion.
//!
//! This module must never guess a count. Zero stands for one that is missing: no prompt and no answer has zero tokens.

use ghost_domain::transcript::TokenUsage;
use serde_json::Value;

/// No call uses so many tokens; a larger count is an error.
pub(crate) const COUNT_MAX: u64 = 1_000_000_000;

/// The tokens that `usage` reports; zero for a count that it does not report.
pub(crate) fn tokens(usage: &Value) -> TokenUsage {
    let (prompt, completion, total) =
        (count(usage, "prompt_tokens"), count(usage, "completion_tokens"), count(usage, "total_tokens"));
    let input = prompt.or_else(|| Some(total?.saturating_sub(completion?))).unwrap_or(0);
    // Some servers omit reasoning from `completion_tokens`, but not from the total.
    let rest = prompt.and(total).map(|total| total.saturating_sub(input));
    let output = completion.max(rest).unwrap_or(0);
    let reasoning = usage.get("completion_tokens_details").and_then(|details| count(details, "reasoning_tokens"));
    // If there is more reasoning than output, reasoning is counted separately.
    let output = match reasoning {
        Some(reasoning) if reasoning > output => output.saturating_add(reasoning),
        _ => output,
    };
    let cached = usage.get("prompt_tokens_details").and_then(|details| count(details, "cached_tokens"));
    TokenUsage { input, output, cache_read: cached.unwrap_or(0).min(input), cache_write: 0 }
}

/// A count, if the field has a whole number in range; `None` for `null`, text and other values.
pub(super) fn count(object: &Value, key: &str) -> Option<u64> {
    let value = object.get(key)?;
    let whole = value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=1e9).contains(float))?;
        // The check above guarantees a whole number in range.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Some(float as u64)
    });
    whole.filter(|count| *count <= COUNT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn missing_counts_are_zero() {
        for (missing, known) in [
            (json!({}), (0, 0)),
            (json!([]), (0, 0)),
            (json!("many"), (0, 0)),
            (json!({ "total_tokens": 105 }), (0, 0)),
            (json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 }), (0, 0)),
            (json!({ "prompt_tokens": 100, "completion_tokens": null }), (100, 0)),
            (json!({ "completion_tokens": 5 }), (0, 5)),
            (json!({ "prompt_tokens": "100", "completion_tokens": 5 }), (0, 5)),
            (json!({ "prompt_tokens": u64::MAX, "completion_tokens": 5 }), (0, 5)),
            (json!({ "prompt_tokens": -100, "completion_tokens": -5 }), (0, 0)),
        ] {
            let tokens = tokens(&missing);
            assert_eq!((tokens.input, tokens.output), known, "{missing}");
        }
    }

    #[test]
    fn the_larger_count_is_used() {
        let tokens_of = |input, output| TokenUsage { input, output, ..TokenUsage::default() };
        for (usage, expected) in [
            (json!({ "prompt_tokens": 100, "completion_tokens": 5 }), tokens_of(100, 5)),
            (json!({ "prompt_tokens": 100.0, "completion_tokens": 5.0 }), tokens_of(100, 5)),
            (json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": null }), tokens_of(100, 5)),
            (json!({ "prompt_tokens": 100, "completion_tokens": null, "total_tokens": 105 }), tokens_of(100, 5)),
            (json!({ "completion_tokens": 5, "total_tokens": 105 }), tokens_of(100, 5)),
            // Reasoning that is not part of the completion count, within the total and outside it.
            (json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 605 }), tokens_of(100, 505)),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 605,
                    "completion_tokens_details": { "reasoning_tokens": 500 } }),
                tokens_of(100, 505),
            ),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 5,
                    "completion_tokens_details": { "reasoning_tokens": 500 } }),
                tokens_of(100, 505),
            ),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 505, "total_tokens": 605,
                    "completion_tokens_details": { "reasoning_tokens": 500 } }),
                tokens_of(100, 505),
            ),
        ] {
            assert_eq!(tokens(&usage), expected, "{usage}");
        }
    }
}
