//! HTTP helpers for all adapters: the client, and the conversion of failures (status, retry-after,
//! error bodies and error events) into [`ProviderError`].
//!
//! These helpers must never follow a redirect with a key, read an unbounded body, or put a URL with
//! its query into an error.

use std::error::Error as _;
use std::time::Duration;

use ghost_domain::json_text::readable;
use ghost_domain::redact::Redactor;
use ghost_domain::text::{clip, one_line};
use ghost_domain::{Code, Refusal, Timestamp};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::error::{Charge, ErrorKind, ProviderError};
use crate::retry_after::{retry_after, retry_info};
use crate::too_long;

/// Longest error body that is read, in bytes.
pub(crate) const ERROR_BODY_MAX: usize = 64 * 1_024;
/// Time limit for connecting to a provider; the caller limits the whole call.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Checks a base URL and makes it end in `/`.
pub(crate) fn base_url(name: &str, url: &str, path_if_bare: &str) -> Result<reqwest::Url, Refusal> {
    let bad = |why: String| {
        Refusal::new(Code::InvalidArguments, format!("the base_url of provider `{name}` {why}"))
            .hint("give an address, for example http://127.0.0.1:8080/v1")
    };
    let mut parsed = reqwest::Url::parse(url).map_err(|error| bad(format!("is not a URL: {error}")))?;
    if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
        return Err(bad("is neither http nor https".to_owned()));
    }
    if parsed.query().is_some() || parsed.fragment().is_some() || !parsed.username().is_empty() {
        return Err(bad("has a query, a fragment or a user".to_owned()));
    }
    let path = parsed.path().trim_end_matches('/');
    let path = if path.is_empty() { format!("/{path_if_bare}") } else { format!("{path}/") };
    parsed.set_path(&path);
    Ok(parsed)
}

/// The settings of all clients. Compression is switched off: events are small, and a small
/// compressed body could unpack to any size.
pub(crate) fn builder() -> reqwest::ClientBuilder {
    let plain = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    reqwest::Client::builder()
        .default_headers(plain)
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(256)
        .tcp_nodelay(true)
}

/// The HTTP client of one provider. Its calls share the connections.
pub(crate) fn client(name: &str, base: &reqwest::Url) -> Result<reqwest::Client, Refusal> {
    // `main` installs the process's crypto provider at its start, but tests and other binaries may
    // not. The client needs one. If one is installed already, this changes nothing.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    let mut builder = builder();
    let loopback = match base.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host.starts_with("127."),
        None => false,
    };
    if loopback {
        builder = builder.no_proxy();
    }
    // Tests use host names of real providers and reach this machine.
    #[cfg(test)]
    for host in ["eu.api.openai.com", "x.openai.azure.com"] {
        builder = builder.no_proxy().resolve(host, ([127, 0, 0, 1], 0).into());
    }
    builder.build().map_err(|error| {
        Refusal::new(Code::Internal, format!("the HTTP client of provider `{name}` cannot be built: {}", chain(&error)))
    })
}

/// A redactor that knows the provider's key.
pub(crate) fn redactor(key: Option<&SecretString>) -> Redactor {
    Redactor::new(key.map(|key| key.expose_secret().to_owned()))
}

/// The text of an error with its causes, without any URL.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = inner.source();
    }
    text
}

/// Converts a failure of the connection or of the body.
pub(crate) fn transport_error(error: reqwest::Error, redactor: &Redactor) -> ProviderError {
    let error = error.without_url();
    let (kind, charge) = if error.is_connect() {
        (ErrorKind::Network, Charge::Nothing)
    } else if error.is_timeout() {
        (ErrorKind::Timeout, Charge::Unknown)
    } else if error.is_builder() {
        (ErrorKind::BadRequest, Charge::Nothing)
    } else if error.is_body() || error.is_decode() {
        (ErrorKind::BrokenStream, Charge::Unknown)
    } else {
        (ErrorKind::Network, Charge::Unknown)
    };
    let mut message = chain(&error);
    if let Some(inner) = error.source().filter(|_| message.is_empty()) {
        message = inner.to_string();
    }
    ProviderError::redacted(kind, &message, redactor).charge(charge)
}

/// The error for a compressed response. Ghost asks for uncompressed responses.
pub(crate) fn compression_error(response: &reqwest::Response) -> Option<ProviderError> {
    let codings = response.headers().get_all(CONTENT_ENCODING).iter();
    let mut codings = codings.map(|coding| String::from_utf8_lossy(coding.as_bytes()));
    let coding = codings.find(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))?;
    let message =
        format!("the provider sent its answer as `{}`, though it was asked for plain text", clip(&coding, 40));
    Some(ProviderError::new(ErrorKind::BadAnswer, message))
}

/// Reads the body of an error response up to a limit. If the body is interrupted, the part read so
/// far is used. A compressed body is ignored.
pub(crate) async fn error_body(response: &mut reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    if compression_error(response).is_some() {
        return body;
    }
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() >= ERROR_BODY_MAX {
            body.truncate(ERROR_BODY_MAX);
            break;
        }
    }
    body
}

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
    fn base_urls_are_checked() {
        let url = |text| base_url("p", text, "v1/").map(|url| url.to_string());
        assert_eq!(url("http://h:1").unwrap(), "http://h:1/v1/");
        assert_eq!(url("https://h/a/b/").unwrap(), "https://h/a/b/");
        for bad in ["h:1", "ftp://h", "http://h/?k=1", "http://u@h/", ""] {
            assert!(url(bad).is_err(), "{bad}");
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
