//! Refusals as JSON text.

use ghost_domain::{Code, Refusal};

/// A refusal as the JSON `{error, code, hint?, details?}`, as in the trailer.
///
/// # Errors
/// If it cannot be serialized, which does not happen for details in JSON.
pub fn refusal_json(refusal: &Refusal) -> Result<String, Refusal> {
    serde_json::to_string(refusal)
        .map_err(|error| Refusal::new(Code::Internal, format!("the refusal cannot be written: {error}")))
}
