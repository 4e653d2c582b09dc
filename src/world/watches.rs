//! Watches: checks watched paths when the system notifies of a change, when the daemon starts, and every 30 s. The world
//! rules report the differences to the last reported snapshot.
//!
//! The system's notifications are only hints: the slow check finds changes whose notification was lost, and a comparison of
//! snapshots decides what changed. No symbolic link is followed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::schedule::{RunStatus, When};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Refusal, Schedule, ScheduleId, ScheduleKind, Timestamp, WatchSnapshot};
use ghost_operations::schedules;
use notify::event::{AccessKind, AccessMode};
use notify::{Config, Event, RecommendedWatcher, RecursiveMode, Watcher};
use serde_json::json;
use tokio::sync::Notify;

use crate::loops::WATCHES;
use crate::tree::Tree;

/// Time between two checks of everything. They find changes without a notification.
const CHECK_ALL_EVERY: Duration = Duration::from_secs(30);
/// A burst of changes that does not end is reported after this many debounce times.
const BURST: u32 = 10;

/// The state of one watch.
struct Watched {
    path: WorkspacePath,
    recursive: bool,
    debounce: Duration,
    created_at: Timestamp,
    /// Time of the first and the last notification since the last check.
    notified: Option<(Timestamp, Timestamp)>,
    /// Digest of the last snapshot that was compared.
    reported_digest: Option<u64>,
}

impl Watched {
    fn of(schedule: &Schedule) -> Option<Self> {
        let When::Change { path, recursive, debounce_ms, .. } = &schedule.when else { return None };
        Some(Self {
            path: WorkspacePath::parse(path, true).ok()?,
            recursive: *recursive,
            debounce: Duration::from_millis(u64::from(*debounce_ms)),
            created_at: schedule.created_at,
            notified: None,
            reported_digest: None,
        })
    }

    /// When the watch must be checked because of notifications.
    fn due(&self) -> Option<Timestamp> {
        self.notified.map(|(first, last)| last.plus(self.debounce).min(first.plus(self.debounce * BURST)))
    }

    /// Whether the watch is checked now. A check of everything (`all`) skips a watch in a burst,
    /// because it would split the burst. It does not skip the watch if there was no check for a
    /// long time (`late`).
    fn is_checked(&self, now: Timestamp, all: bool, late: bool) -> bool {
        match self.due() {
            Some(due) => due <= now || (all && late),
            None => all,
        }
    }
}

/// All watches, and the system's watcher for them.
struct Watches {
    tree: Arc<Tree>,
    all: BTreeMap<ScheduleId, Watched>,
    touched: Arc<Touched>,
    directories: BTreeMap<PathBuf, bool>,
    /// Dropping it ends the notifications.
    watcher: Option<RecommendedWatcher>,
}

/// Runs rounds until it is aborted.
pub(crate) async fn rounds(tree: Arc<Tree>) -> Result<(), String> {
    let ctx = tree.engine.services.ctx.clone();
    let clock = Arc::clone(&ctx.ports.clock);
    let mut changes = tree.signal_router.schedules.subscribe();
    let mut watches =
        Watches { tree, all: BTreeMap::new(), touched: Arc::default(), directories: BTreeMap::new(), watcher: None };
    // No check was made since the last daemon ended, or since the world was paused.
    let mut late = true;
    let mut check_all_at = clock.steady();
    loop {
        changes.mark_unchanged();
        if watches.tree.directory.is_paused() {
            watches.tree.loops.round(WATCHES);
            if changes.changed().await.is_err() {
                return Ok(());
            }
            late = true;
            check_all_at = clock.steady();
            continue;
        }
        match watches.load().await {
            Ok(true) => check_all_at = clock.steady(),
            Ok(false) => {}
            Err(refusal) => tracing::warn!(%refusal, "the watches could not be read; trying again"),
        }
        loop {
            let now = clock.steady();
            let all = check_all_at <= now;
            watches.check(now, all, late).await;
            if all {
                late = false;
                check_all_at = now.plus(CHECK_ALL_EVERY);
            }
            watches.tree.loops.round(WATCHES);
            let next = watches.all.values().filter_map(Watched::due).min();
            let touched = Arc::clone(&watches.touched);
            tokio::select! {
                biased;
                changed = changes.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    break;
                }
                () = touched.bell.notified() => watches.note_touched(clock.steady()),
                () = clock.sleep(next.unwrap_or(check_all_at).min(check_all_at).since(clock.steady())) => {}
            }
        }
    }
}

impl Watches {
    /// Reads the watches from the store. Returns whether everything must be checked.
    async fn load(&mut self) -> Result<bool, Refusal> {
        let store = &self.tree.engine.services.store;
        let kind = Some(ScheduleKind::Watch);
        let schedules = store.read(move |r| r.schedule_list(None, kind, None)).await.map_err(Refusal::from)?;
        let mut fresh = false;
        let mut all = BTreeMap::new();
        for schedule in schedules.iter().filter(|schedule| schedule.enabled) {
            let before = self.all.remove(&schedule.schedule_id);
            let same = before.filter(|before| before.created_at == schedule.created_at);
            fresh |= same.is_none();
            if let Some(watched) = same.or_else(|| Watched::of(schedule)) {
                all.insert(schedule.schedule_id, watched);
            }
        }
        self.all = all;
        // Changes between two watchers cause no notification, so everything is checked.
        Ok(self.watch_directories().await? || fresh)
    }

    /// Watches the directories of all watches. Returns whether it started a new watcher. Without notifications, as in a
    /// simulation, the check of everything finds all changes.
    async fn watch_directories(&mut self) -> Result<bool, Refusal> {
        let workspace = Arc::clone(&self.tree.engine.services.workspace);
        let Some(root) = workspace.place() else { return Ok(false) };
        let wanted: Vec<(PathBuf, bool)> =
            self.all.values().map(|watched| (at(root, &watched.path), watched.recursive)).collect();
        let before = self.directories.clone();
        let touched = Arc::clone(&self.touched);
        let begun = workspace
            .offload(move || {
                let directories = directories(wanted);
                if directories == before {
                    return Ok(None);
                }
                let (watcher, refused) = match directories.is_empty() {
                    true => (None, Vec::new()),
                    false => watch(&directories, &touched),
                };
                Ok(Some((directories, watcher, refused)))
            })
            .await?;
        let Some((directories, watcher, refused)) = begun else { return Ok(false) };
        self.directories = directories;
        self.watcher = watcher;
        if let Some(why) = refused.first() {
            tracing::warn!(count = refused.len(), %why, "the system does not notify of all changes");
            let warning = format!(
                "the system does not notify of changes at {} watched paths ({why}); they are checked every {} s",
                refused.len(),
                CHECK_ALL_EVERY.as_secs(),
            );
            let event = NewEvent::new(EventKind::WorldWarning, json!({ "warning": warning }));
            self.tree.engine.services.write(move |w| w.emit(event)).await?;
        }
        Ok(true)
    }

    /// Records the time for every watch whose path was touched.
    fn note_touched(&mut self, now: Timestamp) {
        let Some(root) = self.tree.engine.services.workspace.place() else { return };
        let taken = self.touched.take();
        for watched in self.all.values_mut() {
            if taken.at_or_below(&at(root, &watched.path)) {
                let first = watched.notified.map_or(now, |(first, _)| first);
                watched.notified = Some((first, now));
            }
        }
    }

    /// Checks the watches whose burst is over. If `all`, also watches without a notification.
    async fn check(&mut self, now: Timestamp, all: bool, late: bool) {
        if all && let Err(refusal) = self.watch_directories().await {
            tracing::warn!(%refusal, "watching the directories failed; the check every 30 s finds changes");
        }
        if all {
            // Notifications that were not read yet may be the beginning of a burst.
            self.note_touched(now);
        }
        let due: Vec<ScheduleId> = self
            .all
            .iter()
            .filter(|(_, watched)| watched.is_checked(now, all, late))
            .map(|(schedule_id, _)| *schedule_id)
            .collect();
        for schedule_id in due {
            if let Err(refusal) = self.compare(schedule_id, late).await {
                tracing::warn!(%schedule_id, %refusal, "a watch could not be checked; trying again");
            }
        }
    }

    /// Takes a snapshot of one watch. If it differs from the last one, the world rules report the changes.
    async fn compare(&mut self, schedule_id: ScheduleId, late: bool) -> Result<(), Refusal> {
        let services = Arc::clone(&self.tree.engine.services);
        let Some(watched) = self.all.get_mut(&schedule_id) else { return Ok(()) };
        watched.notified = None;
        let made = watched.created_at;
        let files_max = services.ctx.limits().watch_files_max as usize;
        let seen = match services.workspace.stamps(&watched.path, watched.recursive, files_max).await {
            // A missing path is treated as empty, so its files are reported as removed.
            Ok(seen) => seen.unwrap_or_default(),
            Err(refusal) if matches!(refusal.code, Code::TooLarge | Code::PathDenied) => {
                let write = services.write(move |w| schedules::watch_refused(w, schedule_id, made, &refusal));
                return write.await;
            }
            Err(refusal) => return Err(refusal),
        };
        let digest = digest(&seen);
        if watched.reported_digest == Some(digest) {
            return Ok(());
        }
        let kept = services.store.read(move |r| r.watch_snapshot_get(schedule_id)).await.map_err(Refusal::from)?;
        if kept.as_ref() != Some(&seen) {
            let run = services.write(move |w| schedules::changed(w, schedule_id, made, &seen, late)).await?;
            if run.is_some_and(|run| run.status == RunStatus::Refused) {
                return Ok(());
            }
        }
        watched.reported_digest = Some(digest);
        Ok(())
    }
}

fn at(root: &Path, path: &WorkspacePath) -> PathBuf {
    // Joining an empty path would add a slash at the end. Paths of notifications have none.
    if path.as_str().is_empty() { root.to_owned() } else { root.join(path.as_str()) }
}

/// The directories to watch; the flag says whether recursively. A file is watched through its
/// directory, because it is replaced by a rename. A missing path cannot be watched; the check of
/// everything finds it when it exists again.
fn directories(wanted: Vec<(PathBuf, bool)>) -> BTreeMap<PathBuf, bool> {
    let mut directories = BTreeMap::new();
    for (full, recursive) in wanted {
        let (full, recursive) = match full.parent() {
            Some(parent) if full.is_file() => (parent.to_owned(), false),
            _ => (full, recursive),
        };
        if full.is_dir() {
            *directories.entry(full).or_insert(false) |= recursive;
        }
    }
    directories
}

/// A hash of a snapshot, so that the snapshot need not be kept.
fn digest(seen: &WatchSnapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, stamp) in &seen.files {
        (path, stamp.bytes, stamp.changed_ns, stamp.inode).hash(&mut hasher);
    }
    hasher.finish()
}

/// Maximum number of touched paths that are remembered. If there are more, every path is treated as
/// touched.
const TOUCHED_MAX: usize = 4_096;

/// Paths that were touched since the last [`take`](Touched::take).
#[derive(Default)]
struct Touched {
    taken: Mutex<Taken>,
    bell: Notify,
}

impl Touched {
    fn put(&self, result: notify::Result<Event>) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            // Reading changes no file. The daemon's own checks read files too.
            Ok(Event { kind: notify::EventKind::Access(kind), .. }) if kind != AccessKind::Close(AccessMode::Write) => {
                return;
            }
            Ok(event) if !event.need_rescan() && taken.paths.len() + event.paths.len() <= TOUCHED_MAX => {
                taken.paths.extend(event.paths);
            }
            Ok(_) | Err(_) => taken.all = true,
        }
        drop(taken);
        self.bell.notify_one();
    }

    /// Returns the touched paths and clears the set.
    fn take(&self) -> Taken {
        std::mem::take(&mut *self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A set of touched paths.
#[derive(Default)]
struct Taken {
    paths: BTreeSet<PathBuf>,
    all: bool,
}

impl Taken {
    fn at_or_below(&self, path: &Path) -> bool {
        self.all || self.paths.range(path.to_owned()..).next().is_some_and(|touched| touched.starts_with(path))
    }
}

/// Watches directories; the flag says whether recursively. Returns the watcher, and an error for each directory
/// that the system refused. Blocks.
fn watch(directories: &BTreeMap<PathBuf, bool>, touched: &Arc<Touched>) -> (Option<RecommendedWatcher>, Vec<String>) {
    let sink = Arc::clone(touched);
    let made = RecommendedWatcher::new(move |result| sink.put(result), Config::default().with_follow_symlinks(false));
    let mut watcher = match made {
        Ok(watcher) => watcher,
        Err(error) => return (None, vec![error.to_string()]),
    };
    let mut refused = Vec::new();
    for (path, recursive) in directories {
        // A recursive watch covers everything below it.
        let covered = path.ancestors().skip(1).any(|above| directories.get(above) == Some(&true));
        if covered {
            continue;
        }
        let mode = if *recursive { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
        if let Err(error) = watcher.watch(path, mode) {
            refused.push(error.to_string());
        }
    }
    (Some(watcher), refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_of_everything_splits_no_burst() {
        let at = |ms: u64| Timestamp(0).plus(Duration::from_millis(ms));
        let mut watched = Watched {
            path: WorkspacePath::parse("box", true).unwrap(),
            recursive: true,
            debounce: Duration::from_millis(250),
            created_at: at(0),
            notified: None,
            reported_digest: None,
        };
        let checked = |watched: &Watched, ms| {
            [(false, false), (true, false), (true, true)].map(|(all, late)| watched.is_checked(at(ms), all, late))
        };
        assert_eq!(checked(&watched, 1_000), [false, true, true], "no notification");
        watched.notified = Some((at(1_000), at(1_100)));
        assert_eq!(checked(&watched, 1_349), [false, false, true], "within a burst");
        assert_eq!(checked(&watched, 1_350), [true; 3], "the burst is over");
        watched.notified = Some((at(1_000), at(3_499)));
        assert_eq!(checked(&watched, 3_499), [false, false, true]);
        assert_eq!(checked(&watched, 3_500), [true; 3], "a burst that does not end");
    }

    #[tokio::test]
    async fn a_change_notifies_and_names_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let touched = Arc::new(Touched::default());
        let (watcher, refused) = watch(&BTreeMap::from([(dir.path().to_owned(), true)]), &touched);
        assert!(watcher.is_some() && refused.is_empty());
        let file = dir.path().join("a");
        std::fs::write(&file, "1").unwrap();
        touched.bell.notified().await;
        let taken = touched.take();
        assert!(taken.at_or_below(&file) && taken.at_or_below(dir.path()));
        assert!(!taken.at_or_below(&dir.path().join("b")));
        let (_, refused) = watch(&BTreeMap::from([(dir.path().join("none"), true)]), &touched);
        assert_eq!(refused.len(), 1);
    }
}
