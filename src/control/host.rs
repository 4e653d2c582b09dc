//! Resource usage of this process and its host, read from the kernel. A value that cannot be read is 0.
//!
//! The only blocking operations allowed here are reads of small files in `/proc` and of the
//! metadata of the world's own files.

use std::path::Path;

/// Resource usage of the process, the host and the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time of this process, in milliseconds.
    pub cpu_ms: u64,
    /// Resident memory of this process, in bytes.
    pub rss_bytes: u64,
    /// CPUs that this process may use.
    pub cpus: u32,
    /// Load average over the last minute, times 1000.
    pub load_milli: u64,
    /// Memory of the host, in bytes.
    pub memory_total: u64,
    /// Memory of the host that is still available, in bytes.
    pub memory_available: u64,
    /// Size of the file system that holds the data directory, in bytes.
    pub disk_total: u64,
    /// Free space of that file system for unprivileged users, in bytes.
    pub disk_available: u64,
    /// Size of SQLite's file with its WAL and shared-memory files, in bytes; 0 if the database is elsewhere.
    pub store_bytes: u64,
}

impl Usage {
    /// Reads all values. Blocks while it reads a few small files.
    pub(crate) fn read(data_dir: Option<&Path>) -> Self {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let (disk_total, disk_available) = data_dir.map(disk).unwrap_or_default();
        Self {
            cpu_ms: cpu_ms(),
            rss_bytes: rss_bytes(),
            cpus: std::thread::available_parallelism()
                .map_or(0, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
            load_milli: std::fs::read_to_string("/proc/loadavg").map_or(0, |text| load_milli(&text)),
            memory_total: kilobytes(&memory, "MemTotal:"),
            memory_available: kilobytes(&memory, "MemAvailable:"),
            disk_total,
            disk_available,
            store_bytes: data_dir.map_or(0, store_bytes),
        }
    }
}

/// Resource usage of this process, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// CPU time, in milliseconds.
    pub cpu_ms: u64,
    /// Resident memory, in bytes.
    pub resident: u64,
    /// Virtual memory, in bytes.
    pub virtual_size: u64,
    /// Number of open file descriptors.
    pub open_fds: u64,
    /// Limit of open file descriptors.
    pub max_fds: u64,
    /// Start of the process, in seconds since the Unix epoch.
    pub started: u64,
}

impl Process {
    /// Reads all values. Blocks while it reads a few small files of the kernel.
    pub(crate) fn read() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self {
            cpu_ms: cpu_ms(),
            resident: kilobytes(&status, "VmRSS:"),
            virtual_size: kilobytes(&status, "VmSize:"),
            // The directory listing itself has one descriptor open.
            open_fds: u64::try_from(open.saturating_sub(1)).unwrap_or(0),
            max_fds: rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX),
            started: started(),
        }
    }
}

/// Start of this process in seconds since the Unix epoch, or 0. Field 22 of `/proc/self/stat` counts
/// ticks since boot; the kernel reports 100 ticks a second to user space.
fn started() -> u64 {
    let ticks = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| {
        // The program name, in parentheses, may contain any character.
        let fields = stat.rsplit_once(')')?.1;
        fields.split_whitespace().nth(19)?.parse::<u64>().ok()
    });
    let boot = std::fs::read_to_string("/proc/stat")
        .ok()
        .and_then(|stat| stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<u64>().ok());
    ticks.zip(boot).map_or(0, |(ticks, boot)| boot.saturating_add(ticks / 100))
}

fn rss_bytes() -> u64 {
    kilobytes(&std::fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmRSS:")
}

fn cpu_ms() -> u64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(used.tv_sec).unwrap_or(0), u64::try_from(used.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000)
}

/// The value of a line such as `MemTotal:  8000 kB`, in bytes.
fn kilobytes(text: &str, label: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(label))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|figure| figure.parse::<u64>().ok())
        .map_or(0, |figure| figure.saturating_mul(1_024))
}

/// The first number of `0.52 0.40 0.30 1/200 1234`, times 1000.
fn load_milli(text: &str) -> u64 {
    let first = text.split_whitespace().next().unwrap_or_default();
    let (whole, part) = first.split_once('.').unwrap_or((first, "0"));
    let thousandths = format!("{part:0<3}");
    let part = thousandths.get(..3).and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
    whole.parse::<u64>().map_or(0, |whole| whole.saturating_mul(1_000).saturating_add(part))
}

fn disk(data_dir: &Path) -> (u64, u64) {
    match rustix::fs::statvfs(data_dir) {
        Ok(facts) => (facts.f_blocks.saturating_mul(facts.f_frsize), facts.f_bavail.saturating_mul(facts.f_frsize)),
        Err(_) => (0, 0),
    }
}

/// Size of the database file with its WAL and shared-memory files.
fn store_bytes(data_dir: &Path) -> u64 {
    ["ghost.db", "ghost.db-wal", "ghost.db-shm"]
        .iter()
        .filter_map(|name| std::fs::metadata(data_dir.join(name)).ok())
        .fold(0, |sum, meta| sum.saturating_add(meta.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_proc_files_are_parsed() {
        assert_eq!(kilobytes("A: 1 kB\nMemTotal:   8 kB\n", "MemTotal:"), 8_192);
        assert_eq!((kilobytes("MemTotal: x", "MemTotal:"), kilobytes("", "MemTotal:")), (0, 0));
        for (text, milli) in [("0.52 0.40", 520), ("12.3", 12_300), ("7", 7_000), ("", 0), ("1.23456", 1_234)] {
            assert_eq!(load_milli(text), milli, "{text}");
        }
    }

    #[test]
    fn usage_of_this_process_and_its_store_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ghost.db"), [0; 100]).unwrap();
        std::fs::write(dir.path().join("ghost.db-wal"), [0; 11]).unwrap();
        let usage = Usage::read(Some(dir.path()));
        assert_eq!(usage.store_bytes, 111);
        assert!(usage.rss_bytes > 0 && usage.cpus > 0 && usage.memory_total > 0 && usage.disk_total > 0, "{usage:?}");
        assert_eq!(Usage::read(None).disk_total, 0);
        let process = Process::read();
        assert!(process.resident > 0 && process.virtual_size >= process.resident, "{process:?}");
        assert!((1..=process.max_fds).contains(&process.open_fds), "{process:?}");
        // The start must lie between the boot and now, by the kernel's own clock.
        let boot = std::fs::read_to_string("/proc/stat").unwrap();
        let boot: u64 = boot.lines().find_map(|line| line.strip_prefix("btime ")).unwrap().trim().parse().unwrap();
        let up = std::fs::read_to_string("/proc/uptime").unwrap();
        let up: u64 = up.split('.').next().unwrap().parse().unwrap();
        assert!((boot..=boot + up + 1).contains(&process.started), "{process:?}");
    }
}
