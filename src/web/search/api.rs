//! One call of a service that answers with JSON, and its failures as refusals.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ghost_domain::json_text::readable_bytes;
use ghost_domain::redact::Redactor;
use ghost_domain::text::{clip, one_line};
use ghost_domain::{Clock, Code, Refusal};
use hyper::Method;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::Url;

use crate::client::{Bounds, Client, Outgoing, Reply};
use crate::decode::decode;
use crate::wait::within;

/// Bytes of an answer.
const ANSWER_MAX: usize = 4 << 20;
/// Characters of a service's own message.
const MESSAGE_MAX: usize = 300;

/// A service.
pub(crate) struct Api {
    name: &'static str,
    base: Url,
    key: Option<SecretString>,
    redactor: Redactor,
    client: Client,
    clock: Arc<dyn Clock>,
}

/// The key of a service.
///
/// # Errors
/// If the variable is not set, or cannot be sent.
pub(crate) fn key(variable: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<SecretString, String> {
    let key = env(variable).map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| format!("the variable `{variable}` is not set"))?;
    match HeaderValue::from_str(&key) {
        Ok(_) => Ok(key.into()),
        Err(_) => Err(format!("the variable `{variable}` holds characters that no key has")),
    }
}

impl Api {
    pub(crate) fn new(
        name: &'static str,
        base_url: &str,
        key: Option<SecretString>,
        client: Client,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let base =
            Url::parse(&format!("{base_url}/")).map_err(|error| format!("`{base_url}` is no address: {error}"))?;
        let redactor = Redactor::new(key.as_ref().map(|key| key.expose_secret().to_owned()));
        Ok(Self { name, base, key, redactor, client, clock })
    }

    /// The address of a path below the service's.
    pub(crate) fn url(&self, path: &str) -> Result<Url, Refusal> {
        self.base.join(path).map_err(|error| {
            Refusal::new(Code::Internal, format!("the address of {} cannot be built: {error}", self.name))
                .hint("this is an error of Ghost; report it")
        })
    }

    /// Gets or posts JSON. The key goes into the header `key_header`.
    pub(crate) async fn call(
        &self,
        url: &Url,
        body: Option<&Value>,
        key_header: &'static str,
        limit: Duration,
    ) -> Result<Value, Refusal> {
        let mut headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json")),
            (ACCEPT_ENCODING, HeaderValue::from_static("gzip")),
            (USER_AGENT, HeaderValue::from_static(concat!("ghostd/", env!("CARGO_PKG_VERSION")))),
        ]);
        // `key` checked that it is a header.
        if let Some(Ok(mut value)) = self.key.as_ref().map(|key| HeaderValue::from_str(key.expose_secret())) {
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(key_header), value);
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let outgoing = Outgoing {
            url,
            method: if body.is_some() { Method::POST } else { Method::GET },
            headers,
            body: body.map(|body| Bytes::from(body.to_string())).unwrap_or_default(),
        };
        let exchange = self.client.exchange(outgoing, Bounds { max_bytes: ANSWER_MAX, idle: limit });
        let reply = match within(&*self.clock, limit, exchange).await {
            Some(Ok(reply)) => reply,
            Some(Err(refusal)) => return Err(self.redacted(refusal)),
            None => {
                return Err(Refusal::new(
                    Code::Timeout,
                    format!("{} did not answer within {} s", self.name, limit.as_secs()),
                )
                .hint("try again later, or do it without a search"));
            }
        };
        self.json(reply).map_err(|refusal| self.redacted(refusal))
    }

    fn json(&self, reply: Reply) -> Result<Value, Refusal> {
        let coding = reply.header("content-encoding").unwrap_or_default().to_owned();
        let (status, wait) = (reply.status, reply.header("retry-after").map(str::to_owned));
        let date = reply.header("date").map(str::to_owned);
        let body = decode(reply.body, &coding, ANSWER_MAX)?;
        let parsed: Result<Value, _> = serde_json::from_str(&readable_bytes(&body));
        if (200..300).contains(&status) {
            return parsed.ok().filter(Value::is_object).ok_or_else(|| {
                let start = one_line(&clip(&String::from_utf8_lossy(&body), 80));
                Refusal::new(Code::ExecFailed, format!("{} answered with something else than JSON: {start}", self.name))
                    .hint("the service is at fault; try again later, or do it without a search")
            });
        }
        let message = parsed.ok().as_ref().and_then(message_of);
        let message = message.unwrap_or_else(|| one_line(&clip(&String::from_utf8_lossy(&body), MESSAGE_MAX)));
        Err(self.failed(
            status,
            &message,
            wait.as_deref().and_then(|wait| seconds(wait, date.as_deref(), &*self.clock)),
        ))
    }

    fn failed(&self, status: u16, message: &str, wait: Option<u64>) -> Refusal {
        let what = format!("{} answered {status}: {}", self.name, clip(message, MESSAGE_MAX));
        let later = match wait {
            Some(wait) => format!("try again in {wait} s, or do it without a search"),
            None => "try again later, or do it without a search".to_owned(),
        };
        let refusal = match status {
            300..=399 => Refusal::new(Code::ExecFailed, format!("{} redirects, which is not followed", self.name))
                .hint("ask the operator to set the service's own address in `web`"),
            // Gemini answers a wrong key so.
            400 if message.to_ascii_lowercase().contains("api key") => self.failed(401, message, wait),
            400 | 404 | 422 => Refusal::new(Code::InvalidArguments, what).hint("change the query or its options"),
            401..=403 => Refusal::new(Code::Unavailable, what)
                .hint("the service refuses the key or the request; tell the operator, and do it without a search"),
            429 => Refusal::new(Code::RateLimited, what).hint(later),
            _ => Refusal::new(Code::Unavailable, what).hint(later),
        };
        refusal.details(match wait {
            Some(wait) => json!({ "status": status, "retry_after_s": wait }),
            None => json!({ "status": status }),
        })
    }

    fn redacted(&self, refusal: Refusal) -> Refusal {
        Refusal { message: self.redactor.redact(&refusal.message), ..refusal }
    }
}

/// The message in the forms that the services document.
fn message_of(body: &Value) -> Option<String> {
    let error = body.get("error").unwrap_or(body);
    let text = error.as_str().or_else(|| {
        ["message", "detail", "code"].into_iter().find_map(|field| error.get(field).and_then(Value::as_str))
    });
    text.map(|text| one_line(&clip(text, MESSAGE_MAX)))
}

/// The seconds of a `Retry-After`: a number, or a date. A date is compared with the answer's own if there is one.
fn seconds(wait: &str, date: Option<&str>, clock: &dyn Clock) -> Option<u64> {
    if let Ok(seconds) = wait.parse::<u64>() {
        return Some(seconds);
    }
    let until = httpdate::parse_http_date(wait).ok()?;
    let now = date.and_then(|date| httpdate::parse_http_date(date).ok()).or_else(|| {
        let ms = u64::try_from(clock.now().0).ok()?;
        std::time::UNIX_EPOCH.checked_add(Duration::from_millis(ms))
    })?;
    Some(until.duration_since(now).unwrap_or_default().as_secs())
}
