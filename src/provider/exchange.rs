//! One HTTP call to a provider, for all protocols: sends the request and reads the answer event by event. It reads further
//! only when it has passed on the events that it has read.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use ghost_domain::json_text::{Joiner, readable_part};
use ghost_domain::redact::Redactor;
use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer::{ANSWER_MAX, Gather};
use crate::error::{ErrorKind, ProviderError};
use crate::failure::status_error;
use crate::http::{
    Chunks, Framing, IdleLimit, Splitter, SseError, base_url, client, compression_error, error_body, redactor,
    transport_error,
};
use crate::model::{Deltas, ModelAnswer};

/// How long to wait for the end of a body after the answer's end marker.
const DRAIN_MAX: Duration = Duration::from_millis(100);
/// Bytes of an answer after which the task yields. Otherwise an answer whose data arrives as fast
/// as it is read would starve other tasks and the deadline.
const YIELD_BYTES: usize = 256 * 1_024;
/// The `User-Agent` header.
const USER_AGENT: &str = concat!("ghost/", env!("CARGO_PKG_VERSION"));

/// The connection to one provider: its address, its headers and the body fields that
/// `world-config.yaml` adds.
pub(crate) struct Exchange {
    client: reqwest::Client,
    base: reqwest::Url,
    headers: HeaderMap,
    extra_body: serde_json::Map<String, Value>,
    redactor: Redactor,
    idle: IdleLimit,
}

/// The settings of a provider's connection.
pub(crate) struct Address<'p> {
    /// The provider's name in `world-config.yaml`.
    pub(crate) name: &'p str,
    /// Base URL, if it is not the protocol's default.
    pub(crate) base: Option<&'p str>,
    /// The provider's key.
    pub(crate) key: Option<SecretString>,
    /// Headers that `world-config.yaml` adds.
    pub(crate) headers: &'p BTreeMap<String, String>,
    /// Query parameters that are added to each URL.
    pub(crate) query: &'p BTreeMap<String, String>,
    /// Fields that are added to each request's body; they win over Ghost's own.
    pub(crate) extra_body: &'p serde_json::Map<String, Value>,
    /// How long the provider may be silent within an answer.
    pub(crate) idle: IdleLimit,
}

impl Exchange {
    /// Creates the connection for a protocol whose default base URL is `home`. A base URL without a
    /// path gets the path `bare`. `own` are the protocol's headers, including the one with the key.
    pub(crate) fn new(
        address: Address<'_>,
        (home, bare): (&str, &str),
        own: impl IntoIterator<Item = (HeaderName, HeaderValue)>,
    ) -> Result<Self, Refusal> {
        let mut base = base_url(address.name, address.base.unwrap_or(home), bare)?;
        let client = client(address.name, &base)?;
        if !address.query.is_empty() {
            base.query_pairs_mut().extend_pairs(address.query);
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(reqwest::header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        headers.extend(own);
        for (name, value) in address.headers {
            let (name, value) = header(address.name, name, value)?;
            headers.insert(name, value);
        }
        Ok(Self {
            client,
            base,
            headers,
            extra_body: address.extra_body.clone(),
            redactor: redactor(address.key.as_ref()),
            idle: address.idle,
        })
    }

    /// The host of the base URL.
    pub(crate) fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// Redacts the provider's key in messages.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Sends `body` to `path`, which may have one query parameter, and reads the answer with `gather`.
    pub(crate) async fn call(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        framing: Framing,
        mut gather: impl Gather,
        deltas: &mut dyn Deltas,
    ) -> Result<ModelAnswer, ProviderError> {
        let body = self.serialise(body).map_err(|error| {
            ProviderError::new(ErrorKind::BadRequest, format!("the request cannot be written as JSON: {error}"))
        })?;
        let call = self.client.post(self.url(path)).headers(self.headers.clone()).body(body);
        let response = call.send().await.map_err(|error| transport_error(error, &self.redactor))?;
        if !response.status().is_success() {
            return Err(self.failure(response).await);
        }
        if let Some(error) = compression_error(&response) {
            return Err(error);
        }
        let (status, content_type) = (response.status().as_u16(), content_type(&response).map(|kind| clip(kind, 80)));
        let mut deltas = Joined { inner: deltas, text: Joiner::default(), thinking: Joiner::default() };
        let read = self.read(response, framing, &mut gather, &mut deltas).await;
        deltas.end();
        let why = match read {
            // A body that cannot be read is a gateway's, if nothing before it was the provider's.
            Err(error) if error.kind == ErrorKind::BadAnswer && !gather.has_begun() => error.message,
            Ok(()) if !gather.has_begun() => "it has no event of the provider's protocol".to_owned(),
            read => return read.and_then(|()| gather.finish()),
        };
        let kind = content_type.as_deref().unwrap_or("no content type");
        let message = format!("what came back is not an answer of the provider (HTTP {status}, {kind}): {why}");
        Err(ProviderError::redacted(ErrorKind::Gateway, &message, &self.redactor).status(status))
    }

    fn url(&self, path: &str) -> reqwest::Url {
        let mut url = self.base.clone();
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        url.set_path(&format!("{}{path}", self.base.path()));
        if let Some((name, value)) = query.split_once('=') {
            url.query_pairs_mut().append_pair(name, value);
        }
        url
    }

    /// Serialises the body and adds the fields from the world file. An object is merged into
    /// Ghost's own; any other value replaces Ghost's own. Other fields stay byte-identical.
    fn serialise(&self, body: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
        let body = serde_json::to_vec(body)?;
        if self.extra_body.is_empty() {
            return Ok(body);
        }
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&body)?;
        for (key, theirs) in &self.extra_body {
            let ours = fields.get(key).map(|ours| serde_json::from_str::<Value>(ours.get())).transpose()?;
            let value = match (ours, theirs) {
                (Some(Value::Object(mut ours)), Value::Object(theirs)) => {
                    merge(&mut ours, theirs);
                    Value::Object(ours)
                }
                _ => theirs.clone(),
            };
            fields.insert(key.clone(), serde_json::value::to_raw_value(&value)?);
        }
        serde_json::to_vec(&fields)
    }

    async fn failure(&self, mut response: reqwest::Response) -> ProviderError {
        let (status, headers) = (response.status().as_u16(), std::mem::take(response.headers_mut()));
        let body = error_body(&mut response).await;
        status_error(status, &headers, &String::from_utf8_lossy(&body), self.idle.clock.now(), &self.redactor)
    }

    async fn read(
        &self,
        response: reqwest::Response,
        framing: Framing,
        gather: &mut dyn Gather,
        deltas: &mut dyn Deltas,
    ) -> Result<(), ProviderError> {
        // Some servers declare lines of JSON with this content type.
        let whole = framing == Framing::Events
            && content_type(&response).is_some_and(|kind| kind.starts_with("application/json"));
        let mut chunks = Chunks::new(response, self.idle.clone());
        let (mut events, mut plain, mut total, mut since_yield) = (Splitter::new(framing), Vec::new(), 0, 0);
        while !gather.is_done() {
            // A body that is interrupted after its end marker is complete. Before the end marker,
            // the interruption is a broken answer and not a network error, because the call may
            // have been billed.
            let chunk = match chunks.next(&self.redactor).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
                Err(error) => {
                    let message = format!("the answer was interrupted: {}", error.message);
                    return Err(ProviderError::redacted(ErrorKind::BrokenStream, &message, &self.redactor));
                }
            };
            if since_yield >= YIELD_BYTES {
                since_yield = 0;
                tokio::task::yield_now().await;
            }
            (total, since_yield) = (total + chunk.len(), since_yield + chunk.len());
            if total > ANSWER_MAX {
                let message = format!("the answer is longer than {ANSWER_MAX} bytes");
                return Err(ProviderError::new(ErrorKind::BadAnswer, message));
            }
            if whole {
                plain.extend_from_slice(&chunk);
                continue;
            }
            events.push(&chunk);
            while let Some(event) = events.next_event() {
                gather.event(&readable_part(&self.text(event)?), deltas)?;
            }
        }
        if gather.is_done() {
            self.drain(chunks.into_inner());
            return Ok(());
        }
        if whole && plain.is_empty() {
            return Ok(());
        }
        if whole {
            return gather.whole(&readable_part(&String::from_utf8_lossy(&plain)), deltas);
        }
        // The last event may lack its final empty line. An incomplete event means a broken stream.
        let Some(event) = events.finish() else { return Ok(()) };
        match gather.event(&readable_part(&self.text(event)?), deltas) {
            Err(error) if error.kind == ErrorKind::BadAnswer && gather.has_begun() && !gather.has_ended() => {
                Err(ProviderError { kind: ErrorKind::BrokenStream, ..error })
            }
            taken => taken,
        }
    }

    /// Reads the rest of the body after the end marker, so that the connection can be reused.
    /// Usually the rest was received already. Otherwise a task waits for it briefly, and no caller
    /// waits.
    fn drain(&self, mut response: reqwest::Response) {
        if response.chunk().now_or_never().is_some() {
            return;
        }
        let late = self.idle.clock.sleep(DRAIN_MAX);
        tokio::spawn(async move {
            let rest = std::pin::pin!(response.chunk());
            // The rest of the body does not belong to the answer, so its content is ignored.
            let _ = futures_util::future::select(rest, late).await;
        });
    }

    fn text(&self, event: Result<String, SseError>) -> Result<String, ProviderError> {
        event.map_err(|error| {
            ProviderError::redacted(ErrorKind::BadAnswer, &format!("the stream is broken: {error}"), &self.redactor)
        })
    }
}

fn content_type(response: &reqwest::Response) -> Option<&str> {
    response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok())
}

/// Hands on the pieces of an answer with whole characters.
struct Joined<'d> {
    inner: &'d mut dyn Deltas,
    text: Joiner,
    thinking: Joiner,
}

impl Deltas for Joined<'_> {
    fn text(&mut self, text: &str) {
        let text = self.text.push(text);
        if !text.is_empty() {
            self.inner.text(&text);
        }
    }

    fn thinking(&mut self, text: &str) {
        let text = self.thinking.push(text);
        if !text.is_empty() {
            self.inner.thinking(&text);
        }
    }
}

impl Joined<'_> {
    fn end(mut self) {
        if let Some(half) = self.text.end() {
            self.inner.text(half.encode_utf8(&mut [0; 4]));
        }
        if let Some(half) = self.thinking.end() {
            self.inner.thinking(half.encode_utf8(&mut [0; 4]));
        }
    }
}

fn merge(into: &mut serde_json::Map<String, Value>, from: &serde_json::Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(ours)), Value::Object(theirs)) => merge(ours, theirs),
            _ => drop(into.insert(key.clone(), value.clone())),
        }
    }
}

fn header(provider: &str, name: &str, value: &str) -> Result<(HeaderName, HeaderValue), Refusal> {
    let bad = |what: &str| {
        Refusal::new(Code::InvalidArguments, format!("header `{}` of provider `{provider}` {what}", clip(name, 80)))
            .hint("see `headers` of the provider in the world file")
    };
    let name = HeaderName::try_from(name).map_err(|_| bad("has an invalid name"))?;
    let value = HeaderValue::try_from(value);
    let value = value.map_err(|_| bad("has characters that are not allowed in an HTTP header"))?;
    Ok((name, sensitive(value)))
}

/// A header `name` with a key after `prefix`.
pub(crate) fn key_header(
    provider: &str,
    name: HeaderName,
    prefix: &str,
    key: &SecretString,
) -> Result<(HeaderName, HeaderValue), Refusal> {
    let value = HeaderValue::try_from(format!("{prefix}{}", key.expose_secret())).map_err(|_| {
        let what = format!("the key of provider `{provider}` has characters that are not allowed in an HTTP header");
        Refusal::new(Code::InvalidArguments, what).hint("check the environment variable for a line break or a quote")
    })?;
    Ok((name, sensitive(value)))
}

/// A value that is never printed.
fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}
