//! The processes of one command: waiting for their end, holding them to their bounds, killing them; and the processes below
//! this one, as /proc lists them.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::disk::{Occupied, occupied};
use super::frame::{Exec, flag};
use super::kernel::*;

/// How often a tree is measured.
pub const POLL: Duration = Duration::from_millis(50);

/// Why a command ended. The numbers are part of the protocol.
#[derive(Clone, Copy, PartialEq)]
pub enum Why {
    Exited = 0,
    Signal = 1,
    Deadline = 2,
    Memory = 3,
    Processes = 4,
    Disk = 5,
    Killed = 6,
    Lost = 7,
}

/// How a command ended.
pub struct Ended {
    pub why: Why,
    pub status: i32,
    pub duration_us: u64,
    pub max_rss_kib: u64,
    pub cpu_us: u64,
    /// A directory that it left, and that is too deep or has too many entries.
    pub found: Option<String>,
}

/// The processes of one command.
pub struct Tree<'a> {
    pub main: i32,
    /// What was in its writable places before it started.
    pub base: Occupied,
    pub exec: &'a Exec,
    pub inside: bool,
    pub started: Instant,
}

impl Tree<'_> {
    /// Waits for the end of the command, enforcing what the kernel does not. Returns when no process is left.
    pub fn watch(&self, control: RawFd, signals: &OwnedFd) -> Ended {
        let mut ended = Ended { why: Why::Exited, status: 0, duration_us: 0, max_rss_kib: 0, cpu_us: 0, found: None };
        let deadline =
            (self.exec.deadline_ms > 0).then(|| self.started + Duration::from_millis(self.exec.deadline_ms.into()));
        let measured = self.exec.memory > 0 || self.exec.processes > 0 || self.exec.disk > 0;
        let mut measure_at = measured.then(|| self.started + POLL / 2);
        let (mut main_lives, mut verdict) = (true, None);
        loop {
            let left = self.collect(&mut ended, &mut main_lives);
            if !left {
                break;
            }
            if verdict.is_some() || (!main_lives && !self.exec.has(flag::BACKGROUND)) {
                if measured && !main_lives && ended.status != 0 {
                    // It may have failed because no more could be started.
                    verdict = verdict.or_else(|| self.too_many(&descendants(&[]), 1));
                }
                self.kill_all(&mut ended, &mut main_lives);
                break;
            }
            let now = Instant::now();
            let until = [deadline, measure_at].into_iter().flatten().min();
            let mut fds = [control, signals.as_raw_fd()].map(|fd| PollFd { fd, events: POLLIN, ready: 0 });
            let _ = wait_ready(&mut fds, until.map(|until| until.saturating_duration_since(now)));
            if fds[1].ready != 0 {
                let mut drained = [0; 512];
                let _ = read_some(signals.as_raw_fd(), &mut drained);
            }
            if fds[0].ready != 0 {
                verdict = Self::obey(control);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                verdict = verdict.or(Some(Why::Deadline));
            }
            if measure_at.is_some_and(|due| Instant::now() >= due) {
                let began = Instant::now();
                verdict = verdict.or_else(|| self.excess());
                // A slow measurement (a large workspace) must not become the main work.
                measure_at = Some(Instant::now() + POLL.max(began.elapsed() * 10));
            }
        }
        ended.duration_us = self.started.elapsed().as_micros() as u64;
        (verdict, ended.found) = self.look_back(verdict);
        ended.why = verdict.unwrap_or(if ended.status & 0x7F == 0 { Why::Exited } else { Why::Signal });
        ended
    }

    /// Takes one order of the runner. The end of the runner is an order to kill.
    pub fn obey(control: RawFd) -> Option<Why> {
        match receive_message(control, &mut [0; 8]) {
            Err(EAGAIN | EINTR) => None,
            _ => Some(Why::Killed),
        }
    }

    /// Reaps what has ended. False when no child is left: as every orphan comes to us, then the tree is gone.
    pub fn collect(&self, ended: &mut Ended, main_lives: &mut bool) -> bool {
        loop {
            match reap() {
                Ok(Some((pid, status, usage))) => {
                    ended.max_rss_kib = ended.max_rss_kib.max(usage[4] as u64);
                    ended.cpu_us += ((usage[0] + usage[2]) * 1_000_000 + usage[1] + usage[3]) as u64;
                    if pid == self.main {
                        ended.status = status;
                        *main_lives = false;
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    pub fn kill_all(&self, ended: &mut Ended, main_lives: &mut bool) {
        loop {
            if self.inside {
                send_signal(-1, SIGKILL); // everything in the namespace but us, in one step
            } else {
                kill_descendants(&[]);
            }
            if !self.collect(ended, main_lives) {
                return;
            }
            let _ = wait_ready(&mut [], Some(Duration::from_millis(1)));
        }
    }

    /// Which limit the tree is over, if any.
    pub fn excess(&self) -> Option<Why> {
        let tree = descendants(&[]);
        let is_over = || occupied(self.exec, &tree, &self.base.noted, false).exceeds(&self.base, self.exec.disk);
        self.too_many(&tree, 0).or_else(|| (self.exec.disk > 0 && is_over()).then_some(Why::Disk))
    }

    /// Whether the processes of the tree, and so many that have just gone, hold too much memory or are too many.
    fn too_many(&self, tree: &[i32], gone: u64) -> Option<Why> {
        let (mut kib, mut tasks) = (0, 0);
        for pid in tree {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            // Not file pages: the kernel takes those back by itself.
            kib +=
                ["RssAnon", "RssShmem", "VmSwap", "VmPTE"].map(|name| status_number(&status, name)).iter().sum::<u64>();
            tasks += status_number(&status, "Threads");
        }
        if self.exec.memory > 0 && kib * 1024 > self.exec.memory {
            return Some(Why::Memory);
        }
        // The kernel lets no more live, so a tree that would grow on is seen at the bound.
        (self.exec.processes > 0 && tasks + gone >= u64::from(self.exec.processes).max(2)).then_some(Why::Processes)
    }

    /// Looks at what the command leaves: whether it left too much, and the directory that nobody should walk, if there is
    /// one. Files get their set-ID bits taken away.
    fn look_back(&self, verdict: Option<Why>) -> (Option<Why>, Option<String>) {
        if self.exec.disk == 0 {
            return (verdict, None);
        }
        let left = occupied(self.exec, &[], &self.base.noted, true);
        let verdict = verdict.or(left.exceeds(&self.base, self.exec.disk).then_some(Why::Disk));
        (verdict, left.found.filter(|_| !self.base.is_cut()))
    }
}

/// The direct children of a process, of all its threads.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>()).collect()
}

/// The children of every process, from one look at all of them: for kernels built without the lists of children.
pub fn families() -> BTreeMap<i32, Vec<i32>> {
    let mut families: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        families.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    families
}

/// A number of a process's status.
pub fn status_number(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The tasks of a user, as far as /proc shows them.
pub fn tasks_of(uid: u32) -> u64 {
    let statuses = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        entry.file_name().to_str().filter(|name| name.starts_with(|first: char| first.is_ascii_digit()))?;
        fs::read_to_string(entry.path().join("status")).ok()
    });
    statuses
        .filter(|status| status_number(status, "Uid") == u64::from(uid))
        .map(|status| status_number(&status, "Threads"))
        .sum()
}

/// Every process below this one, but for the given children and what is below them.
pub fn descendants(but: &[i32]) -> Vec<i32> {
    let me = process_id();
    let listed = Path::new(&format!("/proc/{me}/task/{me}/children")).exists();
    let families = if listed { BTreeMap::new() } else { families() };
    let below = |pid: i32| if listed { children(pid) } else { families.get(&pid).cloned().unwrap_or_default() };
    let mut tree: Vec<i32> = below(me).into_iter().filter(|pid| !but.contains(pid)).collect();
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        tree.extend(below(*pid));
        next += 1;
    }
    tree
}

/// Stops the tree before killing it, so that a fork bomb cannot outrun the list. Called again until nothing is left.
pub fn kill_descendants(but: &[i32]) {
    let mut known = HashSet::new();
    for _ in 0..64 {
        let tree = descendants(but);
        let fresh: Vec<i32> = tree.into_iter().filter(|pid| known.insert(*pid)).collect();
        if fresh.is_empty() {
            break;
        }
        fresh.iter().for_each(|pid| send_signal(*pid, SIGSTOP));
    }
    known.iter().for_each(|pid| send_signal(*pid, SIGKILL));
}
