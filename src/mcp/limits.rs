//! What a server may use: bounds, time-outs, how much of its text is shown, and which schemas are taken. A server can raise
//! none of them.

use std::time::Duration;

use ghost_domain::text::prefix_bytes;
use serde_json::{Map, Value};
use tokio::time::{Instant, Sleep};

/// A table of [`Limits`] with the defaults.
macro_rules! limits {
    ($($(#[$doc:meta])+ $name:ident: $type:ty = $default:expr;)+) => {
        /// What a server may use. The defaults fit a server that behaves.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits {
            $($(#[$doc])+ pub $name: $type,)+
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }
    };
}

limits! {
    /// Bytes of one line of a server on streams, with its line break. A longer one closes the connection.
    line_bytes: usize = 4 * 1_024 * 1_024;
    /// Bytes of one JSON answer or one event of a server on HTTP. A larger one fails the request.
    http_bytes: usize = 4 * 1_024 * 1_024;
    /// Messages in one second that answer nothing: notifications, requests, unknown answers and lines that are no
    /// message. One more closes the connection.
    messages_per_second: u32 = 1_000;
    /// Requests of the server that may wait for their answer. One more closes the connection.
    server_requests: usize = 8;
    /// Progress events that may wait for the caller, for each call. Further ones are left out.
    progress_events: usize = 64;
    /// Messages that may wait until the server reads them.
    outgoing_messages: usize = 64;
    /// Bytes of the arguments of a call, as JSON. Larger ones are not sent.
    argument_bytes: usize = 1_024 * 1_024;
    /// Pages of one list. The rest is left out, and the list says so.
    pages: usize = 100;
    /// Entries of one list. The rest is left out, and the list says so.
    entries: usize = 10_000;
    /// Bytes of all entries of one list, as JSON. The rest is left out, and the list says so.
    list_bytes: usize = 16 * 1_024 * 1_024;
    /// Time for one list with all its pages.
    list_timeout: Duration = Duration::from_secs(60);
    /// Time for reading one resource or one prompt.
    read_timeout: Duration = Duration::from_secs(60);
    /// Bytes of a resource or of a prompt that are kept.
    read_bytes: usize = 1_024 * 1_024;
    /// Time in which a server has to read a message. A slower one loses the connection.
    write_timeout: Duration = Duration::from_secs(10);
    /// Time for telling a server that a call is cancelled.
    cancel_timeout: Duration = Duration::from_secs(2);
    /// Time for closing.
    close_timeout: Duration = Duration::from_secs(2);
    /// Time for the answer to one question of the server. After it the question counts as cancelled.
    answer_timeout: Duration = Duration::from_secs(600);
    /// Times that a question is put again if its answer does not fit its schema.
    answer_rounds: u32 = 3;
    /// Times that a server may ask for input in one call (protocol 2026-07-28).
    input_rounds: u32 = 10;
    /// Questions of one such round.
    inputs: usize = 8;
    /// Times that the subscription to changes is opened again in the life of a connection.
    listens: u32 = 10;
}

/// Longest time that a timer waits, about 30 years. Adding more could overflow.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3_600);

/// The present time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time after `duration`.
pub(crate) fn after(duration: Duration) -> Instant {
    let now = now();
    now.checked_add(duration.min(LONGEST)).unwrap_or(now)
}

/// Completes at `instant`.
pub(crate) fn until(instant: Instant) -> Sleep {
    tokio::time::sleep_until(instant)
}

/// The output of `future`; `None` if it takes longer than `limit`.
// Servers run on real time, and no simulation has one.
#[allow(clippy::disallowed_methods)]
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(limit.min(LONGEST), future).await.ok()
}

/// Bytes of a text of a server that an error shows.
pub(crate) const SHOWN_MAX: usize = 500;

/// `text` on one line and without control characters, at most [`SHOWN_MAX`] bytes of it.
pub(crate) fn shown(text: &str) -> String {
    let part = prefix_bytes(text, SHOWN_MAX);
    let mut shown: String = part.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    if part.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Whether a character changes how others are shown, or shows nothing.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Largest size of a schema, in bytes of its JSON.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1_024;
/// Deepest nesting of a schema; the root is 1.
pub const SCHEMA_DEPTH_MAX: usize = 32;
/// Keywords whose value is a reference.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Why a schema is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaProblem {
    /// Arguments are an object, so the root has to be one.
    #[error("the schema is not of `type: object`")]
    NotAnObject,
    /// It is too large.
    #[error("the schema has {bytes} bytes, more than {SCHEMA_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is nested too deeply.
    #[error("the schema is nested more than {SCHEMA_DEPTH_MAX} deep")]
    TooDeep,
    /// It refers to another document.
    #[error("the schema refers to another document: {target}")]
    Remote {
        /// The reference, shortened.
        target: String,
    },
}

/// Checks the schema of arguments, without following references, which may be cyclic: an object at its root, at most [`SCHEMA_BYTES_MAX`] and [`SCHEMA_DEPTH_MAX`], and
/// no reference to another document. References within the schema are allowed, also cyclic ones.
///
/// # Errors
/// The first problem.
pub fn check_schema(schema: &Value) -> Result<(), SchemaProblem> {
    let Some(root) = schema.as_object() else { return Err(SchemaProblem::NotAnObject) };
    if root.get("type").and_then(Value::as_str) != Some("object") {
        return Err(SchemaProblem::NotAnObject);
    }
    walk(schema, 1)?;
    let bytes = schema.to_string().len();
    if bytes > SCHEMA_BYTES_MAX { Err(SchemaProblem::TooLarge { bytes }) } else { Ok(()) }
}

/// The depth bounds the recursion.
fn walk(value: &Value, depth: usize) -> Result<(), SchemaProblem> {
    match value {
        Value::Object(_) | Value::Array(_) if depth > SCHEMA_DEPTH_MAX => Err(SchemaProblem::TooDeep),
        Value::Object(object) => {
            local(object)?;
            object.values().try_for_each(|value| walk(value, depth + 1))
        }
        Value::Array(items) => items.iter().try_for_each(|value| walk(value, depth + 1)),
        _ => Ok(()),
    }
}

/// A property can have the name `$ref`. Its value is a schema then, and no text.
fn local(object: &Map<String, Value>) -> Result<(), SchemaProblem> {
    let targets = REFERENCES.iter().filter_map(|keyword| object.get(*keyword)).filter_map(Value::as_str);
    match targets.into_iter().find(|target| !target.starts_with('#')) {
        Some(target) => Err(SchemaProblem::Remote { target: shown(target) }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod limits_tests {
    use super::*;

    #[test]
    fn shown_text_is_short_and_has_no_control_characters() {
        assert_eq!(shown("a\nb\u{1b}[2Jc\u{202e}"), "a b [2Jc ");
        let long = "ä".repeat(SHOWN_MAX);
        assert!(shown(&long).len() <= SHOWN_MAX + '…'.len_utf8());
        assert!(shown(&long).ends_with('…'));
    }
}

#[cfg(test)]
mod schema_tests {
    use super::*;
    use serde_json::json;

    fn nested(depth: usize) -> Value {
        (1..depth).fold(json!({}), |inner, _| json!({ "not": inner }))
    }

    #[test]
    fn a_schema_is_an_object_at_its_root() {
        assert_eq!(check_schema(&json!({"type": "object", "properties": {"a": {"type": "string"}}})), Ok(()));
        for schema in [json!(true), json!({}), json!({"type": "string"}), json!({"type": ["object"]}), json!([])] {
            assert_eq!(check_schema(&schema), Err(SchemaProblem::NotAnObject), "{schema}");
        }
    }

    #[test]
    fn a_reference_to_another_document_is_refused_and_a_local_one_is_not() {
        let with = |target: &str| json!({"type": "object", "properties": {"a": {"$ref": target}}});
        for target in ["#", "#/$defs/a", "#a"] {
            assert_eq!(check_schema(&with(target)), Ok(()), "{target}");
        }
        for target in ["https://evil.example/s.json", "file:///etc/passwd", "other.json", "//evil.example", ""] {
            let problem = SchemaProblem::Remote { target: target.to_owned() };
            assert_eq!(check_schema(&with(target)), Err(problem), "{target}");
        }
        assert_eq!(check_schema(&json!({"type": "object", "properties": {"$ref": {"type": "string"}}})), Ok(()));
    }

    #[test]
    fn a_cyclic_schema_is_checked_without_following_it() {
        let schema =
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(check_schema(&schema), Ok(()));
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let schema = |inner: Value| json!({"type": "object", "not": inner});
        assert_eq!(check_schema(&schema(nested(SCHEMA_DEPTH_MAX - 1))), Ok(()));
        assert_eq!(check_schema(&schema(nested(SCHEMA_DEPTH_MAX))), Err(SchemaProblem::TooDeep));
        let large = schema(json!({"description": "x".repeat(SCHEMA_BYTES_MAX)}));
        assert!(matches!(check_schema(&large), Err(SchemaProblem::TooLarge { bytes }) if bytes > SCHEMA_BYTES_MAX));
    }
}
