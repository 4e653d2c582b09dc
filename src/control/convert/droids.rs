//! Droids as messages.

use ghost_domain::redact::Redactor;
use ghost_domain::{Droid, Refusal};
use ghost_proto::v1;

use super::refusals::refusal_json;

/// A droid, redacted.
///
/// # Errors
/// If its error cannot be written as JSON.
pub fn droid(droid: &Droid, redactor: &Redactor) -> Result<v1::Droid, Refusal> {
    let error = droid.error.as_ref().map(refusal_json).transpose()?;
    Ok(v1::Droid {
        droid_id: droid.droid_id.to_string(),
        parent_id: droid.parent_id.to_string(),
        label: droid.label.as_deref().map(|label| redactor.redact(label)),
        mode: droid.mode.as_str().to_owned(),
        state: droid.state.as_str().to_owned(),
        task: redactor.redact(&droid.task),
        output_path: droid.output_path.clone(),
        tools: droid.terms.tools.iter().cloned().collect(),
        depth: droid.terms.depth,
        root_id: droid.root_id.to_string(),
        created_at_ms: droid.created_at.0,
        deadline_at_ms: droid.deadline_at.0,
        ended_at_ms: droid.ended_at.map(|at| at.0),
        error_json: error.map(|error| redactor.redact(&error)),
        result: droid.result.as_deref().map(|result| redactor.redact(result)),
        rounds: droid.used.rounds,
        calls: droid.used.calls,
        input_tokens: droid.used.input_tokens,
        output_tokens: droid.used.output_tokens,
        cost_micros: droid.used.cost.0,
    })
}
