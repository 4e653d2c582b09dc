//! Sandboxes: where agents' commands run. The only room that starts a process.
//!
//! A command never runs with less protection than its world requires, and never on the bare host. If the sandbox of
//! a world cannot be had, [`open`] says why, and the world has no tools that need it (promise 4).

mod cgroup;
mod client;
mod clock;
mod command;
mod docker;
mod environment;
mod frame;
mod left;
mod local;
mod own_dirs;
pub mod remote;
mod streams;
mod tunnel;

use std::path::Path;
use std::sync::Arc;

use ghost_config::plan::{SandboxKind, SandboxPlan};
use ghost_domain::Clock;

pub use clock::{SystemClock, within};
pub use command::{Alone, Command, End, Finished, Progress, Protection, Report, Sandbox, ToolboxDir};
pub use docker::{Docker, Owner};
pub use local::Local;
pub use own_dirs::{User, Users, is_within_reach, keeps_groups};
pub use remote::Remote;
pub use streams::{Capture, Captured, Drain, Feed, NotTaken};
pub use tunnel::{ADDRESS as PROXY, Client, Closed, Outlet};

/// Opens the sandbox of a world. The data directory of `owner` gets the runner's program; commands see files below
/// `workspace`. With `network: proxy` their connections go to `outlet`.
///
/// # Errors
/// Why there is none, as the rest of a sentence that begins with "there is no sandbox:".
pub async fn open(
    plan: &SandboxPlan,
    owner: Owner<'_>,
    workspace: &Path,
    outlet: Arc<dyn Outlet>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Sandbox>, String> {
    match plan.kind {
        SandboxKind::None => Err("the world file has no `sandbox: { kind: local }`, `docker` or `remote`".to_owned()),
        SandboxKind::Local => {
            Ok(Local::open(plan, owner.data_dir, workspace, outlet, clock, None).await? as Arc<dyn Sandbox>)
        }
        SandboxKind::Docker => {
            let host = std::env::var("DOCKER_HOST").ok();
            Ok(Docker::open(plan, host.as_deref(), owner, workspace, outlet, clock).await? as Arc<dyn Sandbox>)
        }
        SandboxKind::Remote => {
            let token = plan.remote.as_ref().and_then(|remote| std::env::var(&remote.token_env).ok());
            Ok(Remote::open(plan, token.as_deref(), owner, workspace, clock).await? as Arc<dyn Sandbox>)
        }
    }
}
