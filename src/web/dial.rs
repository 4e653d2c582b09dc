//! Connects to hosts. A name is resolved once, each of its addresses is judged, and the connection goes to an address
//! that was judged. So a name server that answers differently the second time gains nothing.
//!
//! Nothing else in this crate resolves a name or opens a connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::text::shown;
use ghost_domain::{Clock, Code, Refusal};
use tokio::net::TcpStream;
use url::Host;

use crate::address::{Named, Rules};

/// The longest time to resolve a name.
const RESOLVE_TIME: Duration = Duration::from_secs(10);
/// The longest time to connect to one address.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Resolves names.
#[async_trait]
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `name`.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the machine.
pub struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Connects to hosts under rules. Clones share everything.
#[derive(Clone)]
pub struct Dialer {
    rules: Arc<Rules>,
    resolver: Arc<dyn Resolve>,
    clock: Arc<dyn Clock>,
}

impl Dialer {
    /// A dialer with these rules.
    #[must_use]
    pub fn new(rules: Rules, resolver: Arc<dyn Resolve>, clock: Arc<dyn Clock>) -> Self {
        Self { rules: Arc::new(rules), resolver, clock }
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The clock of its deadlines.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Connects to a host.
    ///
    /// # Errors
    /// `PolicyDenied` if the rules allow none of its addresses; `Unavailable` if it cannot be resolved or reached;
    /// `Timeout`.
    pub async fn dial(&self, host: &Host<&str>, port: u16) -> Result<TcpStream, Refusal> {
        let place = format!("{}:{port}", shown(&host.to_string(), 120));
        let mut failed = None;
        for address in self.addresses(host, port, &place).await? {
            let connecting = TcpStream::connect(SocketAddr::new(address, port));
            match within(&*self.clock, CONNECT_TIME, connecting).await {
                Some(Ok(stream)) => {
                    // Small requests must not wait for each other. If the socket refuses, they do.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Some(Err(error)) => failed = Some(unreachable(&place, &error)),
                None => failed = Some(slow(&place)),
            }
        }
        Err(failed.unwrap_or_else(|| unreachable(&place, &io::Error::other("it has no address"))))
    }

    /// The addresses of a host that may be connected to.
    async fn addresses(&self, host: &Host<&str>, port: u16, place: &str) -> Result<Vec<IpAddr>, Refusal> {
        let (name, trusted) = match self.rules.host(host, port)? {
            Named::Address(address) => return Ok(vec![address]),
            Named::Name { name, trusted } => (name, trusted),
        };
        let found = match within(&*self.clock, RESOLVE_TIME, self.resolver.resolve(&name)).await {
            Some(Ok(found)) => found,
            Some(Err(error)) => return Err(unreachable(place, &error)),
            None => return Err(slow(place)),
        };
        let (mut allowed, mut refused) = (Vec::new(), None);
        for address in found {
            match self.rules.resolved(address, port, trusted) {
                Ok(address) if allowed.contains(&address) || allowed.len() == ADDRESSES_MAX => {}
                Ok(address) => allowed.push(address),
                Err(refusal) => refused = Some(refusal),
            }
        }
        match refused {
            Some(refusal) if allowed.is_empty() => {
                let message = format!("{place}: {}", refusal.message);
                Err(Refusal { message, ..refusal })
            }
            _ => Ok(allowed),
        }
    }
}

/// A host without its own text.
pub(crate) fn borrowed(host: &Host) -> Host<&str> {
    match host {
        Host::Domain(name) => Host::Domain(name),
        Host::Ipv4(address) => Host::Ipv4(*address),
        Host::Ipv6(address) => Host::Ipv6(*address),
    }
}

fn unreachable(place: &str, error: &io::Error) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{place} cannot be reached: {error}"))
        .hint("check the address, or try again later")
}

/// The refusal of a host that says nothing.
pub(crate) fn slow(place: &str) -> Refusal {
    Refusal::new(Code::Timeout, format!("{place} did not answer in time")).hint("try again later, or another source")
}

/// Runs `work` for at most `limit`; `None` if it was not done by then. It is dropped in that case.
pub(crate) async fn within<T>(clock: &dyn Clock, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep(limit) => None,
    }
}
