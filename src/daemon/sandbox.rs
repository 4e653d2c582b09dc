//! The sandbox of a world: where the connections of commands (`network: proxy`) and browsers go, and what `ghostd check` says
//! about it. No command reaches a host that `sandbox.hosts` does not name, and nobody an address that `web` refuses. The check
//! touches neither the data nor the workspace of the world: it opens the sandbox in a directory of its own, which is removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ghost_config::plan::{Plan, SandboxKind};
use ghost_domain::Clock;
use ghost_domain::time::BoxFuture;
use ghost_sandbox::{Client, Outlet, Owner, Protection, Report};
use ghost_web::address::Rules;
use ghost_web::dial::{Dialer, SystemResolver};
use ghost_web::proxy::{Hosts, Proxy, ProxyBounds};
use tokio::io::DuplexStream;

use crate::data_dir::default_data_dir;
use crate::loading::Env;
use crate::ports::SystemClock;

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

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // It holds the runner and empty directories. Left behind, it harms nothing.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Opens the sandbox of the world at `world_dir` and describes it in lines of text. `None` if the world has none or its
/// configuration cannot be read.
pub fn sandbox_check(world_dir: &Path, env: Env<'_>) -> Option<String> {
    let world = ghost_config::examine(world_dir, env).0?;
    let plan = &world.sandbox;
    if plan.kind == SandboxKind::None {
        return None;
    }
    let kind = plan.kind.as_str();
    let in_place = |report| within_reach(&world, env).map(|()| report);
    Some(match opened(&world).and_then(in_place) {
        Ok(report) => described(kind, &report),
        Err(why) => format!("The sandbox `{kind}` cannot be had here, so no agent can run commands: {why}\n"),
    })
}

/// Whether commands will reach the workspace. A start opens the directory itself and all that it makes, so only what is
/// above and already there counts.
fn within_reach(plan: &Plan, env: Env<'_>) -> Result<(), String> {
    let data = || plan.places.data_dir.clone().or_else(|| default_data_dir(&plan.world_id, env).ok());
    let Some(place) = plan.places.workspace_dir.clone().or_else(data) else { return Ok(()) };
    match place.ancestors().skip(1).find(|dir| dir.exists()) {
        Some(dir) if plan.sandbox.kind == SandboxKind::Local => ghost_sandbox::is_within_reach(dir),
        _ => Ok(()),
    }
}

fn opened(plan: &Plan) -> Result<Report, String> {
    let dir = std::env::temp_dir().join(format!("ghost-check-{}", uuid::Uuid::new_v4()));
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    // Fails if somebody else made it.
    std::fs::create_dir(&dir).map_err(failed)?;
    let scratch = Scratch(dir.clone());
    let workspace = scratch.0.join("workspace");
    std::fs::create_dir(&workspace).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let owner = Owner { world_id: "ghost-check", data_dir: &scratch.0 };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let outlet = Proxies::new(plan, Arc::clone(&clock));
        let sandbox = ghost_sandbox::open(&plan.sandbox, owner, &workspace, outlet, clock).await?;
        let report = sandbox.report().clone();
        sandbox.close().await;
        Ok(report)
    })
}

fn described(kind: &str, report: &Report) -> String {
    let mut text = format!("The sandbox `{kind}` protects with: {}.\n", Protection::names(report.in_force).join(", "));
    if !report.image.is_empty() {
        text.push_str(&format!("  image: {}\n", report.image));
    }
    for missing in &report.missing {
        text.push_str(&format!("  lacks: {missing}\n"));
    }
    text
}
