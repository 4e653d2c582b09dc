//! The operating system's notifications of file changes in the workspace. They are only hints: the
//! slow check finds changes whose notification was lost, and a comparison of snapshots decides what
//! changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// Maximum number of touched paths that are remembered. If there are more, every path is treated as
/// touched.
const TOUCHED_MAX: usize = 4_096;

/// Paths that were touched since the last [`take`](Touched::take).
#[derive(Default)]
pub(crate) struct Touched {
    paths: Mutex<(BTreeSet<PathBuf>, bool)>,
    pub(crate) bell: Notify,
}

impl Touched {
    fn put(&self, result: notify::Result<Event>) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            // Reading changes no file. The daemon's own checks read files too.
            Ok(Event { kind: EventKind::Access(kind), .. }) if kind != AccessKind::Close(AccessMode::Write) => return,
            Ok(event) if !event.need_rescan() && paths.0.len() + event.paths.len() <= TOUCHED_MAX => {
                paths.0.extend(event.paths);
            }
            Ok(_) | Err(_) => paths.1 = true,
        }
        drop(paths);
        self.bell.notify_one();
    }

    /// Returns the touched paths and clears the set.
    pub(crate) fn take(&self) -> Taken {
        let (paths, all) = std::mem::take(&mut *self.paths.lock().unwrap_or_else(PoisonError::into_inner));
        Taken { paths, all }
    }
}

/// A set of touched paths.
pub(crate) struct Taken {
    paths: BTreeSet<PathBuf>,
    all: bool,
}

impl Taken {
    pub(crate) fn at_or_below(&self, path: &Path) -> bool {
        self.all || self.paths.range(path.to_owned()..).next().is_some_and(|touched| touched.starts_with(path))
    }
}

/// Watches directories; the flag says whether recursively. Returns the watcher, and an error for each directory
/// that the system refused. Blocks.
pub(crate) fn watch(
    directories: &BTreeMap<PathBuf, bool>,
    touched: &Arc<Touched>,
) -> (Option<RecommendedWatcher>, Vec<String>) {
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
