//! Where the connections of commands go with `network: proxy`: to the proxy of `ghost_web`, one for each agent.
//!
//! It must never reach a host that the world's `sandbox.hosts` do not name, nor an address that `web` refuses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ghost_config::plan::Plan;
use ghost_domain::time::BoxFuture;
use ghost_domain::{AgentId, Clock};
use ghost_sandbox::Outlet;
use ghost_web::address::Rules;
use ghost_web::dial::{Dialer, SystemResolver};
use ghost_web::proxy::{Hosts, Proxy, ProxyBounds};
use tokio::io::DuplexStream;

/// The proxies of a world's agents.
pub(crate) struct Proxies {
    dialer: Dialer,
    hosts: Hosts,
    /// Those with open connections, and those used last. `None`: of agents that share a container.
    by_agent: Mutex<BTreeMap<Option<AgentId>, Arc<Proxy>>>,
}

impl Proxies {
    /// Proxies that reach `sandbox.hosts`, under the rules of `web`; without that section, of its defaults.
    pub(crate) fn new(plan: &Plan, clock: Arc<dyn Clock>) -> Arc<Self> {
        let rules = Rules::new(&plan.web.clone().unwrap_or_default());
        let hosts = Hosts::Only(plan.sandbox.hosts.clone());
        let dialer = Dialer::new(rules, Arc::new(SystemResolver), clock);
        Arc::new(Self { dialer, hosts, by_agent: Mutex::default() })
    }

    fn proxy(&self, agent_id: Option<&AgentId>) -> Arc<Proxy> {
        let agent_id = agent_id.cloned();
        // Changes under the lock are single calls of the map.
        let mut proxies = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if !proxies.contains_key(&agent_id) {
            proxies.retain(|_, proxy| Arc::strong_count(proxy) > 1);
        }
        let new = || Proxy::new(self.dialer.clone(), self.hosts.clone(), ProxyBounds::default());
        Arc::clone(proxies.entry(agent_id).or_insert_with(new))
    }
}

impl Outlet for Proxies {
    fn serve(&self, agent_id: Option<&AgentId>, stream: DuplexStream) -> BoxFuture<'static, ()> {
        Box::pin(self.proxy(agent_id).serve_stream(stream))
    }
}
