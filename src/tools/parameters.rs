//! The parameters of a tool, and what a model wrote read as these. Every refusal here names its field (TOOL-06).

use ghost_domain::text::{clip, shown};
use ghost_domain::{Code, Refusal};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serde_path_to_error::Segment;

/// The parameters of a tool: one documented struct that yields the JSON schema. Must refuse unknown fields.
pub trait Params: DeserializeOwned + JsonSchema + Send + 'static {}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Params for T {}

/// Says what does not fit, field by field.
pub(crate) fn misfit(tool: Option<&str>, problems: &[(String, String)]) -> Refusal {
    let problems: Vec<(String, String)> =
        problems.iter().map(|(field, problem)| (shown(field, 80), clip(problem, 200))).collect();
    let words: Vec<String> = problems.iter().map(|(field, problem)| format!("{field}: {problem}")).collect();
    let words = words.join("; ");
    let told: Vec<Value> =
        problems.iter().map(|(field, problem)| json!({ "field": field, "problem": problem })).collect();
    Refusal::new(Code::InvalidArguments, tool.map_or(words.clone(), |tool| format!("{tool}: {words}")))
        .hint("nothing was run; fix the arguments and call again")
        .details(json!({ "problems": told }))
}

/// The arguments as the parameters of a tool.
pub(crate) fn parse<P: Params>(arguments: Value) -> Result<P, Refusal> {
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let problem = error.inner().to_string();
        let parts: Vec<String> = error
            .path()
            .iter()
            .filter_map(|part| match part {
                Segment::Seq { index } => Some(index.to_string()),
                Segment::Map { key } => Some(key.clone()),
                Segment::Enum { .. } | Segment::Unknown => None,
            })
            .collect();
        let field = match parts.is_empty() {
            // A name that is missing or too much stands in the words alone.
            true => named_in(&problem).unwrap_or("arguments").to_owned(),
            false => parts.join("."),
        };
        misfit(None, &[(field, problem)])
    })
}

/// The field that serde says is missing or unknown.
fn named_in(problem: &str) -> Option<&str> {
    let rest = ["missing field `", "unknown field `"].into_iter().find_map(|words| problem.strip_prefix(words))?;
    rest.split_once('`').map(|(name, _)| name)
}
