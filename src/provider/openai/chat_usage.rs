//! What a chat completion says that it took.
//!
//! Must never: take silence for nothing. What is not said is not known, and then the reservation counts.

use ghost_domain::transcript::TokenUsage;
use serde_json::Value;

/// No call takes so many tokens; who counts more counts something else.
pub(crate) const COUNT_MAX: u64 = 1_000_000_000;

/// The tokens that `usage` names; `None` if it does not name enough of them to be charged. `empty` is whether the answer
/// holds nothing, for then nobody need say that nothing was written.
pub(crate) fn tokens(usage: &Value, empty: bool) -> Option<TokenUsage> {
    let (prompt, completion, total) =
        (count(usage, "prompt_tokens"), count(usage, "completion_tokens"), count(usage, "total_tokens"));
    let input = match (prompt, completion, total) {
        (Some(prompt), _, _) => prompt,
        (None, Some(completion), Some(total)) => total.saturating_sub(completion),
        _ => return None,
    };
    // Some servers leave reasoning out of `completion_tokens`; their total has it.
    let rest = total.filter(|_| prompt.is_some()).map(|total| total.saturating_sub(input));
    let output = match (completion, rest) {
        (Some(completion), rest) => completion.max(rest.unwrap_or(0)),
        (None, Some(rest)) => rest,
        (None, None) if empty => 0,
        (None, None) => return None,
    };
    let reasoning = usage.get("completion_tokens_details").and_then(|details| count(details, "reasoning_tokens"));
    // More reasoning than output is reasoning beside it.
    let output = match reasoning {
        Some(reasoning) if reasoning > output => output.saturating_add(reasoning),
        _ => output,
    };
    // Something was read, so this counts nothing.
    if input == 0 && output == 0 {
        return None;
    }
    let cached = usage.get("prompt_tokens_details").and_then(|details| count(details, "cached_tokens"));
    Some(TokenUsage { input, output, cache_read: cached.unwrap_or(0).min(input), cache_write: 0 })
}

/// A count, if there is one: `null`, text and what is no count are none.
pub(super) fn count(object: &Value, key: &str) -> Option<u64> {
    let value = object.get(key)?;
    let whole = value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=1e9).contains(float))?;
        // Whole and in range by the check above.
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
    fn what_is_not_said_is_not_known() {
        for unsaid in [
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
            assert_eq!(tokens(&unsaid, false), None, "{unsaid}");
        }
    }

    #[test]
    fn the_larger_of_what_is_said_counts() {
        let of = |input, output| Some(TokenUsage { input, output, ..TokenUsage::default() });
        for (said, expected) in [
            (json!({ "prompt_tokens": 100, "completion_tokens": 5 }), of(100, 5)),
            (json!({ "prompt_tokens": 100.0, "completion_tokens": 5.0 }), of(100, 5)),
            (json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": null }), of(100, 5)),
            (json!({ "prompt_tokens": 100, "completion_tokens": null, "total_tokens": 105 }), of(100, 5)),
            (json!({ "completion_tokens": 5, "total_tokens": 105 }), of(100, 5)),
            // Reasoning beside the completion, in the total and out of it.
            (json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 605 }), of(100, 505)),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 605,
                    "completion_tokens_details": { "reasoning_tokens": 500 } }),
                of(100, 505),
            ),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 5,
                    "completion_tokens_details": { "reasoning_tokens": 500 } }),
                of(100, 505),
            ),
            (
                json!({ "prompt_tokens": 100, "completion_tokens": 505, "total_tokens": 605,
                    "completion_tokens_details": { "reasoning_tokens": 500 } }),
                of(100, 505),
            ),
        ] {
            assert_eq!(tokens(&said, false), expected, "{said}");
        }
        assert_eq!(tokens(&json!({ "prompt_tokens": 100 }), true), of(100, 0), "nothing was written");
    }
}
