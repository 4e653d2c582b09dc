//! The tools for the shared state (BI-65, BI-66; STATE-01..04).

use ghost_domain::{Code, Refusal, StateEntry};
use ghost_operations::Tx;
use ghost_operations::shared_state::{self as rules, Setting};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::common::{LIST_BYTES, within};
use crate::context::CallContext;
use crate::effect::Output;

/// The default and the largest number of keys in a list.
const KEYS_DEFAULT: u32 = 100;
const KEYS_MAX: u32 = 500;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadParams {
    /// One key, such as plan.step; without it, keys are listed.
    key: Option<String>,
    /// Only keys that begin with this, such as plan.
    prefix: Option<String>,
    /// The key after which the list continues, if an earlier list was cut.
    after: Option<String>,
    /// The largest number of keys, up to 500; 100 if absent.
    limit: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteParams {
    /// The key: letters, digits, _ and -, in parts joined by dots. Keys under system. are read-only.
    key: String,
    /// Any JSON value.
    value: Value,
    /// The version that you have read: if the value has changed since, nothing is written. 0 means that the key must
    /// not exist yet.
    expected_version: Option<i64>,
}

fn entry_json(entry: &StateEntry) -> Value {
    let mut object = value_json(entry);
    object["key"] = json!(entry.key);
    object["writer"] = json!(entry.writer);
    object["updated_at"] = json!(entry.updated_at.rfc3339());
    object
}

/// The value with its version. If its numbers have more digits than JSON values here can hold, also
/// the exact text.
fn value_json(entry: &StateEntry) -> Value {
    let mut object = json!({ "value": entry.value.value(), "version": entry.version });
    if !entry.value.is_exact() {
        object["value_json"] = json!(entry.value.as_str());
    }
    object
}

pub(super) async fn read(call: &CallContext, params: ReadParams) -> Result<Output, Refusal> {
    let store = &call.services.store;
    if let Some(key) = params.key {
        if params.prefix.is_some() || params.after.is_some() || params.limit.is_some() {
            return Err(Refusal::new(Code::InvalidArguments, "key names one value; prefix, after and limit a list")
                .hint("give either the key or the others"));
        }
        let entry = store.read(move |r| rules::get(r, &key)).await?;
        return Ok(entry_json(&entry).into());
    }
    let limit = within("limit", params.limit, KEYS_DEFAULT, KEYS_MAX, "narrow the list by prefix instead")?;
    let (prefix, after) = (params.prefix.unwrap_or_default(), params.after.unwrap_or_default());
    let listed = store.read(move |r| rules::list(r, &prefix, &after, limit)).await?;
    let (mut values, mut used, mut truncated) = (Map::new(), 0, listed.more);
    for entry in listed.entries {
        let value = value_json(&entry);
        used += entry.key.len() + value.to_string().len() + 4;
        if used > LIST_BYTES && !values.is_empty() {
            truncated = true;
            break;
        }
        values.insert(entry.key, value);
    }
    Ok(Output::cut(Value::Object(values), truncated))
}

pub(super) fn write(call: &CallContext, params: WriteParams, w: &mut Tx) -> Result<Output, Refusal> {
    let new = Setting { key: params.key, value: params.value.into(), expected_version: params.expected_version };
    let entry = rules::set(w, &call.party(), None, new)?;
    let mut content = json!({ "key": entry.key, "version": entry.version });
    if entry.value.is_null() {
        content["deleted"] = json!(true);
    }
    Ok(content.into())
}
