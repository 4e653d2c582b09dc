//! Compares two snapshots of a watched path and reports the changes. Pure functions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Change, FileStamp, WatchSnapshot};

/// Most paths that a report lists. It gives the number of the others.
pub const REPORT_PATHS: usize = 50;

/// One change of one file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileChange {
    /// Path relative to the workspace; the new path of a renamed file.
    pub path: String,
    /// Kind of the change.
    pub change: Change,
    /// Old path of a renamed file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl WatchSnapshot {
    /// The changes from this snapshot to `now`, sorted by path. A file whose stamp appears under a
    /// new path was renamed. A path whose stamp changed was modified, even if it is another file
    /// now.
    pub fn changes_to(&self, now: &Self) -> Vec<FileChange> {
        // File systems reuse inode numbers, so the whole stamp must be equal.
        let mut removed: BTreeMap<FileStamp, Vec<&str>> = BTreeMap::new();
        for (path, stamp) in &self.files {
            if !now.files.contains_key(path) {
                removed.entry(*stamp).or_default().push(path);
            }
        }
        let mut changes = Vec::new();
        for (path, stamp) in &now.files {
            let (change, from) = match self.files.get(path) {
                Some(before) if before == stamp => continue,
                Some(_) => (Change::Modified, None),
                None => match removed.get_mut(stamp).and_then(Vec::pop) {
                    Some(from) => (Change::Renamed, Some(from.to_owned())),
                    None => (Change::Created, None),
                },
            };
            changes.push(FileChange { path: path.clone(), change, from });
        }
        for path in removed.into_values().flatten() {
            changes.push(FileChange { path: path.to_owned(), change: Change::Removed, from: None });
        }
        changes.sort();
        changes
    }
}

/// The changes as text, one line each, at most [`REPORT_PATHS`] of them.
pub fn report(changes: &[FileChange]) -> String {
    let mut lines: Vec<String> = changes
        .iter()
        .take(REPORT_PATHS)
        .map(|change| match &change.from {
            Some(from) => format!("- {} {} (was {from})", change.change, change.path),
            None => format!("- {} {}", change.change, change.path),
        })
        .collect();
    if changes.len() > REPORT_PATHS {
        lines.push(format!("- and {} more", changes.len() - REPORT_PATHS));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp(inode: u64, changed: i128) -> FileStamp {
        FileStamp { bytes: 1, changed_ns: changed, inode }
    }

    fn snapshot(files: &[(&str, FileStamp)]) -> WatchSnapshot {
        WatchSnapshot { files: files.iter().map(|(path, stamp)| ((*path).to_owned(), *stamp)).collect() }
    }

    // covers: SCHED-03
    #[test]
    fn a_report_contains_every_kind_of_change() {
        let before = snapshot(&[("a", stamp(1, 1)), ("b", stamp(2, 1)), ("c", stamp(3, 1)), ("d", stamp(4, 1))]);
        let after = snapshot(&[("a", stamp(1, 1)), ("b", stamp(9, 2)), ("e", stamp(3, 1)), ("f", stamp(4, 2))]);
        let text = report(&before.changes_to(&after));
        assert_eq!(text, "- modified b\n- removed d\n- renamed e (was c)\n- created f");
        assert_eq!(report(&after.changes_to(&after)), "");
    }

    #[test]
    fn a_long_report_gives_the_number_of_omitted_changes() {
        let names: Vec<String> = (0..60).map(|n| format!("f{n:02}")).collect();
        let after = WatchSnapshot { files: names.iter().map(|name| (name.clone(), stamp(1, 1))).collect() };
        let text = report(&WatchSnapshot::default().changes_to(&after));
        assert_eq!(text.lines().count(), 51);
        assert!(text.ends_with("- and 10 more"));
    }

    fn any_snapshot() -> impl Strategy<Value = WatchSnapshot> {
        prop::collection::btree_map("[a-d]{1,2}", (0u64..6, 0i128..3), 0..8).prop_map(|files| WatchSnapshot {
            files: files.into_iter().map(|(path, (inode, changed))| (path, stamp(inode, changed))).collect(),
        })
    }

    proptest! {
        #[test]
        fn the_changes_turn_one_snapshot_into_the_other(before in any_snapshot(), after in any_snapshot()) {
            let mut files: std::collections::BTreeSet<String> = before.files.keys().cloned().collect();
            let mut touched = std::collections::BTreeSet::new();
            for change in before.changes_to(&after) {
                prop_assert!(touched.insert(change.path.clone()));
                match change.change {
                    Change::Created => prop_assert!(files.insert(change.path)),
                    Change::Modified => prop_assert!(files.contains(&change.path)),
                    Change::Removed => prop_assert!(files.remove(&change.path)),
                    Change::Renamed => {
                        let from = change.from.unwrap();
                        prop_assert_eq!(before.files[&from], after.files[&change.path]);
                        prop_assert!(files.remove(&from) && files.insert(change.path));
                    }
                }
            }
            let expected: std::collections::BTreeSet<String> = after.files.keys().cloned().collect();
            prop_assert_eq!(files, expected);
            let same = before.changes_to(&after).is_empty();
            prop_assert_eq!(same, before == after);
        }
    }
}
