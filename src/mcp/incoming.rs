//! Makes messages of lines. A result stays raw JSON: `rmcp` would refuse a whole list for one bad entry.
//!
//! It must never fail for a line: a line that is no message is `None`.

use ghost_domain::json_text::readable_bytes;
use rmcp::RoleClient;
use rmcp::model::{CustomResult, JsonRpcMessage, RequestId, ServerResult};
use rmcp::service::RxJsonRpcMessage;
use serde::Deserialize as _;
use serde_json::{Map, Value};

/// The message in `line`. The answer to a request for which `is_typed` is true is in the form that `rmcp` needs.
pub(crate) fn message(line: &[u8], is_typed: impl FnOnce(&RequestId) -> bool) -> Option<RxJsonRpcMessage<RoleClient>> {
    let mut object: Map<String, Value> = serde_json::from_str(&readable_bytes(line)).ok()?;
    if object.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return None;
    }
    let is_answer = !object.contains_key("method") && !object.contains_key("error");
    if is_answer && let Some(result) = object.get_mut("result").map(Value::take) {
        let id: RequestId = serde_json::from_value(object.remove("id")?).ok()?;
        let typed = if is_typed(&id) { ServerResult::deserialize(&result).ok() } else { None };
        let result = typed.unwrap_or(ServerResult::CustomResult(CustomResult(result)));
        return Some(JsonRpcMessage::response(result, id));
    }
    serde_json::from_value(Value::Object(object)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_stays_raw_unless_rmcp_needs_it() {
        let line = br#"{"jsonrpc":"2.0","id":4,"result":{"tools":[],"odd":1}}"#;
        let Some(JsonRpcMessage::Response(response)) = message(line, |_| false) else { panic!("no response") };
        assert_eq!(response.id, RequestId::Number(4));
        assert!(matches!(response.result, ServerResult::CustomResult(raw) if raw.0["odd"] == 1));
        let Some(JsonRpcMessage::Response(response)) = message(line, |_| true) else { panic!("no response") };
        assert!(matches!(response.result, ServerResult::ListToolsResult(_)));
    }

    #[test]
    fn a_line_that_is_no_message_is_none() {
        for line in ["", "[1]", "{}", "7", "{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}", "{\"jsonrpc\":\"2.0\"}"] {
            assert!(message(line.as_bytes(), |_| false).is_none(), "{line}");
        }
    }
}
