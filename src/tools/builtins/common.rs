//! Helpers that several tools share: ids from text, lists of limited size, parts of results. Each family imports all of it.

// What nearly every file of a family needs.
pub(super) use ghost_domain::text::clip;
pub(super) use ghost_domain::{Refusal, WorkspacePath, refusal};
pub(super) use ghost_operations::{Result, Tx};
pub(super) use schemars::JsonSchema;
pub(super) use serde::Deserialize;
pub(super) use serde_json::{Value, json};

pub(super) use crate::context::CallContext;
pub(super) use crate::effect::Output;

pub(super) use ghost_domain::refusal::not_blank;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::{Spending, UsageSum};
use ghost_domain::{Agent, AgentId};
use ghost_operations::mail::{agent_named, no_agent};

pub(super) use crate::effect::without_nulls;

/// Parameters of tools: each struct refuses what it does not name.
macro_rules! params {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident { $($fields:tt)* })+) => {$(
        $(#[$meta])*
        #[derive(Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        $vis struct $name { $($fields)* }
    )+};
}
pub(super) use params;

params! {
    /// The parameters of a tool that takes none.
    pub(super) struct Nothing {}
}

/// The largest view of a file or document, in bytes. Such results have limits of their own
pub(super) const WIDE_VIEW: u32 = 192 * 1024;

/// The largest list result, in bytes of JSON, so that the model gets it whole.
pub(super) const LIST_BYTES: usize = 60 * 1024;

/// Parses an agent id. If the text is not a valid id, the refusal suggests the nearest agent.
pub(super) fn agent_id(r: &mut Tx, text: &str) -> Result<AgentId> {
    match text.trim().parse::<AgentId>() {
        Ok(agent_id) => Ok(agent_id),
        Err(refusal) => Err(no_agent(r, refusal, text.trim())?),
    }
}

/// The agent with this id.
pub(super) fn agent_of(r: &mut Tx, text: &str) -> Result<Agent> {
    let agent_id = agent_id(r, text)?;
    agent_named(r, &agent_id)
}

/// The agents with these names.
pub(super) fn agent_ids(r: &mut Tx, texts: &[String]) -> Result<Vec<AgentId>> {
    texts.iter().map(|text| agent_id(r, text)).collect()
}

/// The number that a parameter gives, or its default. The refusal of a number out of range has this hint.
pub(super) fn within(field: &str, value: Option<u32>, default: u32, max: u32, hint: &str) -> Result<u32> {
    let value = value.unwrap_or(default);
    if (1..=max).contains(&value) {
        return Ok(value);
    }
    Err(refusal!(InvalidArguments, "{field} is {value}; it must be 1 to {max}").hint(hint))
}

/// A list as a result, in at most [`LIST_BYTES`].
pub(super) fn listed(items: impl IntoIterator<Item = Value>) -> Output {
    let (rows, all) = fitting(items, LIST_BYTES);
    Output::cut(Value::Array(rows), !all)
}

/// Adds the members of `more` that are not null.
pub(super) fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, without_nulls(more)) {
        object.extend(more);
    }
}

/// Collects items until their JSON would exceed `bytes`. The first item is always included. Returns
/// whether all items were included.
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

/// Sums of model usage, in the form that results show.
pub(super) fn usage_json(sums: &[UsageSum]) -> Value {
    let (mut tokens, mut calls) = (TokenUsage::default(), 0_u64);
    for sum in sums {
        tokens.input = tokens.input.saturating_add(sum.tokens.input);
        tokens.output = tokens.output.saturating_add(sum.tokens.output);
        // What tools charged has no tokens.
        calls = calls.saturating_add(if sum.tokens.total() > 0 { sum.calls } else { 0 });
    }
    let spent = Spending::of(sums);
    json!({
        "model_calls": calls, "input_tokens": tokens.input, "output_tokens": tokens.output,
        "cost_usd": spent.cost.usd(), "unpriced_tokens": spent.unpriced_tokens,
    })
}
