//! HTTP for all adapters: the client, the body of an answer piece by piece and event by event, and failures of the connection. No
//! redirect is followed, no body is read without a limit, and no URL gets into an error. Events are split in linear time;
//! no more is held than one event and the rest of the last read.

use std::error::Error as _;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ghost_domain::redact::Redactor;
use ghost_domain::text::clip;
use ghost_domain::{Clock, Code, Refusal};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use crate::error::{Charge, ErrorKind, ProviderError};

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

/// How long a provider may be silent within an answer.
#[derive(Clone)]
pub(crate) struct IdleLimit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) max: Duration,
}

/// A response body that is read chunk by chunk. The limit does not include the time before the first byte, in which a model may
/// reason; the call's own deadline limits that.
pub(crate) struct Chunks {
    response: reqwest::Response,
    limit: IdleLimit,
    begun: bool,
}

impl Chunks {
    pub(crate) fn new(response: reqwest::Response, limit: IdleLimit) -> Self {
        Self { response, limit, begun: false }
    }

    /// The next chunk; `None` at the end.
    ///
    /// # Errors
    /// `Timeout` if nothing arrives within the limit; otherwise the error of the connection.
    pub(crate) async fn next(&mut self, redactor: &Redactor) -> Result<Option<Bytes>, ProviderError> {
        let chunk = if self.begun {
            let late = self.limit.clock.sleep(self.limit.max);
            tokio::select! {
                biased;
                chunk = self.response.chunk() => chunk,
                () = late => {
                    let seconds = self.limit.max.as_secs_f64();
                    let message = format!("the answer stopped in the middle: no data arrived for {seconds} s (idle_timeout)");
                    return Err(ProviderError::new(ErrorKind::Timeout, message));
                }
            }
        } else {
            self.response.chunk().await
        };
        self.begun = true;
        chunk.map_err(|error| transport_error(error, redactor))
    }

    /// The response, to read what follows the answer's end.
    pub(crate) fn into_inner(self) -> reqwest::Response {
        self.response
    }
}

/// Longest event, in bytes.
pub(crate) const EVENT_MAX: usize = 8 * 1_024 * 1_024;

/// Some servers begin a stream with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Errors in a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// The event is not UTF-8.
    #[error("an event is not UTF-8")]
    NotText,
    /// The event is too long.
    #[error("an event is longer than {EVENT_MAX} bytes")]
    TooLong,
}

/// How events are separated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events (HTML Living Standard, 9.2).
    #[default]
    Events,
    /// One event on each line.
    Lines,
}

/// Splits bytes into the data of events.
#[derive(Default)]
pub(crate) struct Splitter {
    framing: Framing,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were consumed.
    consumed: usize,
    /// Bytes of `buffer` that were searched for a line end.
    searched: usize,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    /// Whether the first line is over. A byte order mark may stand in front of it.
    begun: bool,
}

impl Splitter {
    pub(crate) fn new(framing: Framing) -> Self {
        Self { framing, ..Self::default() }
    }

    /// Adds bytes to the buffer.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.searched -= self.consumed;
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The data of the next complete event. Events without data are skipped.
    pub(crate) fn next_event(&mut self) -> Option<Result<String, SseError>> {
        loop {
            let Some(end) = self.buffer[self.searched..].iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.searched = self.buffer.len();
                if self.buffer.len() - self.consumed + self.data.len() > EVENT_MAX {
                    return Some(Err(SseError::TooLong));
                }
                return None;
            };
            let end = self.searched + end;
            let (mut start, newline) = (self.consumed, self.buffer[end]);
            if !mem::replace(&mut self.begun, true) && self.buffer[start..end].starts_with(BYTE_ORDER_MARK) {
                start += BYTE_ORDER_MARK.len();
            }
            self.consumed = end + 1;
            self.searched = self.consumed;
            // The second half of a CR LF line end, perhaps split over two reads.
            if newline == b'\n' && mem::take(&mut self.after_cr) && end == start {
                continue;
            }
            self.after_cr = newline == b'\r';
            if start == end {
                if mem::take(&mut self.has_data) {
                    return Some(String::from_utf8(mem::take(&mut self.data)).map_err(|_| SseError::NotText));
                }
                continue;
            }
            let line = &self.buffer[start..end];
            if self.framing == Framing::Lines {
                if end - start > EVENT_MAX {
                    return Some(Err(SseError::TooLong));
                }
                return Some(String::from_utf8(line.to_vec()).map_err(|_| SseError::NotText));
            }
            if let Some(value) = line.strip_prefix(b"data:") {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
                if self.data.len() > EVENT_MAX {
                    return Some(Err(SseError::TooLong));
                }
            }
        }
    }

    /// The data of a last event without an empty line after it.
    pub(crate) fn finish(&mut self) -> Option<Result<String, SseError>> {
        self.push(b"\n\n");
        self.next_event()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn base_urls_are_checked() {
        let url = |text| base_url("p", text, "v1/").map(|url| url.to_string());
        assert_eq!(url("http://h:1").unwrap(), "http://h:1/v1/");
        assert_eq!(url("https://h/a/b/").unwrap(), "https://h/a/b/");
        for bad in ["h:1", "ftp://h", "http://h/?k=1", "http://u@h/", ""] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    fn all(chunks: &[&[u8]]) -> Vec<Result<String, SseError>> {
        let (mut sse, mut events) = (Splitter::default(), Vec::new());
        for chunk in chunks {
            sse.push(chunk);
            while let Some(event) = sse.next_event() {
                events.push(event);
            }
        }
        events.extend(sse.finish());
        events
    }

    #[test]
    fn events_are_split_at_every_kind_of_line_end() {
        let expected: Vec<Result<String, SseError>> = ["a", "b\nc", "d"].map(|s| Ok(s.to_owned())).into();
        for end in ["\n", "\r\n", "\r"] {
            let text = [": comment", "data: a", "", "event: x", "data:b", "data: c", "", "", "data: d"].join(end);
            assert_eq!(all(&[text.as_bytes()]), expected, "{end:?}");
        }
        assert_eq!(all(&[b"data: \xff\n\n"]), [Err(SseError::NotText)]);
        assert_eq!(all(&[b"data\n\nid: 1\n\n"]), []);
    }

    #[test]
    fn a_byte_order_mark_in_front_loses_nothing() {
        for chunks in [
            &[&b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n"[..]][..],
            &[b"\xef", b"\xbb\xbfdata: a\n", b"\ndata: \xef\xbb\xbfb\n\n"],
        ] {
            assert_eq!(all(chunks), [Ok("a".to_owned()), Ok("\u{feff}b".to_owned())]);
        }
        assert_eq!(all(&[b"\xef\xbb\xbf\ndata: a\n\n"]), [Ok("a".to_owned())]);
        let mut lines = Splitter::new(Framing::Lines);
        lines.push(b"\xef\xbb\xbf{}\n\n{}");
        let mut events: Vec<_> = std::iter::from_fn(|| lines.next_event()).collect();
        events.extend(lines.finish());
        assert_eq!(events, [Ok("{}".to_owned()), Ok("{}".to_owned())]);
    }

    proptest! {
        #[test]
        fn the_boundaries_of_reads_make_no_difference(
            text in "(data: ?[a-zé]{0,3}|:x|\n|\r\n|\r|event: y\n){0,20}",
            cuts in proptest::collection::vec(0_usize..60, 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&bytes[from..cut]);
                from = cut;
            }
            chunks.push(&bytes[from..]);
            prop_assert_eq!(all(&chunks), all(&[bytes]));
        }
    }
}
