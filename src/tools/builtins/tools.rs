//! The tools that reach deferred tools: `syscall.tool.describe` and `syscall.tool.call`; see [`crate::offer`].

use ghost_domain::text::nearest;
use ghost_domain::tool_catalogue::{canonical, from_wire};
use ghost_domain::{Code, Refusal};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::context::CallContext;
use crate::effect::Output;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DescribeParams {
    /// The name of the tool.
    name: String,
}

pub(super) async fn describe(call: &CallContext, params: DescribeParams) -> Result<Output, Refusal> {
    let dotted = from_wire(params.name.trim());
    let wanted = canonical(&dotted).unwrap_or(&dotted);
    let Some(spec) = call.tools.iter().find(|spec| spec.name == wanted) else {
        let near = nearest(wanted, call.tools.iter().map(|spec| spec.name.as_str()));
        return Err(Refusal::not_found("tool", wanted, near));
    };
    Ok(json!({ "name": spec.name, "description": spec.description, "parameters": spec.parameters }).into())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CallParams {
    /// The name of the tool.
    name: String,
    /// Its arguments.
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// A call that names a tool runs as a call of that tool, so this one runs only if a call names itself.
pub(super) async fn call_tool(_call: &CallContext, params: CallParams) -> Result<Output, Refusal> {
    let CallParams { name, arguments } = params;
    let what = format!("`{name}` with {} arguments is not a tool that can be called this way", arguments.len());
    Err(Refusal::new(Code::InvalidArguments, what).hint("name the tool that is to run"))
}
