//! What several families share: ids from text, lists that fit their view, and how things look in a result.

pub(super) use ghost_domain::refusal::not_blank;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::{Spending, UsageSum};
use ghost_domain::{AgentId, Refusal};
use ghost_rules::mail::no_agent;
use ghost_store::Reads;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// No parameters.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Bytes that a model sees of a file or a document: these have bounds of their own (CONF-07).
pub(super) const WIDE_VIEW: u32 = 192 * 1024;

/// Bytes of JSON that a list may have: what is listed must reach the model whole.
pub(super) const LIST_BYTES: usize = 60 * 1024;

/// The agent that an argument names. A text that cannot be an id is answered with the nearest agent there is.
pub(super) async fn agent_id(r: &mut dyn Reads, text: &str) -> Result<AgentId, Refusal> {
    match text.trim().parse::<AgentId>() {
        Ok(agent_id) => Ok(agent_id),
        Err(refusal) => Err(no_agent(r, refusal, text.trim()).await?),
    }
}

/// Takes items until their JSON would be longer than `bytes`; the first is always taken. Says whether all were.
pub(super) fn fitting(items: impl IntoIterator<Item = Value>, bytes: usize) -> (Vec<Value>, bool) {
    let (mut taken, mut used) = (Vec::new(), 0);
    for item in items {
        used += item.to_string().len() + 1;
        if used > bytes && !taken.is_empty() {
            return (taken, false);
        }
        taken.push(item);
    }
    (taken, true)
}

/// Sums of model use as results show them.
pub(super) fn usage_json(sums: &[UsageSum]) -> Value {
    let (mut tokens, mut calls) = (TokenUsage::default(), 0_u64);
    for sum in sums {
        tokens.input = tokens.input.saturating_add(sum.tokens.input);
        tokens.output = tokens.output.saturating_add(sum.tokens.output);
        calls = calls.saturating_add(sum.calls);
    }
    let spent = Spending::of(sums);
    json!({
        "model_calls": calls, "input_tokens": tokens.input, "output_tokens": tokens.output,
        "cost_usd": spent.cost.usd(), "unpriced_tokens": spent.unpriced_tokens,
    })
}

/// `object` without the members that are null.
pub(super) fn without_nulls(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    object
}
