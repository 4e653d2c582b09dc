//! What this process holds of the machine: descriptors, mounts, memory, runners.

/// Processes below this one.
pub fn children() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let listed = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    listed.map(|list| list.split_whitespace().count()).sum()
}

/// Open descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Lines of the machine's table of mounts.
pub fn mounts() -> usize {
    std::fs::read_to_string("/proc/self/mounts").unwrap().lines().count()
}

/// Memory of this process, in bytes.
pub fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().split(' ').next().unwrap().parse::<u64>().unwrap() * 1_024
}
