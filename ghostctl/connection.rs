//! The connection to the daemon: the channel, the token on every request, retries while the daemon is unreachable, and the
//! full id for an abbreviated one.
//!
//! A request is built once and repeated unchanged, with its `request_id`. So if the daemon stopped after the effect but
//! before the answer, the repetition gets the stored answer.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ghost_proto::{Call, v1};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::arguments::unreadable;
use crate::discovery::{Target, TlsFiles};
use crate::endpoint::Endpoint;
use crate::failure::{
    Failure, came_from_the_daemon, is_connection_failure, is_not_listening, refused_by_the_kernel, refused_by_tls,
    root_cause,
};
use crate::output::View;
use crate::wait::{Backoff, Deadline, pause};
use crate::worlds::Stopped;

/// The largest answer that the client accepts, in bytes.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// The largest headers and trailers that the client accepts, in bytes. Refusals are sent in a trailer.
const TRAILER_BYTES: u32 = 1024 * 1024;
/// The longest token in bytes. It is sent in a header, and servers accept about 8 KiB of headers.
const TOKEN_MAX: usize = 4 * 1024;
/// If less time than this is left, there is no further attempt.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// The longest time for one attempt to connect. Retries stop after this time, too, if the daemon has not answered yet
/// during this command, since it probably does not run. If it has, retries go on until the command's timeout.
const CONNECT: Duration = Duration::from_secs(1);
/// Interval and timeout of HTTP/2 keep-alive. A silently dead peer is noticed within about twice this time.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Hint about the TLS environment variables.
const TLS_FILES: &str = "GHOST_TLS_CA is the CA of the daemon's certificate; GHOST_TLS_CERT and GHOST_TLS_KEY are your \
                         certificate and key, issued by the CA that the daemon trusts";

/// The channel.
type Transport = InterceptedService<Channel, Bearer>;

/// Adds the token to each request.
#[derive(Clone)]
struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// A client of one daemon, which may be unreachable at the moment.
pub struct Client {
    transport: Transport,
    /// Address of the daemon.
    pub endpoint: Endpoint,
    /// How long one command may take.
    pub timeout: Duration,
    /// Time zone and width of the text output.
    pub view: View,
    /// Prints a notice to standard error, for example that the client waits for the daemon.
    on_waiting: Box<dyn Fn(&str)>,
    /// The world that was asked for by its name, if no daemon ran it at the beginning.
    stopped: Option<Stopped>,
    /// Whether the daemon has answered during this command.
    reached: AtomicBool,
}

impl Client {
    /// Creates the client without connecting; the first request connects. Must be called within the tokio runtime.
    pub fn new(
        target: Target,
        tls: &TlsFiles,
        timeout: Duration,
        view: View,
        on_waiting: Box<dyn Fn(&str)>,
    ) -> Result<Self, Failure> {
        let unusable = |error: tonic::transport::Error| {
            Failure::new("invalid_arguments", format!("cannot use the endpoint {}: {error}", target.endpoint))
                .hint("write unix:PATH, HOST:PORT or https://HOST:PORT")
        };
        let mut channel = tonic::transport::Endpoint::from_shared(target.endpoint.to_string()).map_err(unusable)?;
        if let Endpoint::Tcp { tls: true, .. } = target.endpoint {
            channel = channel.tls_config(tls_config(tls)?).map_err(unusable)?;
        }
        let channel = channel
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .http2_max_header_list_size(TRAILER_BYTES)
            .connect_lazy();
        let bearer = Bearer(target.token.as_deref().map(bearer).transpose()?);
        let transport = InterceptedService::new(channel, bearer);
        let Target { endpoint, stopped, .. } = target;
        Ok(Self { transport, endpoint, timeout, view, on_waiting, stopped, reached: AtomicBool::new(false) })
    }

    fn uses_tls(&self) -> bool {
        matches!(self.endpoint, Endpoint::Tcp { tls: true, .. })
    }

    async fn ready(&self) -> Result<Grpc<Transport>, Status> {
        let mut grpc = Grpc::new(self.transport.clone()).max_decoding_message_size(ANSWER_BYTES);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
        Ok(grpc)
    }

    /// Sends a request once.
    pub async fn once<R: Call>(&self, request: R) -> Result<R::Answer, Status> {
        let path = PathAndQuery::from_static(R::PATH);
        self.ready().await?.unary(Request::new(request), path, ProstCodec::default()).await.map(Response::into_inner)
    }

    /// Sends a request. Repeats it with back-off while the daemon is unreachable, until the timeout.
    pub async fn call<R: Call>(&self, request: R) -> Result<R::Answer, Failure> {
        self.call_within(self.timeout, request).await
    }

    /// Like [`Client::call`] with another time limit, for calls that the daemon itself ends at the timeout.
    pub async fn call_within<R: Call>(&self, limit: Duration, request: R) -> Result<R::Answer, Failure> {
        let mut window = self.retry_window(limit);
        loop {
            match window.deadline.within(self.once(request.clone())).await {
                None => return Err(window.timed_out()),
                Some(Ok(answer)) => {
                    self.mark_reached();
                    return Ok(answer);
                }
                Some(Err(status)) => window.wait_or_fail(self, status).await?,
            }
        }
    }

    /// Opens a stream. The inner error is a connection that failed, or the daemon's refusal.
    pub async fn open<R: Call>(&self, what: &str, request: R) -> Result<Result<Streaming<R::Answer>, Status>, Failure> {
        let path = PathAndQuery::from_static(R::PATH);
        let opening =
            async { self.ready().await?.server_streaming(Request::new(request), path, ProstCodec::default()).await };
        match Deadline::after(self.timeout).within(opening).await {
            None => Err(Failure::new("timeout", format!("the daemon did not open the {what} in time"))
                .hint("is it busy? --timeout sets how long to wait")),
            Some(opened) => Ok(opened.map(|response| {
                self.mark_reached();
                response.into_inner()
            })),
        }
    }

    /// Prints a notice to standard error, unless the output is JSON.
    pub fn word(&self, text: &str) {
        (self.on_waiting)(text);
    }

    /// Records that the daemon has answered. If it is unreachable later, it restarts, so retries go on longer.
    fn mark_reached(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    /// Starts a period of retries that ends after `limit`.
    pub fn retry_window(&self, limit: Duration) -> RetryWindow {
        let first = Deadline::after(limit.min(CONNECT));
        RetryWindow { deadline: Deadline::after(limit), first, limit, backoff: Backoff::new(), last_failure: None }
    }
}

/// A period of retries while the daemon is unreachable.
pub struct RetryWindow {
    deadline: Deadline,
    /// When retries end if the daemon has not answered yet during this command.
    first: Deadline,
    /// Length of the period, for messages.
    limit: Duration,
    backoff: Backoff,
    /// The failure of the last attempt.
    last_failure: Option<Failure>,
}

impl RetryWindow {
    /// Waits before the next attempt, if `status` means that the daemon is unreachable and time is left. Otherwise
    /// returns the failure.
    pub async fn wait_or_fail(&mut self, client: &Client, status: Status) -> Result<(), Failure> {
        if refused_by_the_kernel(&status) {
            return Err(Failure::new("access_denied", format!("{} belongs to another user", client.endpoint))
                .hint("only the user that runs ghostd can use its socket; other users need TCP and the token"));
        }
        if client.uses_tls() && refused_by_tls(&status) {
            let cause = root_cause(&status);
            return Err(Failure::new(
                "access_denied",
                format!("the TLS handshake with {} failed: {cause}", client.endpoint),
            )
            .hint(TLS_FILES));
        }
        if !is_connection_failure(&status) {
            return Err(status.into());
        }
        let absent = is_not_listening(&status) && !client.reached.load(Ordering::Relaxed);
        if !absent {
            client.mark_reached();
        }
        // At most half of the remaining time, so that the last attempts come close to the deadline.
        let left = if absent { self.first.remaining() } else { self.deadline.remaining() };
        let next = self.backoff.next().min(left / 2);
        if self.last_failure.is_none() {
            (client.on_waiting)(&match &client.stopped {
                Some(world) if absent => format!("waiting for the world `{}`, which does not run", world.name),
                _ => format!("waiting for ghostd at {} ({})", client.endpoint, root_cause(&status)),
            });
        }
        // If the daemon itself answered UNAVAILABLE, its message is more specific than ours.
        let failure = match () {
            () if came_from_the_daemon(&status) => status.into(),
            () if absent => no_listener(client, &root_cause(&status)),
            () => self.connection_lost(client, &root_cause(&status)),
        };
        if left < SHORTEST_PAUSE {
            return Err(failure);
        }
        self.last_failure = Some(failure);
        pause(next).await;
        Ok(())
    }

    /// The failure when no answer came in time: that of the last attempt, if there was one.
    fn timed_out(self) -> Failure {
        if let Some(failure) = self.last_failure {
            return failure;
        }
        Failure::new("timeout", format!("no answer within {} s", self.limit.as_secs_f64()))
            .hint("the request may still take effect; check before you repeat it, or raise --timeout")
    }

    fn connection_lost(&self, client: &Client, cause: &str) -> Failure {
        let waited = self.limit.as_secs_f64();
        let failure = Failure::new(
            "unavailable",
            format!("ghostd did not answer at {} within {waited} s: {cause}", client.endpoint),
        );
        // A server with mutual TLS often drops a client without a certificate without an error.
        failure.hint(match client.uses_tls() {
            true => format!("is it running? If so: {TLS_FILES}"),
            false => "is it running? `ghostd up` starts it; --timeout sets how long to wait".to_owned(),
        })
    }
}

fn no_listener(client: &Client, cause: &str) -> Failure {
    if let Some(Stopped { name, shut_down, world_dir }) = &client.stopped {
        let how = if *shut_down { "it was shut down" } else { "its daemon ended without a shutdown" };
        let dir = world_dir.as_ref().map_or_else(|| "DIR".to_owned(), |dir| dir.display().to_string());
        return Failure::new("unavailable", format!("the world `{name}` does not run: {how}"))
            .hint(format!("start it with `ghostd up {dir}`; --wait 30s waits for it"));
    }
    Failure::new("unavailable", format!("no daemon listens at {}: {cause}", client.endpoint))
        .hint("is ghostd running? `ghostd up` starts it; --wait 30s waits for it")
}

/// Whether the daemon ended a stream because this client read too slowly. The rest can be read with a new stream.
pub fn lagged(status: &Status) -> bool {
    status.code() == Code::Aborted && status.metadata().contains_key(ghost_proto::LAST_SEQ_TRAILER)
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>, Failure> {
    if token.len() > TOKEN_MAX {
        let what = format!("the token has {} bytes; the maximum is {TOKEN_MAX}", token.len());
        return Err(Failure::new("invalid_arguments", what).hint("a token is one line, such as the file <data>/token"));
    }
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
        Failure::new("invalid_arguments", "the token contains invalid characters")
            .hint("a token is one line of printable ASCII")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn tls_config(files: &TlsFiles) -> Result<ClientTlsConfig, Failure> {
    let read = |path: &Path| fs::read(path).map_err(|error| unreadable(path, &error).hint(TLS_FILES));
    let mut config = ClientTlsConfig::new();
    match &files.ca {
        Some(ca) => config = config.ca_certificate(Certificate::from_pem(read(ca)?)),
        None => {
            return Err(Failure::new("invalid_arguments", "an https endpoint needs a CA certificate")
                .hint("set GHOST_TLS_CA to its PEM file; mutual TLS also needs GHOST_TLS_CERT and GHOST_TLS_KEY"));
        }
    }
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => config = config.identity(Identity::from_pem(read(cert)?, read(key)?)),
        (None, None) => {}
        _ => {
            return Err(Failure::new("invalid_arguments", "mutual TLS needs a certificate and its key")
                .hint("set both GHOST_TLS_CERT and GHOST_TLS_KEY"));
        }
    }
    Ok(config)
}

/// A part of an answer that is always present, although the wire format makes it optional.
pub fn required<T>(part: Option<T>, what: &str) -> Result<T, Failure> {
    part.ok_or_else(|| {
        Failure::new("internal", format!("the daemon's answer has no {what}"))
            .hint("this daemon and this ghostctl have different versions")
    })
}

/// A new id for one mutation.
pub fn new_request_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Hexadecimal digits of a full id.
const DIGITS: usize = 32;

/// The kind of an id, as the wire names it. A prefix of an id is enough if it is unique among the ids of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdKind(&'static str);

impl IdKind {
    pub const APPROVAL: Self = Self("approval");
    pub const CONVERSATION: Self = Self("conversation");
    pub const DEAD_LETTER: Self = Self("dead_letter");
    pub const GRANT: Self = Self("grant");
    pub const SCHEDULE: Self = Self("schedule");
    pub const TASK: Self = Self("task");
    pub const TURN: Self = Self("turn");
}

/// The name of the session of an agent's own work.
const OWN_WORK: &str = "own";

/// The full id for a prefix. Text that is not a prefix of an id is returned unchanged; the daemon then refuses the
/// request that uses it.
pub async fn full_id(client: &Client, kind: IdKind, typed: String) -> Result<String, Failure> {
    if !is_prefix(&typed) {
        return Ok(typed);
    }
    let request = v1::ResolveIdRequest { kind: kind.0.to_owned(), prefix: typed.clone() };
    match client.call(request).await {
        Ok(found) => Ok(found.full_id),
        Err(failure) if failure.code == "not_found" => Ok(typed),
        Err(failure) => Err(failure),
    }
}

/// The full name of a session: `own`, or the id of a conversation.
pub async fn full_session(client: &Client, typed: String) -> Result<String, Failure> {
    if typed == OWN_WORK { Ok(typed) } else { full_id(client, IdKind::CONVERSATION, typed).await }
}

/// Like [`full_id`] for an optional id.
pub async fn full_id_if_given(client: &Client, kind: IdKind, typed: Option<String>) -> Result<Option<String>, Failure> {
    match typed {
        Some(typed) => full_id(client, kind, typed).await.map(Some),
        None => Ok(None),
    }
}

/// Like [`full_id`] for several ids.
pub async fn full_ids(client: &Client, kind: IdKind, typed: Vec<String>) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::with_capacity(typed.len());
    for typed in typed {
        ids.push(full_id(client, kind, typed).await?);
    }
    Ok(ids)
}

/// Whether the text can be a prefix of an id and is not a full id.
fn is_prefix(typed: &str) -> bool {
    let digits = typed.bytes().filter(|c| *c != b'-').count();
    (1..DIGITS).contains(&digits) && typed.bytes().all(|c| c == b'-' || c.is_ascii_hexdigit())
}

#[cfg(test)]
mod id_tests {
    use super::is_prefix;

    #[test]
    fn only_possible_prefixes_are_resolved() {
        for typed in ["0", "0197d2", "0197D2A0-11", "0197d2a0-1111-7000-8000-0123456789a"] {
            assert!(is_prefix(typed), "{typed}");
        }
        for typed in ["", "-", "none", "t", "0197d2a0-1111-7000-8000-0123456789ab", "0197d2a01111700080000123456789ab"]
        {
            assert!(!is_prefix(typed), "{typed}");
        }
    }
}
