//! The parameters of a tool, and parsing of arguments into them. Every refusal names its field
//! (TOOL-06).

use ghost_domain::text::{clip, shown};
use ghost_domain::{Code, Refusal};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serde_path_to_error::Segment;

/// The parameters of a tool: a documented struct from which the JSON schema is generated. It must
/// refuse unknown fields.
pub trait Params: DeserializeOwned + JsonSchema + Send + 'static {}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Params for T {}

/// The refusal for wrong arguments, with each field and its problem.
pub(crate) fn wrong_arguments(tool: Option<&str>, problems: &[(String, String)]) -> Refusal {
    let problems: Vec<(String, String)> =
        problems.iter().map(|(field, problem)| (shown(field, 80), clip(problem, 200))).collect();
    let words: Vec<String> = problems.iter().map(|(field, problem)| format!("{field}: {problem}")).collect();
    let words = words.join("; ");
    let details: Vec<Value> =
        problems.iter().map(|(field, problem)| json!({ "field": field, "problem": problem })).collect();
    Refusal::new(Code::InvalidArguments, tool.map_or(words.clone(), |tool| format!("{tool}: {words}")))
        .hint("nothing was run; correct the arguments and call again")
        .details(json!({ "problems": details }))
}

/// Parses the arguments into the parameters of a tool.
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
            // Serde names a missing or unknown field only in its message.
            true => named_in(&problem).unwrap_or("arguments").to_owned(),
            false => parts.join("."),
        };
        wrong_arguments(None, &[(field, problem)])
    })
}

/// The field that serde reports as missing or unknown.
fn named_in(problem: &str) -> Option<&str> {
    let rest = ["missing field `", "unknown field `"].into_iter().find_map(|words| problem.strip_prefix(words))?;
    rest.split_once('`').map(|(name, _)| name)
}
