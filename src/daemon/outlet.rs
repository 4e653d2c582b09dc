//! Where the connections of commands (`network: proxy`) and browsers go: to the proxy of `ghost_web`, one for each agent.
//!
//! It must never let a command reach a host that the world's `sandbox.hosts` do not name, nor anybody an address that
//! `web` refuses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ghost_config::plan::Plan;
use ghost_domain::Clock;
use ghost_domain::time::BoxFuture;
use ghost_sandbox::{Client, Outlet};
use ghost_web::address::Rules;
use ghost_web::dial::{Dialer, SystemResolver};
use ghost_web::proxy::{Hosts, Proxy, ProxyBounds};
use tokio::io::DuplexStream;

/// The proxies of a world's agents.
pub(crate) struct Proxies {
    dialer: Dialer,
    hosts: Hosts,
    /// Those with open connections, and those used last.
    by_client: Mutex<BTreeMap<Client, Arc<Proxy>>>,
}

impl Proxies {
    /// Proxies that reach `sandbox.hosts`, under the rules of `web`; without that section, of its defaults.
    pub(crate) fn new(plan: &Plan, clock: Arc<dyn Clock>) -> Arc<Self> {
        let rules = Rules::new(&plan.web.clone().unwrap_or_default());
        let hosts = Hosts::Only(plan.sandbox.hosts.clone());
        let dialer = Dialer::new(rules, Arc::new(SystemResolver), clock);
        Arc::new(Self { dialer, hosts, by_client: Mutex::default() })
    }

    fn proxy(&self, client: &Client) -> Arc<Proxy> {
        // Changes under the lock are single calls of the map.
        let mut proxies = self.by_client.lock().unwrap_or_else(PoisonError::into_inner);
        if !proxies.contains_key(client) {
            proxies.retain(|_, proxy| Arc::strong_count(proxy) > 1);
        }
        let hosts = || match client {
            Client::Agent(_) | Client::Shared => self.hosts.clone(),
            // As `tool.fetch`.
            Client::Browser(_) => Hosts::All,
        };
        let new = || Proxy::new(self.dialer.clone(), hosts(), ProxyBounds::default());
        Arc::clone(proxies.entry(client.clone()).or_insert_with(new))
    }
}

impl Outlet for Proxies {
    fn serve(&self, client: &Client, stream: DuplexStream) -> BoxFuture<'static, ()> {
        Box::pin(self.proxy(client).serve_stream(stream))
    }
}
