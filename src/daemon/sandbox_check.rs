//! What `ghostd check` says about the sandbox of a world: whether commands can run on this machine, and what keeps them
//! inside.
//!
//! It must never touch the data or the workspace of the world: the sandbox is opened in a directory of its own, which is
//! removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_config::plan::{Plan, SandboxKind};
use ghost_domain::Clock;
use ghost_sandbox::{Owner, Protection, Report};

use crate::data_dir::default_data_dir;
use crate::loading::Env;
use crate::outlet::Proxies;
use crate::ports::SystemClock;

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
#[must_use]
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
