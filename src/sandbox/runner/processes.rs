//! The processes below this one, as /proc lists them.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use super::kernel::*;

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
