//! The line to the daemon: the channel, the token on every request, and asking again when the daemon is not there.
//!
//! Must never: ask a mutation again under another `request_id`. The request is built once and repeated as it is, so
//! that a daemon which died between doing and answering gives the stored answer.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};
use tonic::{Code, Request, Response, Status};

use crate::discovery::{Target, TlsFiles};
use crate::endpoint::Endpoint;
use crate::failure::{
    Failure, came_from_the_daemon, is_absent, is_lost, refused_by_the_kernel, refused_by_tls, root_cause,
};
use crate::source::unreadable;
use crate::view::View;
use crate::wait::{Backoff, Deadline, pause};

/// The largest answer that is read.
pub const ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// The largest headers and trailers that are read: a refusal travels in one.
const TRAILER_BYTES: u32 = 1024 * 1024;
/// Bytes of a token: it travels in a header, and servers take 8 KiB of those.
const TOKEN_MAX: usize = 4 * 1024;
/// With less time left than this, no other attempt is made.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
/// One attempt to connect takes no longer. A daemon that nobody has met yet is given up after it, too: most often it does not
/// run. One that went away in the middle is waited for as long as the command may take.
const CONNECT: Duration = Duration::from_secs(1);
/// A peer that went away without a word is noticed within about twice this.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// What the files of mutual TLS must hold.
const TLS_FILES: &str = "GHOST_TLS_CA names the authority of the daemon's certificate, GHOST_TLS_CERT and GHOST_TLS_KEY \
                         yours, from the authority that the daemon trusts";

/// What clients of services are made over.
pub type Transport = InterceptedService<Channel, Bearer>;

/// Puts the token on a request.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// A daemon, whether it is there at the moment or not.
pub struct Client {
    transport: Transport,
    /// Where it should be.
    pub endpoint: Endpoint,
    /// How long one command may take.
    pub timeout: Duration,
    /// How answers look to who reads them.
    pub view: View,
    /// Told once, when the daemon is waited for.
    on_waiting: Box<dyn Fn(&str)>,
    /// Whether the daemon was there since the command began.
    met: AtomicBool,
}

impl Client {
    /// Prepares the line; the first request opens it. Must be called within the runtime.
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
        Ok(Self { transport, endpoint: target.endpoint, timeout, view, on_waiting, met: AtomicBool::new(false) })
    }

    fn speaks_tls(&self) -> bool {
        matches!(self.endpoint, Endpoint::Tcp { tls: true, .. })
    }

    /// The line, for streams.
    pub fn transport(&self) -> Transport {
        self.transport.clone()
    }

    /// Asks, and asks again with back-off while the daemon is not there, until the timeout.
    pub async fn call<R: Clone, T>(
        &self,
        request: R,
        ask: impl AsyncFn(Transport, R) -> Result<Response<T>, Status>,
    ) -> Result<T, Failure> {
        self.call_within(self.timeout, request, ask).await
    }

    /// The same with a time of its own, for calls that the daemon itself ends at the timeout.
    pub async fn call_within<R: Clone, T>(
        &self,
        patience: Duration,
        request: R,
        ask: impl AsyncFn(Transport, R) -> Result<Response<T>, Status>,
    ) -> Result<T, Failure> {
        let mut waiting = self.patience(patience);
        loop {
            match waiting.deadline.within(ask(self.transport(), request.clone())).await {
                None => return Err(waiting.timed_out()),
                Some(Ok(response)) => {
                    self.meet();
                    return Ok(response.into_inner());
                }
                Some(Err(status)) => waiting.bear(self, status).await?,
            }
        }
    }

    /// A word to a person, on standard error.
    pub fn word(&self, text: &str) {
        (self.on_waiting)(text);
    }

    /// The daemon is there: from now on its absence is a restart, which is waited for.
    pub fn meet(&self) {
        self.met.store(true, Ordering::Relaxed);
    }

    /// Patience for a daemon that is not there.
    pub fn patience(&self, patience: Duration) -> Patience {
        let first = Deadline::after(patience.min(CONNECT));
        Patience { deadline: Deadline::after(patience), first, patience, backoff: Backoff::new(), lost: None }
    }
}

/// How long a daemon that is not there is waited for, and how often it is asked.
pub struct Patience {
    deadline: Deadline,
    /// The end of waiting for a daemon that nobody has met.
    first: Deadline,
    patience: Duration,
    backoff: Backoff,
    /// What the last attempt came to.
    lost: Option<Failure>,
}

impl Patience {
    /// Waits before the next attempt if `status` says that the daemon is not there and there is time left; otherwise
    /// says what went wrong.
    pub async fn bear(&mut self, client: &Client, status: Status) -> Result<(), Failure> {
        if refused_by_the_kernel(&status) {
            return Err(Failure::new("access_denied", format!("{} belongs to another user", client.endpoint))
                .hint("the socket serves the user that runs ghostd; use TCP and its token for others"));
        }
        if client.speaks_tls() && refused_by_tls(&status) {
            let cause = root_cause(&status);
            return Err(Failure::new("access_denied", format!("{} was not agreed on: {cause}", client.endpoint))
                .hint(TLS_FILES));
        }
        if !is_lost(&status) {
            return Err(status.into());
        }
        let absent = is_absent(&status) && !client.met.load(Ordering::Relaxed);
        if !absent {
            client.meet();
        }
        // Half of what is left at most, so that the last attempts come close to the end of patience.
        let left = if absent { self.first.remaining() } else { self.deadline.remaining() };
        let next = self.backoff.next().min(left / 2);
        if self.lost.is_none() {
            (client.on_waiting)(&format!("waiting for ghostd at {} ({})", client.endpoint, root_cause(&status)));
        }
        // A daemon that is there and says UNAVAILABLE itself has a better reason than ours.
        let failure = match () {
            () if came_from_the_daemon(&status) => status.into(),
            () if absent => nobody(client, &root_cause(&status)),
            () => self.gone(client, &root_cause(&status)),
        };
        if left < SHORTEST_PAUSE {
            return Err(failure);
        }
        self.lost = Some(failure);
        pause(next).await;
        Ok(())
    }

    /// What to say when no answer came in time: why the attempts before failed, if there were any.
    fn timed_out(self) -> Failure {
        if let Some(failure) = self.lost {
            return failure;
        }
        Failure::new("timeout", format!("no answer within {} s", self.patience.as_secs_f64()))
            .hint("a change may still have been made, or be made yet; look before you repeat it, or raise --timeout")
    }

    fn gone(&self, client: &Client, cause: &str) -> Failure {
        let waited = self.patience.as_secs_f64();
        let failure = Failure::new(
            "unavailable",
            format!("ghostd did not answer at {} within {waited} s: {cause}", client.endpoint),
        );
        // Who shows no certificate is often cut off without a word.
        failure.hint(match client.speaks_tls() {
            true => format!("is it running? If so: {TLS_FILES}"),
            false => "is it running? `ghostd up` starts it; --timeout sets how long to wait".to_owned(),
        })
    }
}

fn nobody(client: &Client, cause: &str) -> Failure {
    Failure::new("unavailable", format!("nobody listens at {}: {cause}", client.endpoint))
        .hint("is ghostd running? `ghostd up` starts it; --wait 30s waits for it")
}

/// Whether a stream ended because this reader was too slow; the daemon keeps the rest for it.
pub fn lagged(status: &Status) -> bool {
    status.code() == Code::Aborted && status.metadata().contains_key(ghost_proto::LAST_SEQ_TRAILER)
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>, Failure> {
    if token.len() > TOKEN_MAX {
        let what = format!("the token has {} bytes, and no daemon takes more than {TOKEN_MAX}", token.len());
        return Err(Failure::new("invalid_arguments", what).hint("a token is one line, such as the file <data>/token"));
    }
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
        Failure::new("invalid_arguments", "the token has characters that no token has")
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
            return Err(Failure::new("invalid_arguments", "an https endpoint needs the certificate to trust").hint(
                "name its PEM file in GHOST_TLS_CA, and for mutual TLS yours in GHOST_TLS_CERT and GHOST_TLS_KEY",
            ));
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

/// Calls one method of one service: `rpc!(client, WorldClient::status, StatusRequest {})`.
macro_rules! rpc {
    ($client:expr, $service:ident :: $method:ident, $request:expr) => {
        $client.call($request, async |transport, request| {
            $service::new(transport).max_decoding_message_size($crate::connection::ANSWER_BYTES).$method(request).await
        })
    };
}
pub(crate) use rpc;

/// A part of an answer that the contract promises and the wire format cannot.
pub fn required<T>(part: Option<T>, what: &str) -> Result<T, Failure> {
    part.ok_or_else(|| {
        Failure::new("internal", format!("the daemon's answer has no {what}"))
            .hint("this daemon and this ghostctl are of different versions")
    })
}

/// A name for one mutation, never used twice.
pub fn new_request_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
