//! Problems of the resources that a world needs: a store that cannot write, a workspace that was removed, a disk or a table
//! of file descriptors that is nearly full. Before there is no room left to write, all turns are held back. `status` shows
//! the problems as long as they last; the event feed has one event for each. Nothing is repaired here, and what cannot be
//! measured is not short.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::{Limits, Timestamp};
use serde_json::json;

use crate::world::World;

/// Time between two checks.
const EVERY: Duration = Duration::from_secs(1);

/// The resource that has a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthProblem {
    /// The store cannot write.
    Store,
    /// The workspace's directory was removed or replaced.
    Workspace,
    /// There is no room to write, so no turn goes on.
    NoRoom,
    /// There is little room to write.
    LittleRoom,
}

impl World {
    /// The problems at this moment, each with a text for people.
    pub async fn problems(&self) -> BTreeMap<HealthProblem, String> {
        let mut problems = BTreeMap::new();
        if let Some(why) = self.store().failing() {
            problems.insert(HealthProblem::Store, format!("the store refuses writes at the moment: {why}"));
        }
        let workspace = &self.engine().services.workspace;
        if let Some(root) = workspace.place()
            && workspace.is_lost().await.unwrap_or(false)
        {
            let text = format!(
                "the workspace {} was removed or replaced while the world runs: what agents write is lost; stop the \
                 daemon and restore the directory",
                root.display()
            );
            problems.insert(HealthProblem::Workspace, text);
        }
        let services = Arc::clone(&self.engine().services);
        let limits = self.ctx().limits();
        // A file system that does not respond must not block this thread.
        let measured = tokio::task::spawn_blocking(move || {
            measure(services.data_dir().into_iter().chain(services.workspace.place()), &limits)
        });
        let room = measured.await.unwrap_or_default();
        problems.extend(room.held.map(|why| (HealthProblem::NoRoom, why)));
        problems.extend(room.low.map(|why| (HealthProblem::LittleRoom, why)));
        problems
    }

    /// Holds all turns back while there is no room to write. Logs each problem when it begins, and writes an event
    /// with the time of its beginning as soon as the store can write.
    pub async fn watch_health(self: Arc<Self>) {
        let clock = Arc::clone(&self.ctx().ports.clock);
        let mut reported: BTreeMap<HealthProblem, String> = BTreeMap::new();
        let mut unwritten: Vec<(Timestamp, String)> = Vec::new();
        loop {
            let current = self.problems().await;
            self.ctx().hold(current.get(&HealthProblem::NoRoom).map(String::as_str));
            for (problem, text) in current.iter().filter(|(problem, _)| !reported.contains_key(problem)) {
                tracing::warn!(?problem, "{text}");
                unwritten.push((self.ctx().now(), text.clone()));
            }
            reported = current;
            // A problem of the store can only be written when it is over.
            if !unwritten.is_empty() && self.write_warnings(&unwritten).await {
                unwritten.clear();
            }
            clock.sleep(EVERY).await;
        }
    }

    /// Writes one `world.warning` event for each problem. Returns whether the store committed them.
    async fn write_warnings(&self, problems: &[(Timestamp, String)]) -> bool {
        let problems = problems.to_vec();
        let written = self.write(move |w| {
            for (since, warning) in problems {
                let payload = json!({ "warning": warning, "since": since });
                w.emit(NewEvent::new(EventKind::WorldWarning, payload))?;
            }
            Ok::<_, ghost_domain::Refusal>(())
        });
        written.await.is_ok()
    }
}

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
struct Room {
    /// Why no turn may go on.
    held: Option<String>,
    /// What is nearly used up.
    low: Option<String>,
}

/// Measures the file systems of these directories, and this process.
fn measure<'a>(dirs: impl Iterator<Item = &'a Path>, limits: &Limits) -> Room {
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
