//! Makes messages of lines. A result stays raw JSON: `rmcp` would refuse a whole list for one bad entry.
//!
//! A line that is no message says what is wrong with it, and whether it stands for an answer. Without that, the call that
//! it answers would wait for its time-out.

use ghost_domain::json_text::readable_bytes;
use ghost_domain::text::prefix_bytes;
use rmcp::RoleClient;
use rmcp::model::{
    CustomResult, ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage, NumberOrString, RequestId, ServerResult,
};
use rmcp::service::RxJsonRpcMessage;
use serde::Deserialize as _;
use serde_json::{Map, Value};

/// The code in the place of an answer that cannot be read. No server uses it.
pub(crate) const UNREADABLE: i32 = i32::MIN;
/// Bytes of a line that an error shows before and after its fault.
const AROUND: usize = 30;

/// A line that is no message.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Unread {
    /// The number of the request that it answers, as far as it can be read.
    pub(crate) id: Option<i64>,
    /// Whether it looks like an answer without a number that can be read.
    pub(crate) is_answer: bool,
    /// What is wrong with it.
    pub(crate) why: String,
}

impl Unread {
    /// The error that ends the request with this number.
    pub(crate) fn error(self, id: i64) -> RxJsonRpcMessage<RoleClient> {
        JsonRpcMessage::Error(JsonRpcError::new(
            Some(RequestId::Number(id)),
            ErrorData::new(ErrorCode(UNREADABLE), self.why, None),
        ))
    }
}

/// The message in `line`. The answer to a request for which `is_typed` is true is in the form that `rmcp` needs.
pub(crate) fn message(
    line: &[u8],
    is_typed: impl FnOnce(&RequestId) -> bool,
) -> Result<RxJsonRpcMessage<RoleClient>, Unread> {
    let text = readable_bytes(line);
    let mut object: Map<String, Value> = match serde_json::from_str(&text) {
        Ok(object) => object,
        Err(error) => return Err(unread(&text, &error)),
    };
    let id = object.get("id").and_then(|id| RequestId::deserialize(id).ok()).filter(|_| !object.contains_key("method"));
    let wrong = |why: &str| Unread { id: id.as_ref().and_then(number), is_answer: false, why: why.to_owned() };
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(wrong("its `jsonrpc` is not \"2.0\""));
    }
    let is_answer = !object.contains_key("method") && !object.contains_key("error");
    if is_answer && let Some(result) = object.get_mut("result").map(Value::take) {
        let Some(id) = id else { return Err(Unread::default()) };
        let typed = if is_typed(&id) { ServerResult::deserialize(&result).ok() } else { None };
        let result = typed.unwrap_or(ServerResult::CustomResult(CustomResult(result)));
        return Ok(JsonRpcMessage::response(result, id));
    }
    let has_error = object.contains_key("error");
    serde_json::from_value(Value::Object(object)).map_err(|_| match has_error {
        true => wrong("its `error` is no error of JSON-RPC"),
        false => wrong("it has neither `result` nor `error`"),
    })
}

/// What can be known of a line that is no JSON object.
fn unread(text: &str, error: &serde_json::Error) -> Unread {
    let keys = Keys::of(text);
    let has = |key: &str| text.contains(&format!("\"{key}\""));
    let is_answer = match text.starts_with('{') {
        true => keys.has_version && !keys.has_method,
        // Its beginning is missing.
        false => has("jsonrpc") && (has("result") || has("error")) && !has("method"),
    };
    // The line has no break, so the column is the place; it is a number of bytes.
    let at = text.floor_char_boundary(error.column().saturating_sub(1));
    let before = &text[text.ceil_char_boundary(at.saturating_sub(AROUND))..at];
    let why = format!("{error}, at `{before}` before `{}`", prefix_bytes(&text[at..], AROUND));
    Unread { id: keys.id.filter(|_| !keys.has_method), is_answer, why }
}

/// What the members of an object say that may break off or be wrong in the middle. Members of members do not count.
#[derive(Default)]
struct Keys {
    id: Option<i64>,
    has_version: bool,
    has_method: bool,
}

impl Keys {
    fn of(text: &str) -> Self {
        let (mut keys, mut depth, mut rest) = (Self::default(), 0_usize, text);
        while let Some(at) = rest.find(['"', '{', '[', '}', ']']) {
            let opens = rest.as_bytes()[at];
            rest = &rest[at + 1..];
            match opens {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {
                    let Some(end) = string_end(rest) else { return keys };
                    let (string, after) = (&rest[..end], &rest[end + 1..]);
                    rest = after;
                    let value = after.trim_start().strip_prefix(':').filter(|_| depth == 1);
                    match (string, value) {
                        ("id", Some(value)) => keys.id = leading_number(value),
                        ("jsonrpc", Some(_)) => keys.has_version = true,
                        ("method", Some(_)) => keys.has_method = true,
                        _ => {}
                    }
                }
            }
        }
        keys
    }
}

/// Where a string ends whose quote is before `text`.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// The whole number at the beginning of `text`, also as a text. A number at the end may be cut.
fn leading_number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let text = text.strip_prefix('"').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-')?;
    text[..end].parse().ok()
}

/// The number of a request of this side. Some servers send it back as a text.
pub(crate) fn number(id: &RequestId) -> Option<i64> {
    match id {
        NumberOrString::Number(number) => Some(*number),
        NumberOrString::String(text) => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_stays_raw_unless_rmcp_needs_it() {
        let line = br#"{"jsonrpc":"2.0","id":4,"result":{"tools":[],"odd":1}}"#;
        let Ok(JsonRpcMessage::Response(response)) = message(line, |_| false) else { panic!("no response") };
        assert_eq!(response.id, RequestId::Number(4));
        assert!(matches!(response.result, ServerResult::CustomResult(raw) if raw.0["odd"] == 1));
        let Ok(JsonRpcMessage::Response(response)) = message(line, |_| true) else { panic!("no response") };
        assert!(matches!(response.result, ServerResult::ListToolsResult(_)));
    }

    #[test]
    fn a_line_that_is_no_message_says_whether_it_answers_a_request() {
        let read = |line: &str| message(line.as_bytes(), |_| false).unwrap_err();
        for (line, id, is_answer) in [
            ("", None, false),
            ("[1]", None, false),
            ("{}", None, false),
            ("7", None, false),
            ("Server started: {\"a\"", None, false),
            (r#"{"level":"error","error": oops}"#, None, false),
            (r#"{"level":"error","error":"no","id":7}"#, Some(7), false),
            (r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, Some(1), false),
            (r#"{"jsonrpc":"2.0","id":"1"}"#, Some(1), false),
            (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#, Some(1), false),
            (r#"{"jsonrpc":"2.0"}"#, None, false),
            (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, None, false),
            (r#"{"jsonrpc":"2.0","id":4,"result":{"x":NaN}}"#, Some(4), true),
            (r#"{"jsonrpc":"2.0","id":4,"result":{"x":1e400}}"#, Some(4), true),
            (r#"{"jsonrpc":"2.0","result":{"l":[{"id":9,"t":"}\"{"}],"x":Infinity}, "id" : "4" }"#, Some(4), true),
            (r#"{"jsonrpc":"2.0","id":4,"result":{"content":[{"te"#, Some(4), true),
            (r#"{"jsonrpc":"2.0","id":12"#, None, true),
            (r#"{"jsonrpc":"2.0","res"#, None, true),
            (r#""jsonrpc":"2.0","id":4,"result":{}}"#, None, true),
            (r#"{"jsonrpc":"2.0","id":4,"method":"ping","params":{"x":NaN}}"#, None, false),
            (r#"{"jsonrpc":"2.0","id":4,"method":7}"#, None, false),
        ] {
            let unread = read(line);
            assert_eq!((unread.id, unread.is_answer), (id, is_answer), "{line}");
        }
        assert!(read(r#"{"jsonrpc":"2.0","id":4,"result":{"x":NaN}}"#).why.ends_with("before `NaN}}`"));
        let long = format!(r#"{{"jsonrpc":"2.0","id":4,"result":{{"é":"{}","x":NaN}}}}"#, "é".repeat(9_000));
        assert!(read(&long).why.len() < 200, "{:?}", read(&long));
        let half = message(br#"{"jsonrpc":"2.0","id":4,"result":{"a":"\ud83d"}}"#, |_| false);
        assert!(half.is_ok(), "a half of a character is replaced");
    }
}
