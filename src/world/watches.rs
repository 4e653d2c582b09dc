//! Watches (SCHED-03): looks at what is watched when the system says that it changed, when the daemon starts, and slowly
//! besides, and has the commons report what differs from the last look that was reported.
//!
//! Must never: wake anyone without a comparison of snapshots, or follow a symbolic link.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::schedule::{RunStatus, When};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Refusal, Schedule, ScheduleId, ScheduleKind, Timestamp, WatchSnapshot};
use ghost_rules::schedules;
use notify::RecommendedWatcher;
use serde_json::json;

use crate::loops::WATCHES;
use crate::tree::Tree;
use crate::watch_set::{self, Touched};

/// Between two looks at everything: what no notification told of is found by then.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// A burst that does not end is reported after this many times its quiet time.
const BURST: u32 = 10;

/// One watch, as it is being looked at.
struct Watched {
    path: WorkspacePath,
    recursive: bool,
    debounce: Duration,
    created_at: Timestamp,
    /// When a change was first and last heard of since the last look.
    heard: Option<(Timestamp, Timestamp)>,
    /// The last look whose comparison is settled.
    settled: Option<u64>,
}

impl Watched {
    fn of(schedule: &Schedule) -> Option<Self> {
        let When::Change { path, recursive, debounce_ms, .. } = &schedule.when else { return None };
        Some(Self {
            path: WorkspacePath::parse(path, true).ok()?,
            recursive: *recursive,
            debounce: Duration::from_millis(u64::from(*debounce_ms)),
            created_at: schedule.created_at,
            heard: None,
            settled: None,
        })
    }

    /// When it is to be looked at for what was heard.
    fn due(&self) -> Option<Timestamp> {
        self.heard.map(|(first, last)| last.plus(self.debounce).min(first.plus(self.debounce * BURST)))
    }

    /// Whether it is looked at now. A look at everything leaves out a burst that is still heard, which it would split; but not
    /// when nobody has looked for long.
    fn is_looked_at(&self, now: Timestamp, whole: bool, late: bool) -> bool {
        match self.due() {
            Some(due) => due <= now || (whole && late),
            None => whole,
        }
    }
}

/// All watches, and the watcher that listens for them.
struct Watches {
    tree: Arc<Tree>,
    all: BTreeMap<ScheduleId, Watched>,
    touched: Arc<Touched>,
    directories: BTreeMap<PathBuf, bool>,
    /// Listens for as long as it is held.
    watcher: Option<RecommendedWatcher>,
}

/// Goes its rounds until it is aborted.
pub(crate) async fn rounds(tree: Arc<Tree>) -> Result<(), String> {
    let ctx = tree.engine.services.ctx.clone();
    let clock = Arc::clone(&ctx.ports.clock);
    let mut rings = tree.signal_router.schedules();
    let mut watches =
        Watches { tree, all: BTreeMap::new(), touched: Arc::default(), directories: BTreeMap::new(), watcher: None };
    // Nobody has looked since the last daemon ended, or since the world was paused.
    let mut late = true;
    let mut look_at = ctx.now();
    loop {
        rings.mark_unchanged();
        if watches.tree.directory.is_paused() {
            watches.tree.loops.round(WATCHES);
            if rings.changed().await.is_err() {
                return Ok(());
            }
            late = true;
            look_at = ctx.now();
            continue;
        }
        match watches.load().await {
            Ok(true) => look_at = ctx.now(),
            Ok(false) => {}
            Err(refusal) => tracing::warn!(%refusal, "the watches could not be read; they are tried again"),
        }
        loop {
            let now = ctx.now();
            let whole = look_at <= now;
            watches.look(now, whole, late).await;
            if whole {
                late = false;
                look_at = now.plus(LOOK_AGAIN);
            }
            watches.tree.loops.round(WATCHES);
            let next = watches.all.values().filter_map(Watched::due).min();
            let touched = Arc::clone(&watches.touched);
            tokio::select! {
                biased;
                rung = rings.changed() => {
                    if rung.is_err() {
                        return Ok(());
                    }
                    break;
                }
                () = touched.bell.notified() => watches.hear(ctx.now()),
                () = clock.sleep_until(next.unwrap_or(look_at).min(look_at)) => {}
            }
        }
    }
}

impl Watches {
    /// Reads what is watched. Gives whether something is new.
    async fn load(&mut self) -> Result<bool, Refusal> {
        let store = &self.tree.engine.services.store;
        let kind = Some(ScheduleKind::Watch);
        let schedules = store
            .read(move |r| Box::pin(async move { r.schedule_list(None, kind, None).await }))
            .await
            .map_err(Refusal::from)?;
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
        // What happened between one listener and the next is looked for.
        Ok(self.listen().await? || fresh)
    }

    /// Listens where watches are, and gives whether it has begun anew. Without notifications, as in a simulation, the slow
    /// look finds everything.
    async fn listen(&mut self) -> Result<bool, Refusal> {
        let workspace = Arc::clone(&self.tree.engine.services.workspace);
        let Some(place) = workspace.place() else { return Ok(false) };
        let wanted: Vec<(PathBuf, bool)> =
            self.all.values().map(|watched| (at(place, &watched.path), watched.recursive)).collect();
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
                    false => watch_set::watch(&directories, &touched),
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
                "the system does not notify of changes at {} watched places ({why}); they are looked at every {} s",
                refused.len(),
                LOOK_AGAIN.as_secs(),
            );
            let ctx = self.tree.engine.services.ctx.clone();
            let event = NewEvent::new(EventKind::WorldWarning, json!({ "warning": warning }));
            self.tree.engine.services.store.write(move |w| Box::pin(async move { ctx.emit(w, event).await })).await?;
        }
        Ok(true)
    }

    /// Notes what was touched.
    fn hear(&mut self, now: Timestamp) {
        let Some(place) = self.tree.engine.services.workspace.place() else { return };
        let taken = self.touched.take();
        for watched in self.all.values_mut() {
            if taken.at_or_below(&at(place, &watched.path)) {
                let first = watched.heard.map_or(now, |(first, _)| first);
                watched.heard = Some((first, now));
            }
        }
    }

    /// Looks at the watches whose burst is over; at all that are quiet besides if `whole`.
    async fn look(&mut self, now: Timestamp, whole: bool, late: bool) {
        if whole && let Err(refusal) = self.listen().await {
            tracing::warn!(%refusal, "listening for changes failed; the slow look finds them");
        }
        if whole {
            // What the system has told of but nobody has asked for yet may be the beginning of a burst.
            self.hear(now);
        }
        let due: Vec<ScheduleId> = self
            .all
            .iter()
            .filter(|(_, watched)| watched.is_looked_at(now, whole, late))
            .map(|(schedule_id, _)| *schedule_id)
            .collect();
        for schedule_id in due {
            if let Err(refusal) = self.compare(schedule_id, late).await {
                tracing::warn!(%schedule_id, %refusal, "a watch could not be looked at; it is tried again");
            }
        }
    }

    /// Looks at one and has the commons report what differs.
    async fn compare(&mut self, schedule_id: ScheduleId, late: bool) -> Result<(), Refusal> {
        let services = Arc::clone(&self.tree.engine.services);
        let Some(watched) = self.all.get_mut(&schedule_id) else { return Ok(()) };
        watched.heard = None;
        let made = watched.created_at;
        let most = services.ctx.limits().watch_files_max as usize;
        let ctx = services.ctx.clone();
        let seen = match services.workspace.stamps(&watched.path, watched.recursive, most).await {
            // What is gone holds no files: those that it held were removed.
            Ok(seen) => seen.unwrap_or_default(),
            Err(refusal) if matches!(refusal.code, Code::TooLarge | Code::PathDenied) => {
                let write = services.store.write(move |w| {
                    Box::pin(async move { schedules::watch_refused(w, &ctx, schedule_id, made, &refusal).await })
                });
                return write.await;
            }
            Err(refusal) => return Err(refusal),
        };
        let digest = digest(&seen);
        if watched.settled == Some(digest) {
            return Ok(());
        }
        let kept = services
            .store
            .read(move |r| Box::pin(async move { r.watch_snapshot_get(schedule_id).await }))
            .await
            .map_err(Refusal::from)?;
        if kept.as_ref() != Some(&seen) {
            let run = services
                .store
                .write(move |w| {
                    Box::pin(async move { schedules::changed(w, &ctx, schedule_id, made, &seen, late).await })
                })
                .await?;
            if run.is_some_and(|run| run.status == RunStatus::Refused) {
                return Ok(());
            }
        }
        watched.settled = Some(digest);
        Ok(())
    }
}

fn at(place: &Path, path: &WorkspacePath) -> PathBuf {
    // Joining nothing would leave a slash at the end, which no notification has.
    if path.as_str().is_empty() { place.to_owned() } else { place.join(path.as_str()) }
}

/// The directories to listen to. A file is replaced by renaming another over it, so it is heard of in its directory. What
/// is not there cannot be listened to; the slow look finds it when it comes back.
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

/// What tells one look from another without keeping it.
fn digest(seen: &WatchSnapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (path, stamp) in &seen.files {
        (path, stamp.bytes, stamp.changed_ns, stamp.inode).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_everything_splits_no_burst_that_is_still_heard() {
        let at = |ms: u64| Timestamp(0).plus(Duration::from_millis(ms));
        let mut watched = Watched {
            path: WorkspacePath::parse("box", true).unwrap(),
            recursive: true,
            debounce: Duration::from_millis(250),
            created_at: at(0),
            heard: None,
            settled: None,
        };
        let looked_at = |watched: &Watched, ms| {
            [(false, false), (true, false), (true, true)].map(|(whole, late)| watched.is_looked_at(at(ms), whole, late))
        };
        assert_eq!(looked_at(&watched, 1_000), [false, true, true], "what is quiet");
        watched.heard = Some((at(1_000), at(1_100)));
        assert_eq!(
            looked_at(&watched, 1_349),
            [false, false, true],
            "what is heard, unless nobody has looked for long"
        );
        assert_eq!(looked_at(&watched, 1_350), [true; 3], "what was heard");
        watched.heard = Some((at(1_000), at(3_499)));
        assert_eq!(looked_at(&watched, 3_499), [false, false, true]);
        assert_eq!(looked_at(&watched, 3_500), [true; 3], "a burst that does not end");
    }
}
