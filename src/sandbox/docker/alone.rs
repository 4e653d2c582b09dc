//! A container for one command, such as a browser. It must never mount anything of the workspace, or be used again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::{SandboxNetwork, SandboxPlan, SandboxScope};
use ghost_domain::{Clock, Refusal};

use super::body::Common;
use super::container::{Container, unavailable};
use super::engine::Engine;
use super::paths::of_container;
use crate::command::{Alone, End, Finished};
use crate::environment::environment;
use crate::frame::{Exec, Network, flag, right};
use crate::tunnel::Exit;

/// Such containers at one time. More wait.
pub(super) const MOST: usize = 4;
/// What a browser needs at least, whatever commands may have.
const MEMORY_LEAST: u64 = 1 << 30;
const TASKS_LEAST: u32 = 512;
const DISK_LEAST: u64 = 512 << 20;
/// Its directory.
const HOME: &str = "/tmp";
/// Bytes of messages that are kept.
const STDERR_LIMIT: usize = 10 * 1024;
/// How long the question for a version may take.
const QUESTION: Duration = Duration::from_secs(20);

/// The version of the browser in the image of a container, if it has one.
pub(super) async fn browser(probe: &Container, clock: &dyn Clock) -> Result<Option<String>, String> {
    let script = "command -v chromium >/dev/null && dpkg-query --show --showformat '${Version}' chromium";
    let exec = Exec {
        deadline: QUESTION,
        cwd: "/".to_owned(),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        env: vec!["PATH=/usr/local/bin:/usr/bin:/bin".to_owned()],
        paths: std::iter::once((right::READ | right::EXECUTE, "/".to_owned())).chain(of_container()).collect(),
        ..Exec::default()
    };
    let done = probe.runner.run(&exec, (&[], None), (1_024, 1_024, None), &|_| {}, clock).await;
    let (done, _) = done.map_err(|refusal| format!("the image cannot be looked at: {}", refusal.message))?;
    let version = done.stdout.text.trim();
    Ok((done.end == End::Exited(0)).then(|| format!("Chromium {version}")))
}

/// Runs a command in a container of its own, whose connections go to `exit`. Protections that the container does not give
/// are `required` of its runner.
pub(super) async fn run(
    engine: &Arc<Engine>,
    (plan, common): (&SandboxPlan, &Common),
    required: u32,
    exit: Exit,
    clock: &Arc<dyn Clock>,
    command: Alone,
) -> Result<Finished, Refusal> {
    let plan = SandboxPlan {
        network: SandboxNetwork::Proxy,
        scope: SandboxScope::Agent,
        memory_bytes: plan.memory_bytes.max(MEMORY_LEAST),
        processes: plan.processes.max(TASKS_LEAST),
        disk_bytes: plan.disk_bytes.max(DISK_LEAST),
        // Hostile pages run there. What commands are given is not for them.
        env: BTreeMap::new(),
        passthrough_env: Vec::new(),
        ..plan.clone()
    };
    let exec = Exec {
        flags: flag::STDIN | flag::UNIX | flag::MEMFD,
        required,
        deadline: command.timeout,
        memory: plan.memory_bytes,
        processes: plan.processes,
        disk: plan.disk_bytes,
        credit: (0, 0),
        cwd: HOME.to_owned(),
        argv: command.argv,
        env: environment(&plan, HOME, HOME, HOME, &[]),
        paths: std::iter::once((right::READ | right::EXECUTE, "/".to_owned())).chain(of_container()).collect(),
        // The container's network has nothing but the proxy's port.
        network: Network::Open,
        user: None,
    };
    let (engine, common, shared) = (Arc::clone(engine), common.clone(), Arc::clone(clock));
    // In a task of its own: a caller that goes away must not leave a container that nobody knows.
    let started =
        tokio::spawn(async move { Container::start(engine, &plan, &common, Vec::new(), Some(exit), &shared).await });
    let started = started.await.map_err(|error| unavailable(&format!("its start failed: {error}")))?;
    let container = started.map_err(|why| unavailable(&why))?;
    let limits = (command.stdout_limit, STDERR_LIMIT, None);
    // It mounts nothing that outlives it, so what it left is gone with it.
    container.runner.run(&exec, (&command.stdin, None), limits, &|_| {}, &**clock).await.map(|(done, _)| done)
}
