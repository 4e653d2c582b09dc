//! Control groups of the kernel, version 2: one for each runner, so for the commands of one agent. They stop what outruns
//! the runner's measuring, and what it does not see: pages of the cache that are written, pipes, sockets, objects of the
//! kernel. A group that is not delegated to ghostd is not touched.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ghost_config::plan::SandboxPlan;

use crate::frame::TMP_BYTES;

/// How the names of our groups begin.
const NAME: &str = "ghost-";
/// Tasks besides those of commands: the runner, and a supervisor for each command.
const OWN_TASKS: u64 = 64;

/// Groups that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A group below which ghostd may make others.
#[derive(Debug)]
pub(crate) struct Cgroups(PathBuf);

/// The group of one runner. Dropped after its runner, it goes.
#[derive(Debug)]
pub(crate) struct Cgroup(PathBuf);

impl Cgroups {
    /// The groups of this machine, if they can be had.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn find() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounted = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let top = mounted.and_then(|line| line.split(' ').nth(4)).ok_or("no cgroup v2 is mounted")?;
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).ok_or("this process is in no cgroup v2")?;
        let own = Path::new(top).join(own);
        // Of a group with processes in it only the topmost one can have others below it. A service manager that delegates
        // can put ghostd one level down (`DelegateSubgroup=` of systemd).
        let above = own.parent().filter(|above| above.starts_with(top) && is_delegated(above)).map(Path::to_owned);
        let mut why = String::new();
        for dir in [Some(own), above].into_iter().flatten() {
            match Self::at(&dir) {
                Ok(found) => return Ok(found),
                Err(error) => why = format!("{}: {error}", dir.display()),
            }
        }
        Err(why)
    }

    /// The groups below `dir`: its controllers are passed on, and groups of a daemon that died are removed.
    fn at(dir: &Path) -> io::Result<Self> {
        let has = fs::read_to_string(dir.join("cgroup.controllers"))?;
        let missing: Vec<_> =
            ["memory", "pids"].into_iter().filter(|one| !has.split_whitespace().any(|it| it == *one)).collect();
        if !missing.is_empty() {
            return Err(io::Error::other(format!("it has no controller {}", missing.join(", "))));
        }
        fs::write(dir.join("cgroup.subtree_control"), "+memory +pids")?;
        // It only weighs, so groups are of use without it.
        let _ = fs::write(dir.join("cgroup.subtree_control"), "+io");
        for entry in fs::read_dir(dir)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(NAME) {
                // One with processes in it stays: it is another daemon's.
                let _ = fs::remove_dir(entry.path());
            }
        }
        let found = Self(dir.to_owned());
        found.make(&SandboxPlan::default())?;
        Ok(found)
    }

    /// Makes a group with the bounds of `plan`: a quarter above those of one command, which its runner holds.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(crate) fn make(&self, plan: &SandboxPlan) -> io::Result<Cgroup> {
        let name = format!("{NAME}{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let group = Cgroup(self.0.join(name));
        fs::create_dir(&group.0)?;
        let above = |bound: u64| bound.saturating_add(bound / 4);
        // Files in memory, `/tmp` and `/dev/shm`, count as disk, and the kernel counts them here.
        let memory = above(plan.memory_bytes).saturating_add(2 * TMP_BYTES);
        let tasks = above(u64::from(plan.processes)).saturating_add(OWN_TASKS);
        fs::write(group.0.join("memory.max"), memory.to_string())?;
        // A machine without swap has no such file.
        let _ = fs::write(group.0.join("memory.swap.max"), "0");
        fs::write(group.0.join("pids.max"), tasks.to_string())?;
        // Half of what others weigh.
        let _ = fs::write(group.0.join("io.weight"), "default 50");
        Ok(group)
    }
}

impl Cgroup {
    /// Moves a process in. What it starts from then on is in the group, too.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(crate) fn take(&self, pid: u32) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // While a process of it is ending, that fails. The next start removes it.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Whether a service manager left the groups below `dir` to us.
fn is_delegated(dir: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0; 1];
        rustix::fs::getxattr(dir, *name, &mut value).is_ok() && value == *b"1"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with the files of a group. The kernel makes those of groups below it; here their writes make them.
    #[test]
    fn a_group_has_the_bounds_of_the_plan() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        let why = Cgroups::at(dir.path()).unwrap_err().to_string();
        assert!(why.contains("pids"), "{why}");
        fs::write(dir.path().join("cgroup.controllers"), "cpu io memory pids\n").unwrap();
        let groups = Cgroups::at(dir.path()).unwrap();
        let plan = SandboxPlan { memory_bytes: 64 << 20, processes: 100, ..SandboxPlan::default() };
        let group = groups.make(&plan).unwrap();
        group.take(4711).unwrap();
        let read = |name: &str| fs::read_to_string(group.0.join(name)).unwrap();
        assert_eq!(read("memory.max"), ((80_u64 + 512) << 20).to_string());
        assert_eq!(
            ["memory.swap.max", "pids.max", "io.weight", "cgroup.procs"].map(read),
            ["0", "189", "default 50", "4711"]
        );
    }
}
