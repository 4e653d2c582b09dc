//! One call over HTTP: the request is sent, and the answer is read event by event as it comes, whichever protocol it is of.
//!
//! Must never: retry, hold more of an answer than its bound, or read on before what has come is shown.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use ghost_domain::Refusal;
use ghost_domain::redact::Redactor;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::answer_bounds::ANSWER_MAX;
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::http::{base_url, client, error_body, packed, redactor, status_error, transport_error};
use crate::idle::{Chunks, IdleLimit};
use crate::model::Deltas;
use crate::sse::{Framing, Splitter};

/// How long the end of a body may take to come after the answer's end marker.
const DRAIN_MAX: Duration = Duration::from_millis(100);
/// Bytes of an answer after which others have their turn, and a deadline too: what is sent as fast as it is read never has to
/// be waited for.
const STRETCH: usize = 256 * 1_024;
/// Who asks.
const USER_AGENT: &str = concat!("ghost/", env!("CARGO_PKG_VERSION"));

/// Where a provider is, and how it is spoken to.
pub(crate) struct Exchange {
    client: reqwest::Client,
    base: reqwest::Url,
    headers: HeaderMap,
    extra_body: serde_json::Map<String, Value>,
    redactor: Redactor,
    idle: IdleLimit,
}

/// What the world file says of a provider's address.
pub(crate) struct Address<'p> {
    /// Its name there.
    pub(crate) name: &'p str,
    /// Its address, if it is not the provider's own.
    pub(crate) base: Option<&'p str>,
    /// Its key.
    pub(crate) key: Option<SecretString>,
    /// Headers of the user's.
    pub(crate) headers: &'p BTreeMap<String, String>,
    /// Parameters behind each address.
    pub(crate) query: &'p BTreeMap<String, String>,
    /// Fields of each request's body, which go before ours.
    pub(crate) extra_body: &'p serde_json::Map<String, Value>,
    /// How long an answer may be silent.
    pub(crate) idle: IdleLimit,
}

/// Puts an answer together from its events.
pub(crate) trait Gather: Send {
    /// Takes the data of an event.
    fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError>;
    /// Takes an answer that came in one piece though a stream was asked for.
    fn whole(&mut self, body: &[u8], deltas: &mut dyn Deltas) -> Result<(), ProviderError>;
    /// Whether its end marker has come.
    fn is_done(&self) -> bool;
    /// Whether it is whole though no end marker has come: what is left of the stream then is no part of it.
    fn has_ended(&self) -> bool {
        false
    }
}

impl Exchange {
    /// For a provider whose own address is `home`; a bare base URL gets the path `bare`. `own` are the headers that its
    /// protocol wants, among them the one with the key.
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

    /// The host that is spoken to.
    pub(crate) fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// What takes keys out of messages.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Sends `body` to `path`, which may have a query, and reads the answer into `gather`.
    pub(crate) async fn call(
        &self,
        path: &str,
        body: &impl Serialize,
        framing: Framing,
        gather: &mut dyn Gather,
        deltas: &mut dyn Deltas,
    ) -> Result<(), ProviderError> {
        let body = self
            .written(body)
            .map_err(|error| ProviderError::new(ErrorKind::BadRequest, format!("the request is no JSON: {error}")))?;
        let call = self.client.post(self.url(path)).headers(self.headers.clone()).body(body);
        let response = call.send().await.map_err(|error| transport_error(error, &self.redactor))?;
        if !response.status().is_success() {
            return Err(self.failure(response).await);
        }
        if let Some(error) = packed(&response) {
            return Err(error);
        }
        self.read(response, framing, gather, deltas).await
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

    /// The body with the fields that the world file adds: an object is merged into ours, anything else takes the place of ours.
    /// What it does not touch stays byte for byte.
    fn written(&self, body: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
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
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        // Lines of JSON are declared so by some.
        let whole = framing == Framing::Events && kind.is_some_and(|kind| kind.starts_with("application/json"));
        let mut chunks = Chunks::new(response, self.idle.clone());
        let (mut events, mut plain, mut total, mut stretch) = (Splitter::new(framing), Vec::new(), 0, 0);
        while !gather.is_done() {
            // A body that breaks off after its end marker is whole; before it, the loss is not a failure of the network
            // but of the answer, which may have been billed.
            let chunk = match chunks.next(&self.redactor).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) if error.kind == ErrorKind::Timeout => return Err(error),
                Err(error) => return Err(self.broken(&error.message)),
            };
            if stretch >= STRETCH {
                stretch = 0;
                tokio::task::yield_now().await;
            }
            (total, stretch) = (total + chunk.len(), stretch + chunk.len());
            if total > ANSWER_MAX {
                let words = format!("the answer is longer than {ANSWER_MAX} bytes");
                return Err(ProviderError::new(ErrorKind::BadAnswer, words));
            }
            if whole {
                plain.extend_from_slice(&chunk);
                continue;
            }
            events.push(&chunk);
            while let Some(event) = events.next_event() {
                gather.event(&self.text(event)?, deltas)?;
            }
        }
        if gather.is_done() {
            self.drain(chunks.into_inner());
            return Ok(());
        }
        if whole && plain.is_empty() {
            return Err(self.broken("it has no body"));
        }
        if whole {
            return gather.whole(&plain, deltas);
        }
        // A last event may have no end. Half an event is none.
        let Some(event) = events.finish() else { return Ok(()) };
        match gather.event(&self.text(event)?, deltas) {
            Err(error) if error.kind == ErrorKind::BadAnswer && !gather.has_ended() => {
                Err(ProviderError { kind: ErrorKind::BrokenStream, ..error })
            }
            taken => taken,
        }
    }

    /// Reads what follows the end marker, so that the connection is used again: one whose body was not read to its end is
    /// closed. Nearly always the end has come with the marker; who does not say it is waited for by nobody, and for so long
    /// that the connection is lost.
    fn drain(&self, mut response: reqwest::Response) {
        if response.chunk().now_or_never().is_some() {
            return;
        }
        let late = self.idle.clock.sleep(DRAIN_MAX);
        tokio::spawn(async move {
            let rest = std::pin::pin!(response.chunk());
            // Whatever comes is no part of the answer.
            let _ = futures_util::future::select(rest, late).await;
        });
    }

    fn text(&self, event: Result<String, crate::sse::SseError>) -> Result<String, ProviderError> {
        event.map_err(|error| {
            ProviderError::redacted(ErrorKind::BadAnswer, &format!("the stream is broken: {error}"), &self.redactor)
        })
    }

    /// An answer that broke off.
    fn broken(&self, words: &str) -> ProviderError {
        ProviderError::redacted(ErrorKind::BrokenStream, &format!("the answer broke off: {words}"), &self.redactor)
            .charge(Charge::Unknown)
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
    let name = HeaderName::try_from(name).map_err(|_| bad("has no name that HTTP takes"))?;
    let mut value = HeaderValue::try_from(value).map_err(|_| bad("holds characters that no HTTP header may"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// The header `name` that carries a key behind `prefix`, marked so that it is never shown.
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
            format!("the key of provider `{provider}` holds characters that no HTTP header may"),
        )
        .hint("look for a line break or a quote in the environment variable")
    })?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Reads an event of a provider's.
pub(crate) fn read<'d, T: serde::Deserialize<'d>>(data: &'d str, redactor: &Redactor) -> Result<T, ProviderError> {
    serde_json::from_str(data).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            ProviderError::new(ErrorKind::BadAnswer, "the provider sent an event that lacks a field of its protocol")
        }
        _ => {
            let words = format!("the provider sent what is no JSON of its protocol: {error}");
            ProviderError::redacted(ErrorKind::BadAnswer, &words, redactor)
        }
    })
}

/// Reads the first element of a list, and makes no room for the others.
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
