//! What a failure of a provider means: its status, its error body or its error event as a [`ProviderError`], with the wait that
//! it asks for.

use std::time::Duration;

use ghost_domain::Timestamp;
use ghost_domain::json_text::readable;
use ghost_domain::redact::Redactor;
use ghost_domain::text::{clip, one_line};
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::error::{Charge, ErrorKind, ProviderError};
use crate::too_long;

/// Converts a response whose status is not a success.
pub(crate) fn status_error(
    status: u16,
    headers: &HeaderMap,
    body: &str,
    now: Timestamp,
    redactor: &Redactor,
) -> ProviderError {
    let parsed: Option<Value> = serde_json::from_str(&readable(body)).ok();
    let message = parsed.as_ref().and_then(message_of).unwrap_or_else(|| clip(&one_line(body), 1_000));
    let lower = body.to_ascii_lowercase();
    let too_long = || too_long::is_too_long(parsed.as_ref().unwrap_or(&Value::String(lower.clone())));
    let kind = match status {
        // Some servers report it as a failure of their own.
        400 | 413 | 422 | 500..=502 if too_long() => ErrorKind::ContextTooLong,
        413 if too_long::is_rate(&lower) => ErrorKind::RateLimited,
        // An unpaid bill is treated like a wrong key: the call succeeds once the bill is paid.
        401..=403 => ErrorKind::Unauthorized,
        // OpenAI does not find an item that it was told not to store.
        404 if is_stale(&lower) => ErrorKind::StaleState,
        404 => ErrorKind::UnknownModel,
        408 | 504 | 524 => ErrorKind::Timeout,
        413 => ErrorKind::ContextTooLong,
        429 => ErrorKind::RateLimited,
        503 | 529 => ErrorKind::Overloaded,
        409 | 500..=599 => ErrorKind::Server,
        // Only the provider itself can say that the request is wrong.
        400..=499 if parsed.as_ref().is_some_and(names_an_error) => wrong_request(&lower),
        _ => ErrorKind::Gateway,
    };
    let error = ProviderError::redacted(kind, &format!("HTTP {status}: {message}"), redactor);
    // No answer was made, and whoever waits out an outage must not pay for each probe.
    error
        .charge(Charge::Nothing)
        .status(status)
        .retry_after(retry_after(headers, now).or_else(|| parsed.as_ref().and_then(retry_info)))
}

/// Converts an error event within a stream. Tokens may have been billed by then.
pub(crate) fn event_error(body: &Value, redactor: &Redactor) -> ProviderError {
    let inner = body.get("error").filter(|inner| inner.is_object()).unwrap_or(body);
    let field = |key: &str| inner.get(key).and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let code = inner.get("code").and_then(Value::as_u64).or_else(|| field("code").parse().ok());
    let name = format!("{} {} {}", field("type"), field("code"), field("status"));
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| name.contains(phrase));
    let lower = inner.to_string().to_ascii_lowercase();
    // Some providers describe a wrong request only in the message.
    let kind = if is_stale(&lower) {
        ErrorKind::StaleState
    } else if has(&["overloaded", "unavailable"]) || matches!(code, Some(503 | 529)) {
        ErrorKind::Overloaded
    } else if has(&["rate_limit", "resource_exhausted", "quota"]) || code == Some(429) {
        ErrorKind::RateLimited
    } else if too_long::is_too_long(inner) {
        ErrorKind::ContextTooLong
    } else if has(&["authentication", "permission", "unauthenticated", "api_key"]) || matches!(code, Some(401 | 403)) {
        ErrorKind::Unauthorized
    } else if has(&["timeout", "deadline"]) {
        ErrorKind::Timeout
    } else if has(&["not_found"]) || code == Some(404) {
        ErrorKind::UnknownModel
    } else if has(&["invalid_", "_policy", "context_length"]) || code == Some(400) {
        wrong_request(&lower)
    } else {
        ErrorKind::Server
    };
    let message = message_of(body).unwrap_or_else(|| clip(&body.to_string(), 1_000));
    ProviderError::redacted(kind, &format!("the stream reported: {message}"), redactor)
        .charge(Charge::Unknown)
        .retry_after(retry_info(body))
}

/// Distinguishes the causes of a status 400 by the phrases that providers use.
fn wrong_request(lower: &str) -> ErrorKind {
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
    if lower.contains("maximum context length") {
        ErrorKind::ContextTooLong
    } else if is_stale(lower) {
        ErrorKind::StaleState
    } else if has(&["api_key_invalid", "api key not valid", "invalid_api_key", "credit balance is too low"]) {
        ErrorKind::Unauthorized
    } else if has(&["model_not_found", "model not found", "does not exist", "unknown model", "invalid model"]) {
        ErrorKind::UnknownModel
    } else {
        ErrorKind::BadRequest
    }
}

/// Whether the error is about opaque state of earlier answers: altered, no longer usable, or
/// missing.
fn is_stale(lower: &str) -> bool {
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| lower.contains(phrase));
    // OpenAI.
    has(&["invalid_encrypted_content", "items are not persisted", "without its required"])
        || lower.contains("encrypted content") && has(&["could not be verified", "could not be decrypted"])
        // Anthropic, sometimes with backticks.
        || lower.contains("signature") && has(&["thinking.signature", "in `thinking` block", "in thinking block"])
        || has(&["expected `thinking` or `redacted_thinking`", "blocks in the latest assistant message cannot be modified"])
        // Google.
        || has(&["thought signature is not valid", "missing a thought_signature", "thought_signature is not valid"])
        // DeepSeek.
        || has(&["reasoning_content", "content[].thinking"]) && has(&["must be passed back", "missing"])
        // Mistral and Groq, which refuse reasoning that other servers want back.
        || lower.contains("reasoning") && has(&["extra_forbidden", "is unsupported"])
}

/// Whether a JSON body is an error in one of the shapes that providers use.
fn names_an_error(body: &Value) -> bool {
    let names = |key: &&str| body.get(*key).is_some_and(|value| !value.is_null());
    ["error", "errors", "message", "detail"].iter().any(names)
}

/// The message in an error body, in any of the shapes that providers use.
fn message_of(body: &Value) -> Option<String> {
    let error = body.get("error").unwrap_or(body);
    let text = error.as_str().or_else(|| error.get("message").and_then(Value::as_str));
    let text = text.or_else(|| body.get("message").and_then(Value::as_str))?;
    let code = error.get("code").and_then(Value::as_str).or_else(|| error.get("type").and_then(Value::as_str));
    let text = clip(&one_line(text), 1_000);
    Some(match code {
        Some(code) => format!("{text} ({})", clip(code, 80)),
        None => text,
    })
}

/// The wait that an error body asks for. Google puts it there instead of a header: a number of
/// seconds followed by `s`.
fn retry_info(body: &Value) -> Option<Duration> {
    let details = body.get("error").unwrap_or(body).get("details")?.as_array()?;
    details.iter().find_map(|detail| {
        let kind = detail.get("@type")?.as_str()?;
        let wait = detail.get("retryDelay").filter(|_| kind.ends_with("google.rpc.RetryInfo"))?.as_str()?;
        Duration::try_from_secs_f64(wait.strip_suffix('s')?.parse().ok()?).ok()
    })
}

/// The wait that the headers ask for: `retry-after-ms`, otherwise `retry-after` in seconds or as a
/// date. A date is compared with the response's `date` header if there is one, otherwise with
/// `now`.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let ms = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok());
    if let Some(wait) = ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1_000.0).ok()) {
        return Some(wait);
    }
    let wait = text("retry-after")?;
    if let Ok(seconds) = wait.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = httpdate::parse_http_date(wait).ok()?;
    let there = text("date").and_then(|date| httpdate::parse_http_date(date).ok()).or_else(|| {
        let ms = u64::try_from(now.0).ok()?;
        std::time::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
    })?;
    Some(until.duration_since(there).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_wait_in_the_error_body_is_read() {
        let body = |wait: Value| {
            let other = json!({ "@type": "type.googleapis.com/google.rpc.QuotaFailure", "retryDelay": "9s" });
            let info = json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": wait });
            json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "details": [other, 7, info] } })
        };
        let redactor = Redactor::default();
        for (wait, read) in [
            (json!("1.5s"), Some(1_500)),
            (json!("34s"), Some(34_000)),
            (json!("0s"), Some(0)),
            (json!("-3s"), None),
            (json!("99999999999999999999s"), None),
            (json!("soon"), None),
            (json!("3"), None),
            (json!(3), None),
            (json!({}), None),
            (Value::Null, None),
        ] {
            let (body, read) = (body(wait), read.map(Duration::from_millis));
            let asked = |headers| status_error(429, &headers, &body.to_string(), Timestamp(0), &redactor).retry_after;
            assert_eq!(asked(HeaderMap::new()), read, "{body}");
            assert_eq!(event_error(&body, &redactor).retry_after, read, "{body}");
            assert_eq!(asked(headers(&[("retry-after", "7")])), Some(Duration::from_secs(7)), "a header comes first");
        }
        let none = status_error(429, &HeaderMap::new(), r#"{"error":{"details":"x"}}"#, Timestamp(0), &redactor);
        assert_eq!(none.retry_after, None);
    }

    #[test]
    fn statuses_and_bodies_map_to_error_kinds() {
        for (status, body, kind) in [
            (401, "{}", ErrorKind::Unauthorized),
            (404, r#"{"error":{"message":"model: nope"}}"#, ErrorKind::UnknownModel),
            (404, "<html>not here</html>", ErrorKind::UnknownModel),
            (404, "default backend - 404", ErrorKind::UnknownModel),
            (400, r#"{"error":{"code":"context_length_exceeded","message":"m"}}"#, ErrorKind::ContextTooLong),
            (400, r#"{"error":{"message":"prompt is too long: 9 > 8"}}"#, ErrorKind::ContextTooLong),
            (500, r#"{"error":"the input length 9000 exceeds the context of 8192"}"#, ErrorKind::ContextTooLong),
            (502, "exceeded model token limit: 8192", ErrorKind::ContextTooLong),
            (503, r#"{"error":"prompt of 9000 tokens exceeds the limit of 8192"}"#, ErrorKind::Overloaded),
            (429, r#"{"error":"prompt of 9000 tokens exceeds the limit of 8192"}"#, ErrorKind::RateLimited),
            (
                413,
                r#"{"error":{"message":"Limit 6000 tokens per minute (TPM), requested 7000"}}"#,
                ErrorKind::RateLimited,
            ),
            (413, "<html>Request Entity Too Large</html>", ErrorKind::ContextTooLong),
            (400, r#"{"error":{"message":"max_tokens: 9 > 8, the maximum of output tokens"}}"#, ErrorKind::BadRequest),
            (502, "<html>the prompt exceeds the limit of 8 tokens</html>", ErrorKind::Server),
            (400, r#"{"error":{"message":"API key not valid.","status":"INVALID_ARGUMENT"}}"#, ErrorKind::Unauthorized),
            (400, "what", ErrorKind::Gateway),
            (422, "<html>Sign in</html>", ErrorKind::Gateway),
            (422, r#"{"detail":[{"loc":["body","messages"],"msg":"field required"}]}"#, ErrorKind::BadRequest),
            (400, r#"{"object":"error","message":"temperature must be at most 2"}"#, ErrorKind::BadRequest),
            (400, r#"{"error":null}"#, ErrorKind::Gateway),
            (451, r#"{"error":"not in your country"}"#, ErrorKind::BadRequest),
            (405, "", ErrorKind::Gateway),
            (429, "", ErrorKind::RateLimited),
            (500, "", ErrorKind::Server),
            (503, "", ErrorKind::Overloaded),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                ErrorKind::Overloaded,
            ),
            (302, "", ErrorKind::Gateway),
            (304, r#"{"error":{"message":"m"}}"#, ErrorKind::Gateway),
        ] {
            let error = status_error(status, &HeaderMap::new(), body, Timestamp(0), &Redactor::default());
            assert_eq!((error.kind, error.status), (kind, Some(status)), "{status} {body}");
            assert_eq!(error.charge, Charge::Nothing, "{status} {body}");
        }
    }

    #[test]
    fn error_events_map_to_error_kinds() {
        for (body, kind) in [
            (
                json!({ "type": "error", "error": { "type": "overloaded_error", "message": "x" } }),
                ErrorKind::Overloaded,
            ),
            (json!({ "message": "x", "type": "server_error" }), ErrorKind::Server),
            (
                json!({ "error": { "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "x" } }),
                ErrorKind::RateLimited,
            ),
            (json!({ "code": "context_length_exceeded", "type": "invalid_request_error" }), ErrorKind::ContextTooLong),
            (json!({ "message": "Prompt has 9000 tokens, but the context size is 8192" }), ErrorKind::ContextTooLong),
            (
                json!({ "error": { "code": 500, "message": "exceeded model token limit: 8192" } }),
                ErrorKind::ContextTooLong,
            ),
            (json!("input length 9000 exceeds the maximum of 8192 tokens"), ErrorKind::ContextTooLong),
            (
                json!({ "type": "rate_limit_error", "message": "9000 input tokens exceed the limit of 8000" }),
                ErrorKind::RateLimited,
            ),
            (json!({ "type": "api_error", "message": "8000 tokens per minute exceeded" }), ErrorKind::Server),
            (json!({ "code": "invalid_prompt", "message": "x" }), ErrorKind::BadRequest),
            (json!({ "code": "bio_policy", "message": "x" }), ErrorKind::BadRequest),
            (json!("anything"), ErrorKind::Server),
        ] {
            let error = event_error(&body, &Redactor::default());
            assert_eq!((error.kind, error.charge), (kind, Charge::Unknown), "{body}");
        }
    }

    #[test]
    fn stale_state_is_recognised_for_each_provider() {
        let openai = |code: &str, message: &str| json!({ "error": { "type": "invalid_request_error", "code": code, "message": message } });
        let anthropic = |message: &str| json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } });
        let google =
            |message: &str| json!({ "error": { "code": 400, "status": "INVALID_ARGUMENT", "message": message } });
        for (status, body) in [
            (400, openai("invalid_encrypted_content", "The encrypted content gAAA could not be verified.")),
            (400, openai("", "Encrypted content could not be decrypted or parsed.")),
            (404, openai("", "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.")),
            (400, openai("", "Item 'rs_1' of type 'reasoning' was provided without its required following item.")),
            (400, openai("", "Item 'fc_1' was provided without its required 'reasoning' item: 'rs_1'.")),
            (400, anthropic("messages.1.content.0: Invalid `signature` in `thinking` block")),
            (400, anthropic("messages.1.content.0.thinking.signature: Field required")),
            (
                400,
                anthropic("messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`."),
            ),
            (400, google("Thought signature is not valid.")),
            (400, google("Function call is missing a thought_signature in functionCall parts.")),
            (400, openai("", "The `reasoning_content` in the thinking mode must be passed back to the API.")),
            (422, openai("", "Missing reasoning_content field in the assistant message at message index 2.")),
        ] {
            let redactor = Redactor::default();
            let error = status_error(status, &HeaderMap::new(), &body.to_string(), Timestamp(0), &redactor);
            assert_eq!((error.kind, error.charge), (ErrorKind::StaleState, Charge::Nothing), "{body}");
            let error = event_error(&body, &redactor);
            assert_eq!((error.kind, error.charge), (ErrorKind::StaleState, Charge::Unknown), "{body}");
        }
        for body in [
            openai("", "Encrypted content is not supported with this model."),
            openai("", "Unsupported parameter: 'reasoning.effort' is not supported with this model."),
            anthropic("tools.0.input_schema: Field required"),
            anthropic("`max_tokens` must be greater than `thinking.budget_tokens`"),
        ] {
            let error = status_error(400, &HeaderMap::new(), &body.to_string(), Timestamp(0), &Redactor::default());
            assert_eq!(error.kind, ErrorKind::BadRequest, "{body}");
        }
    }

    #[test]
    fn every_form_of_retry_after_is_read() {
        let now = Timestamp(784_111_717_000); // 06 Nov 1994 08:48:37
        for (list, wait) in [
            (vec![("retry-after", "7")], Some(7_000)),
            (vec![("retry-after", "1.5")], Some(1_500)),
            (vec![("retry-after", "9"), ("retry-after-ms", "250")], Some(250)),
            (vec![("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(60_000)),
            (
                vec![("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), ("date", "Sun, 06 Nov 1994 08:49:27 GMT")],
                Some(10_000),
            ),
            (vec![("retry-after", "Sat, 06 Nov 1993 08:49:37 GMT")], Some(0)),
            (vec![("retry-after", "-3")], None),
            (vec![("retry-after", "NaN")], None),
            (vec![("retry-after", "1e300")], None),
            (vec![("retry-after", "1000000000")], Some(1_000_000_000_000)),
            (vec![("retry-after", "7"), ("retry-after-ms", "-1")], Some(7_000)),
            (vec![("retry-after", "soon")], None),
            (vec![], None),
        ] {
            assert_eq!(retry_after(&headers(&list), now), wait.map(Duration::from_millis), "{list:?}");
        }
    }

    proptest! {
        #[test]
        fn any_failure_is_converted(status in 0_u16..1_000, body in any::<String>(), wait in "[ -~]{0,30}") {
            let headers = headers(&[("retry-after", wait.as_str())]);
            let error = status_error(status, &headers, &body, Timestamp(0), &Redactor::default());
            prop_assert!(error.message.len() <= crate::error::MESSAGE_MAX);
        }
    }
}
