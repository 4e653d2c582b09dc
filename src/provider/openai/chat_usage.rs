//! Reads the token counts of a chat completion.
//!
//! This module must never treat a missing count as zero. A missing count is unknown, and then the
//! reservation is booked as spent.

use ghost_domain::transcript::TokenUsage;
use serde_json::Value;

/// No call uses so many tokens; a larger count is an error.
pub(crate) const COUNT_MAX: u64 = 1_000_000_000;

/// The tokens that `usage` reports; `None` if it does not report enough of them for billing.
/// `empty` says that the answer is empty; then a missing output count means zero.
pub(crate) fn tokens(usage: &Value, empty: bool) -> Option<TokenUsage> {
    let (prompt, completion, total) =
        (count(usage, "prompt_tokens"), count(usage, "completion_tokens"), count(usage, "total_tokens"));
    let input = match (prompt, completion, total) {
        (Some(prompt), _, _) => prompt,
        (None, Some(completion), Some(total)) => total.saturating_sub(completion),
        _ => return None,
    };
    // Some servers omit reasoning from `completion_tokens`, but not from the total.
    let rest = total.filter(|_| prompt.is_some()).map(|total| total.saturating_sub(input));
    let output = match (completion, rest) {
        (Some(completion), rest) => completion.max(rest.unwrap_or(0)),
        (None, Some(rest)) => rest,
        (None, None) if empty => 0,
        (None, None) => return None,
    };
    let reasoning = usage.get("completion_tokens_details").and_then(|details| count(details, "reasoning_tokens"));
    // If there is more reasoning than output, reasoning is counted separately.
    let output = match reasoning {
        Some(reasoning) if reasoning > output => output.saturating_add(reasoning),
        _ => output,
    };
    // The prompt is never empty, so these counts are not real.
    if input == 0 && output == 0 {
        return None;
    }
    let cached = usage.get("prompt_tokens_details").and_then(|details| count(details, "cached_tokens"));
    Some(TokenUsage { input, output, cache_read: cached.unwrap_or(0).min(input), cache_write: 0 })
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
    fn missing_counts_are_unknown() {
        for missing in [
            json!({}),
            json!([]),
            json!("many"),
            json!({ "total_tokens": 105 }),
            json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 }),
            json!({ "prompt_tokens": 100, "completion_tokens": null }),
            json!({ "completion_tokens": 5 }),
            json!({ "prompt_tokens": "100", "completion_tokens": 5 }),
            json!({ "prompt_tokens": u64::MAX, "completion_tokens": 5 }),
            json!({ "prompt_tokens": -100, "completion_tokens": -5 }),
        ] {
            assert_eq!(tokens(&missing, false), None, "{missing}");
        }
    }

    #[test]
    fn the_larger_count_is_used() {
        let tokens_of = |input, output| Some(TokenUsage { input, output, ..TokenUsage::default() });
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
            assert_eq!(tokens(&usage, false), expected, "{usage}");
        }
        assert_eq!(tokens(&json!({ "prompt_tokens": 100 }), true), tokens_of(100, 0), "nothing was written");
    }
}
