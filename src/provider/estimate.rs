//! What a call uses and costs: an upper estimate of a request's tokens, the counts of providers, and prices. The estimate is
//! not lower than what a provider bills in practice, because budgets reserve this much before a call. It also stands in
//! for counts that a provider leaves out of a whole answer.

use std::io;

use ghost_config::plan::{LlmPlan, ProviderKind};
use ghost_domain::Price;
use ghost_domain::image::IMAGE_TOKENS;
use ghost_domain::transcript::{Block, TokenUsage, ToolSpec};
use serde_json::Value;

use crate::model::ModelRequest;

/// No call uses so many tokens; a larger count is an error.
pub(crate) const COUNT_MAX: u64 = 1_000_000_000;
/// Tokens that providers add when a request has tools.
const TOOLS_OVERHEAD: u64 = 400;
/// Tokens that providers add for each tool and each message.
const ITEM_OVERHEAD: u64 = 16;

/// An upper estimate of the tokens of `request`: a third of its bytes, plus the overhead of
/// messages and tools. English has about four bytes per token; in most other scripts a token has
/// about three.
#[must_use]
pub fn estimate_tokens(request: &ModelRequest) -> u64 {
    estimate_with(request, tool_bytes(&request.tools))
}

/// Bytes of the tools as a request carries them. They change only with an agent's access, so
/// callers cache the number.
#[must_use]
pub fn tool_bytes(tools: &[ToolSpec]) -> usize {
    tools.iter().map(|tool| tool.name.len() + tool.description.len() + json_len(&tool.parameters)).sum()
}

/// The tokens of an answer: what the provider counted, and an estimate in place of counts that it left out or that are
/// zero. Of an answer that was cut (`is_cut`) it is not known how much was written; then a missing count of the output is
/// `None`. The second value says whether a number is an estimate.
pub(crate) fn counted(
    request: &ModelRequest,
    blocks: &[Block],
    usage: TokenUsage,
    is_cut: bool,
) -> (Option<TokenUsage>, bool) {
    let bytes = blocks.iter().map(|block| match block {
        Block::Text { text } | Block::Thinking { text } => text.len(),
        // Encrypted reasoning is about as long as the reasoning.
        Block::Opaque(opaque) => opaque.json.len(),
        Block::ToolCall { name, arguments, .. } => name.len() + json_len(arguments),
        Block::ToolResult { .. } | Block::Image { .. } | Block::ImageFile(_) => 0,
    });
    let received = tokens_of_bytes(bytes.sum()).min(request.max_tokens);
    if is_cut && usage.output == 0 && (received > 0 || usage.input == 0) {
        return (None, false);
    }
    let input = if usage.input > 0 { usage.input } else { estimate_tokens(request) };
    let output = if usage.output > 0 { usage.output } else { received };
    let whole = TokenUsage { input, output, ..usage };
    (Some(whole), whole != usage)
}

/// The counts of a provider for an answer that is not used, if nothing of them is missing. `empty` says that nothing was
/// received.
pub(crate) fn reported(usage: TokenUsage, empty: bool) -> Option<TokenUsage> {
    (usage.input > 0 && (usage.output > 0 || empty)).then_some(usage)
}

/// Bytes by which a picture is estimated.
const IMAGE_BYTES: usize = 3 * IMAGE_TOKENS;

/// [`estimate_tokens`] of a request whose tools have `tools` bytes.
#[must_use]
pub fn estimate_with(request: &ModelRequest, tools: usize) -> u64 {
    let mut bytes = request.system.len();
    let mut items: u64 = 1;
    for message in request.messages.iter() {
        items += 1;
        let mut proven = false;
        for block in &message.blocks {
            bytes += match block {
                Block::Text { text } => text.len(),
                // Reasoning without a proof from its provider is not sent back.
                Block::Thinking { text } if proven => text.len(),
                Block::Thinking { .. } => 0,
                Block::Opaque(opaque) => opaque.json.len(),
                Block::Image { .. } | Block::ImageFile(_) => IMAGE_BYTES,
                Block::ToolCall { id, name, arguments } => id.len() + name.len() + json_len(arguments),
                Block::ToolResult { id, name, content, .. } => id.len() + name.len() + content.len(),
            };
            proven = matches!(block, Block::Opaque(opaque) if opaque.attached);
        }
    }
    let tool_count = u64::try_from(request.tools.len()).unwrap_or(u64::MAX);
    items = items.saturating_add(tool_count);
    let overhead = if tool_count == 0 { 0 } else { TOOLS_OVERHEAD };
    tokens_of_bytes(bytes.saturating_add(tools)).saturating_add(items.saturating_mul(ITEM_OVERHEAD)) + overhead
}

/// An upper estimate of the tokens in this many bytes of text: a third of them, rounded up.
#[must_use]
pub fn tokens_of_bytes(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(3)).unwrap_or(u64::MAX)
}

/// The length of `value` as JSON, without writing it anywhere.
pub(crate) fn json_len(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A JSON value always serialises and this writer never fails. If it did, the bytes counted so
    // far would be used.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// A count, if the field has a whole number in range; `None` for `null`, text and other values.
pub(crate) fn count(object: &Value, key: &str) -> Option<u64> {
    let value = object.get(key)?;
    let whole = value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=1e9).contains(float))?;
        // The check above guarantees a whole number in range.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Some(float as u64)
    });
    whole.filter(|count| *count <= COUNT_MAX)
}

/// The price of `model` at the provider `provider`, or `None` if there is none; see
/// [`LlmPlan::price`].
#[must_use]
pub fn price(plan: &LlmPlan, provider: &str, kind: ProviderKind, model: &str) -> Option<Price> {
    plan.price(kind, provider, model)
}

/// Whether a call of the model costs nothing: the provider is scripted or recorded, and the world
/// sets no price for it.
#[must_use]
pub fn is_free(kind: ProviderKind, price: Option<&Price>) -> bool {
    matches!(kind, ProviderKind::Scripted | ProviderKind::Recorded)
        && price.is_none_or(|price| *price == Price::default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ghost_domain::Money;

    use super::*;
    use crate::testing::request;
    use proptest::prelude::*;

    #[test]
    fn json_is_measured_exactly() {
        let value = serde_json::json!({ "a": [1, "é\n", null], "b": { "c": 1.5 } });
        assert_eq!(json_len(&value), value.to_string().len());
    }

    #[test]
    fn scripts_are_free_unless_the_world_prices_them() {
        let own = |micros| Price { input: Money(micros), ..Price::default() };
        let plan = LlmPlan {
            prices: BTreeMap::from([("gpt-4o".to_owned(), own(1)), ("here/gpt-4o".to_owned(), own(2))]),
            ..LlmPlan::default()
        };
        assert!(!is_free(ProviderKind::Ollama, Some(&Price::default())), "a local model is not free");
        for kind in [ProviderKind::Scripted, ProviderKind::Recorded] {
            let free = price(&plan, "there", kind, "gpt-4o");
            assert_eq!(free, Some(Price::default()), "the price of the real model does not apply");
            let paid = price(&plan, "here", kind, "gpt-4o");
            assert_eq!(paid, Some(own(2)), "the world's own price applies");
            assert!(is_free(kind, free.as_ref()) && !is_free(kind, paid.as_ref()));
        }
    }

    proptest! {
        #[test]
        fn more_text_is_never_fewer_tokens(a in ".{0,200}", b in ".{0,200}") {
            let short = estimate_tokens(&request("m", &a));
            let long = estimate_tokens(&request("m", &format!("{a}{b}")));
            prop_assert!(short <= long && long >= u64::try_from((a.len() + b.len()) / 3).unwrap());
        }
    }
}
