//! Room to write: what the file systems of a world's data and workspace, and the daemon's file descriptors, have left.
//!
//! Nothing here may fail: what cannot be measured is not short.

use std::path::Path;

use ghost_domain::Limits;

/// How much is left of one resource.
struct Left {
    /// What is left, for people.
    what: String,
    free: u64,
    /// Below this, no turn goes on.
    min: u64,
    /// Below this, there is a warning.
    warn: u64,
    /// The name of the limit that `min` comes from.
    limit: &'static str,
}

/// What is short.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Why no turn may go on.
    pub(crate) held: Option<String>,
    /// What is nearly used up.
    pub(crate) low: Option<String>,
}

/// Measures the file systems of these directories, and this process.
pub(crate) fn measure<'a>(dirs: impl Iterator<Item = &'a Path>, limits: &Limits) -> Room {
    let mut all: Vec<Left> = dirs.flat_map(|dir| of_file_system(dir, limits)).collect();
    all.extend(of_descriptors(limits));
    judge(all)
}

fn of_file_system(dir: &Path, limits: &Limits) -> Vec<Left> {
    let Ok(found) = rustix::fs::statvfs(dir) else { return Vec::new() };
    let (free, min) = (found.f_bavail.saturating_mul(found.f_frsize), limits.free_bytes_min);
    let what = format!("the file system of {} has {free} bytes free", dir.display());
    let mut left = Vec::new();
    // Some file systems have no size of their own, and count nothing.
    if found.f_blocks > 0 {
        left.push(Left { what, free, min, warn: limits.free_bytes_warn, limit: "free_bytes_min" });
    }
    // Some file systems make inodes as they need them, and count none.
    if found.f_files > 0 {
        let (free, min) = (found.f_favail, u64::from(limits.free_inodes_min));
        let what = format!("the file system of {} has {free} inodes free", dir.display());
        left.push(Left { what, free, min, warn: min.saturating_mul(10), limit: "free_inodes_min" });
    }
    left
}

fn of_descriptors(limits: &Limits) -> Option<Left> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current?;
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
    let (free, min) = (most.saturating_sub(open as u64), u64::from(limits.free_descriptors_min));
    let what = format!("ghostd has {free} of {most} file descriptors free (`ulimit -n`)");
    Some(Left { what, free, min, warn: min.saturating_mul(3), limit: "free_descriptors_min" })
}

fn judge(all: Vec<Left>) -> Room {
    let mut room = Room::default();
    for Left { what, free, min, warn, limit } in all {
        if free < min {
            let text = format!("{what}, less than {min} (`limits.{limit}`): no turn goes on until there is room");
            room.held.get_or_insert(text);
        } else if free < warn {
            room.low.get_or_insert(format!("{what}; below {min} (`limits.{limit}`) no turn goes on"));
        }
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_is_named_with_its_limit() {
        let left = |free| Left { what: format!("{free} left"), free, min: 10, warn: 30, limit: "the_limit" };
        assert_eq!(judge(vec![left(30)]), Room::default());
        let low = judge(vec![left(30), left(29), left(11)]);
        assert!(low.held.is_none() && low.low.unwrap().starts_with("29 left"));
        let held = judge(vec![left(20), left(9)]);
        assert!(held.low.is_some() && held.held.unwrap().contains("`limits.the_limit`"));
        let never = Left { min: 0, warn: 0, ..left(0) };
        assert_eq!(judge(vec![never]), Room::default());
    }

    #[test]
    fn each_resource_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let none = Limits {
            free_bytes_min: 0,
            free_bytes_warn: 0,
            free_inodes_min: 0,
            free_descriptors_min: 0,
            ..Limits::default()
        };
        let room = |limits: &Limits| measure(std::iter::once(dir.path()), limits);
        assert_eq!(room(&none), Room::default());
        let held = |limits: Limits| room(&limits).held.unwrap();
        assert!(held(Limits { free_bytes_min: u64::MAX, ..none.clone() }).contains("free_bytes_min"));
        assert!(held(Limits { free_descriptors_min: u32::MAX, ..none.clone() }).contains("free_descriptors_min"));
        assert!(room(&Limits { free_bytes_warn: u64::MAX, ..none }).low.is_some());
        let missing = measure(std::iter::once(Path::new("/no/such/directory")), &Limits::default());
        assert!(missing.held.is_none(), "{missing:?}");
    }
}
