//! The machine as its operator sees it: processes, descriptors, mounts.

use std::time::{Duration, Instant};

/// Process ids of this machine.
fn pids() -> impl Iterator<Item = i32> {
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn words(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// A number of seconds that no other process of this machine sleeps: `sleep MARK` can be found again.
pub fn mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{:05}", 7_000_000 + std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The processes whose words contain `mark`.
pub fn marked(mark: &str) -> Vec<i32> {
    pids().filter(|pid| words(*pid).contains(mark)).collect()
}

/// Waits for a condition, at most a minute.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "after a minute still not: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until no process with `mark` is left.
pub fn gone(mark: &str) {
    until("all processes of the command have ended", || marked(mark).is_empty());
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The runner above a process: the uppermost of its ancestors with the runner's name.
pub fn runner_of(pid: i32) -> i32 {
    let ancestors = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|parent| *parent > 0));
    let is_runner = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        matches!(name.trim(), "sandbox-runner" | "ghost-runner")
    };
    ancestors.filter(is_runner).last().expect("a runner above the process")
}

/// Files below a directory that run as their owner or their group.
pub fn set_id_files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let done = std::process::Command::new("find").arg(dir).args(["-type", "f", "-perm", "/6000"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().lines().map(Into::into).collect()
}

/// Sends a signal to one process.
pub fn signal(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The containers of a data directory, a canonical path, as the engine's own client lists them.
pub fn containers(host: Option<&str>, data: &std::path::Path) -> Vec<String> {
    let mut list = std::process::Command::new("docker");
    if let Some(host) = host {
        list.env("DOCKER_HOST", host);
    }
    list.args(["ps", "--all", "--quiet", "--filter", &format!("label=ghost.data={}", data.display())]);
    let done = list.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
}
