//! The text of a result for the model: the last step that truncates results (TOOL-14, TOOL-15,
//! CONF-07).

use ghost_domain::journal::CallOutcome;
use ghost_domain::text::{MORE_MARK, clip, cut_marked};
use ghost_domain::{Limits, Refusal};
use serde_json::{Value, json};

use crate::saved;

/// The text of an outcome for a model: `(text, is_error)`. Deterministic, so that a resumed turn
/// gets the same text.
#[must_use]
pub fn model_view(outcome: &CallOutcome, view_bytes: Option<u32>, limits: &Limits) -> (String, bool) {
    let limit = view_bytes.unwrap_or(limits.result_view_bytes) as usize;
    let content = match &outcome.refusal {
        Some(refusal) if outcome.content.is_null() => short(refusal, limits),
        Some(refusal) => failed(&outcome.content, refusal, limits),
        None => outcome.content.clone(),
    };
    // A truncated list looks complete, so a mark is added. A truncated text contains its own mark.
    let more = outcome.truncated && (content.is_array() || content.is_object());
    let mut text = match &outcome.saved {
        Some(path) => saved::view(&content, path, limit),
        None => cut_marked(&saved::text_of(&content), limit).0,
    };
    if more {
        text.push_str(MORE_MARK);
    }
    (text, outcome.refusal.is_some())
}

/// A refusal for a model: its message and hint are cut at the limit, and details that are longer are left out.
fn short(refusal: &Refusal, limits: &Limits) -> Value {
    let chars = limits.error_view_chars as usize;
    let cut = |text: &str| clip(text, chars);
    Refusal {
        message: cut(&refusal.message),
        hint: refusal.hint.as_deref().map(cut),
        details: refusal.details.clone().filter(|details| details.to_string().len() <= chars),
        ..refusal.clone()
    }
    .to_json()
}

/// The content of a failed call for a model. A long one is reduced to its error, which tools name in different ways.
fn failed(content: &Value, refusal: &Refusal, limits: &Limits) -> Value {
    let chars = limits.error_view_chars as usize;
    if content.to_string().len() <= chars {
        return content.clone();
    }
    let named = ["message", "error", "status"].iter().find_map(|key| content.get(key)?.as_str());
    json!({ "error": clip(named.unwrap_or(&refusal.message), chars), "code": refusal.code })
}

/// The outcome of a refused call.
#[must_use]
pub fn refused(refusal: Refusal) -> CallOutcome {
    CallOutcome { content: Value::Null, refusal: Some(refusal), truncated: false, ..CallOutcome::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ghost_domain::Code;

    // covers: LIM-04, TOOL-15
    #[test]
    fn errors_are_short_and_found_under_their_usual_names() {
        let limits = Limits { error_view_chars: 20, ..Limits::default() };
        let refusal =
            Refusal::new(Code::Timeout, "m".repeat(50)).hint("h".repeat(50)).details(json!({ "d": "x".repeat(50) }));
        let (text, is_error) = model_view(&refused(refusal.clone()), None, &limits);
        assert!(is_error && text.len() < 120 && !text.contains("details"), "{text}");
        for key in ["message", "error", "status"] {
            let content = json!({ key: "the disk is full", "rest": "x".repeat(99) });
            let outcome =
                CallOutcome { content, refusal: Some(refusal.clone()), truncated: false, ..CallOutcome::default() };
            let (text, _) = model_view(&outcome, None, &limits);
            assert_eq!(text, "{\"error\":\"the disk is full\",\"code\":\"timeout\"}", "{key}");
        }
        let short = CallOutcome {
            content: json!({ "a": 1 }),
            refusal: Some(refusal),
            truncated: false,
            ..CallOutcome::default()
        };
        assert_eq!(model_view(&short, None, &limits).0, "{\"a\":1}");
        let long = refused(Refusal::new(Code::Timeout, "m".repeat(401)));
        let shown: Value = serde_json::from_str(&model_view(&long, None, &Limits::default()).0).unwrap();
        assert_eq!(shown["error"], format!("{}…", "m".repeat(400)));
    }

    // covers: CONF-07, LIM-03
    #[test]
    fn a_result_is_cut_unless_its_tool_shows_more() {
        let (most, limits) = (8_192, Limits::default());
        let of = |text: &str| CallOutcome { content: json!(text), ..CallOutcome::default() };
        let (fits, long) = ("x".repeat(most), "x".repeat(2 * most));
        assert_eq!(model_view(&of(&fits), None, &limits), (fits.clone(), false));
        let (cut, _) = model_view(&of(&long), None, &limits);
        assert!(cut.starts_with(&format!("{fits}\n[cut: ")), "{}", cut.len());
        assert_eq!(model_view(&of(&long), Some(16_384), &limits), (long, false));
    }
}
