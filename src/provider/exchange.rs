//! One HTTP call to a provider, for all protocols: sends the request and reads the answer event by
//! event.
//!
//! This module must never retry, hold more of an answer than its limit, or read further before it
//! has passed on the events that it has read.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use ghost_domain::Refusal;
use ghost_domain::json_text::{Joiner, readable_part};
use ghost_domain::redact::Redactor;
use ghost_domain::text::clip;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer_bounds::ANSWER_MAX;
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::http::{base_url, client, compression_error, error_body, redactor, status_error, transport_error};
use crate::idle::{Chunks, IdleLimit};
use crate::model::Deltas;
use crate::sse::{Framing, Splitter};

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

/// Assembles an answer from its events. Halves of characters are marks in the events (see [`readable_part`]); what the
/// answer says is joined at its end.
pub(crate) trait Gather: Send {
    /// Adds the data of one event.
    fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError>;
    /// Adds an answer that came as one JSON body instead of a stream.
    fn whole(&mut self, body: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError>;
    /// Whether anything of the protocol was received. Without it, what came back is not an answer, however it ends.
    fn has_begun(&self) -> bool;
    /// Whether the end marker was received.
    fn is_done(&self) -> bool;
    /// Whether the answer is complete although no end marker was received. An unreadable last event
    /// is then a bad answer, not a broken stream.
    fn has_ended(&self) -> bool {
        false
    }
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

    /// Sends `body` to `path`, which may have one query parameter, and reads the answer into
    /// `gather`.
    pub(crate) async fn call(
        &self,
        path: &str,
        body: &impl Serialize,
        framing: Framing,
        gather: &mut dyn Gather,
        deltas: &mut dyn Deltas,
    ) -> Result<(), ProviderError> {
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
        let read = self.read(response, framing, gather, &mut deltas).await;
        deltas.end();
        match read {
            // A body that cannot be read is a gateway's, if nothing before it was the provider's.
            Err(error) if error.kind == ErrorKind::BadAnswer && !gather.has_begun() => Err(error.message),
            Ok(()) if !gather.has_begun() => Err("it has no event of the provider's protocol".to_owned()),
            read => return read,
        }
        .map_err(|why: String| {
            let kind = content_type.as_deref().unwrap_or("no content type");
            let message = format!("what came back is not an answer of the provider (HTTP {status}, {kind}): {why}");
            ProviderError::redacted(ErrorKind::Gateway, &message, &self.redactor).status(status)
        })
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
                Err(error) => return Err(self.broken(&error.message)),
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

    fn text(&self, event: Result<String, crate::sse::SseError>) -> Result<String, ProviderError> {
        event.map_err(|error| {
            ProviderError::redacted(ErrorKind::BadAnswer, &format!("the stream is broken: {error}"), &self.redactor)
        })
    }

    /// The error for an answer that was interrupted.
    fn broken(&self, message: &str) -> ProviderError {
        ProviderError::redacted(
            ErrorKind::BrokenStream,
            &format!("the answer was interrupted: {message}"),
            &self.redactor,
        )
        .charge(Charge::Unknown)
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
        Refusal::new(
            ghost_domain::Code::InvalidArguments,
            format!("header `{}` of provider `{provider}` {what}", ghost_domain::text::clip(name, 80)),
        )
        .hint("see `headers` of the provider in the world file")
    };
    let name = HeaderName::try_from(name).map_err(|_| bad("has an invalid name"))?;
    let mut value =
        HeaderValue::try_from(value).map_err(|_| bad("has characters that are not allowed in an HTTP header"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// A header `name` with a key after `prefix`. It is marked as sensitive, so that it is never
/// printed.
pub(crate) fn key_header(
    provider: &str,
    name: HeaderName,
    prefix: &str,
    key: &SecretString,
) -> Result<(HeaderName, HeaderValue), Refusal> {
    use secrecy::ExposeSecret;
    let mut value = HeaderValue::try_from(format!("{prefix}{}", key.expose_secret())).map_err(|_| {
        Refusal::new(
            ghost_domain::Code::InvalidArguments,
            format!("the key of provider `{provider}` has characters that are not allowed in an HTTP header"),
        )
        .hint("check the environment variable for a line break or a quote")
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Parses an event of a provider.
pub(crate) fn read<'d, T: serde::Deserialize<'d>>(data: &'d str, redactor: &Redactor) -> Result<T, ProviderError> {
    serde_json::from_str(data).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            ProviderError::new(ErrorKind::BadAnswer, "the provider sent an event that lacks a field of its protocol")
        }
        _ => {
            let message = format!("the provider sent invalid JSON: {error}");
            ProviderError::redacted(ErrorKind::BadAnswer, &message, redactor)
        }
    })
}

/// Parses only the first element of a list, without memory for the others.
pub(crate) fn first<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    struct First<T>(std::marker::PhantomData<T>);

    impl<'de, T: serde::Deserialize<'de>> serde::de::Visitor<'de> for First<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }

        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Option<T>, A::Error> {
            let first = list.next_element()?;
            while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }
    deserializer.deserialize_any(First(std::marker::PhantomData))
}
