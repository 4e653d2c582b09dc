//! Directories: those that every workspace, agent and droid begins with; lists of entries, and snapshots of files for watches,
//! both limited and without following links; and the removal of temporary files that a crash left.

use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use ghost_domain::schedule::FileStamp;
use ghost_domain::tool_catalogue::glob;
use ghost_domain::write_acl::{TEMP_PREFIX, is_reserved};
use ghost_domain::{AgentId, Refusal, WatchSnapshot, WorkspacePath, refusal};
use ghost_operations::Result;
use serde::Serialize;

use super::system::{self, in_the_way, io_refusal, join};
use super::{reading, writing};

/// The largest number of levels in a listing.
pub const DEPTH_MAX: u32 = 8;
/// The largest number of entries in a listing.
pub const ENTRIES_MAX: usize = 2_000;
/// The largest number of entries that are read to find matching ones. This also limits the
/// directories, since each is an entry.
const SCAN_MAX: usize = 50_000;

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The path relative to the root.
    pub path: String,
    /// The type of the entry.
    pub kind: EntryKind,
    /// The size of a file in bytes; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The entries of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries, sorted by path.
    pub entries: Vec<Entry>,
    /// Whether entries are missing, because of a limit or because a directory could not be opened.
    pub truncated: bool,
}

pub(crate) fn list(
    root: &Dir,
    path: &WorkspacePath,
    depth: u32,
    pattern: Option<&str>,
    limit: usize,
) -> Result<Listing> {
    let (depth, limit) = (depth.clamp(1, DEPTH_MAX), limit.clamp(1, ENTRIES_MAX));
    let start = if path.as_str().is_empty() { "." } else { path.as_str() };
    let facts = root.metadata(start).map_err(|error| io_refusal("list", path.as_str(), &error))?;
    if !facts.is_dir() {
        return Err(refusal!(InvalidArguments, "`{}` is not a directory", path.as_str())
            .hint("use workspace.read to read a file"));
    }
    let top = root.open_dir(start).map_err(|error| io_refusal("list", path.as_str(), &error))?;
    // Keep paths, not open handles: a wide tree would use up the daemon's file descriptors.
    let mut pending = VecDeque::from([(String::new(), 1)]);
    let mut listing = Listing::default();
    let mut scanned = 0;
    'walk: while let Some((below, level)) = pending.pop_front() {
        let base = if below.is_empty() { path.as_str().to_owned() } else { join(path.as_str(), &below) };
        let failed = |error: std::io::Error| io_refusal("list", &base, &error);
        let entries = match system::entries(&top, &below) {
            Ok(Some(entries)) => entries,
            // The directory was removed meanwhile.
            Ok(None) => continue,
            Err(error) if below.is_empty() => return Err(failed(error)),
            // The directory is listed without its content, and the result is marked as truncated.
            Err(error) => {
                tracing::debug!(path = base, %error, "a directory is missing from a listing");
                listing.truncated = true;
                continue;
            }
        };
        for entry in entries {
            if scanned == SCAN_MAX {
                listing.truncated = true;
                break 'walk;
            }
            scanned += 1;
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if is_reserved(&name) {
                continue;
            }
            let full = join(&base, &name);
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && level < depth {
                pending.push_back((join(&below, &name), level + 1));
            }
            let wanted = pattern.is_none_or(|pattern| glob(pattern, &full) || glob(pattern, &name));
            if wanted {
                let bytes = kind.is_file().then(|| entry.metadata().map(|facts| facts.len()).unwrap_or(0));
                let kind = match () {
                    () if kind.is_file() => EntryKind::File,
                    () if kind.is_dir() => EntryKind::Dir,
                    () if kind.is_symlink() => EntryKind::Link,
                    () => EntryKind::Other,
                };
                listing.entries.push(Entry { path: full, kind, bytes });
            }
        }
    }
    listing.entries.sort_by(|a, b| a.path.cmp(&b.path));
    if listing.entries.len() > limit {
        listing.entries.truncate(limit);
        listing.truncated = true;
    }
    Ok(listing)
}

/// The largest number of levels of a snapshot.
const SNAPSHOT_DEPTH: usize = 32;

/// The regular files at or below `path`. Without `recursive`, only files directly in it. `None` if
/// nothing is there. The snapshot is complete or refused, because a missing file would be reported
/// as removed.
pub(super) fn stamps(root: &Dir, path: &WorkspacePath, recursive: bool, limit: usize) -> Result<Option<WatchSnapshot>> {
    let mut seen = WatchSnapshot::default();
    if !path.as_str().is_empty() {
        // A file is examined in its parent directory. A link as the last component is refused.
        let Some((parent, name)) = system::parent_of(root, path, false)? else { return Ok(None) };
        let facts = match Dir::from_std_file(parent.into()).symlink_metadata(name) {
            Ok(facts) => facts,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_refusal("look at", path.as_str(), &error)),
        };
        if facts.is_file() {
            seen.files.insert(path.as_str().to_owned(), stamp(&facts));
            return Ok(Some(seen));
        }
        if !facts.is_dir() {
            return Err(in_the_way(path.as_str(), "a symbolic link or a device"));
        }
    }
    let Some(top) = system::directory(root, path.as_str(), false)? else { return Ok(None) };
    let top = Dir::from_std_file(top.into());
    // Keep paths, not open handles: a wide tree would use up the daemon's file descriptors.
    let mut pending = vec![(String::new(), 1)];
    let mut others = 0_usize;
    while let Some((below, level)) = pending.pop() {
        let full = |name: &str| {
            let parts = [path.as_str(), below.as_str(), name];
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
        };
        let failed = |error: io::Error| io_refusal("look at", &full(""), &error);
        let entries = system::entries(&top, &below);
        let Some(entries) = entries.map_err(failed)? else { continue };
        for entry in entries {
            let Some(entry) = if_exists(entry).map_err(failed)? else { continue };
            let Some(kind) = if_exists(entry.file_type()).map_err(failed)? else { continue };
            if !kind.is_file() {
                others += 1;
                if others > limit {
                    return Err(too_many(limit, "directories and links", path));
                }
            }
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Temporary files of running writes are not reported, nor are names with control
            // characters.
            if is_reserved(&name) || name.contains(ghost_domain::text::is_strange) {
                continue;
            }
            if kind.is_dir() && recursive && level < SNAPSHOT_DEPTH {
                pending.push((join(&below, &name), level + 1));
            } else if kind.is_file()
                && let Some(facts) = if_exists(entry.metadata()).map_err(failed)?
            {
                if seen.files.len() >= limit {
                    return Err(too_many(limit, "files", path));
                }
                seen.files.insert(full(&name), stamp(&facts));
            }
        }
    }
    Ok(Some(seen))
}

/// An entry that disappears meanwhile is `None`. Any other error is returned.
fn if_exists<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn too_many(limit: usize, what: &str, path: &WorkspacePath) -> Refusal {
    let shown = if path.as_str().is_empty() { "." } else { path.as_str() };
    refusal!(TooLarge, "there are more than {limit} {what} below `{shown}`")
        .hint("watch a smaller directory; the limit is limits.watch_files_max")
}

fn stamp(facts: &Metadata) -> FileStamp {
    FileStamp {
        bytes: facts.len(),
        changed_ns: i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec()),
        inode: facts.ino(),
    }
}

/// Directories of every workspace.
const SEED: [&str; 9] = [
    "agents",
    "droids",
    "output/briefings",
    "output/reports",
    "output/reviews",
    "output/digests",
    "projects",
    "shared/manifests",
    "shared/templates",
];

/// Directories of every agent.
const OWN: [&str; 3] = ["drafts", "notes", "inbox"];

/// The directory of every droid.
const OF_DROID: &str = "output";

/// Limits of the sweep: levels and entries. Temporary files beyond them only waste space: they are
/// never read, listed or reused.
const SWEEP_DEPTH: usize = 32;
const SWEEP_ENTRIES: usize = 200_000;

pub(super) fn open_root(root: &Path) -> Result<Dir> {
    let shown = root.display().to_string();
    let made = DirBuilder::new().recursive(true).mode(system::DIR_MODE).create(root);
    made.map_err(|error| io_refusal("create", &shown, &error))?;
    Dir::open_ambient_dir(root, ambient_authority()).map_err(|error| io_refusal("open", &shown, &error))
}

/// Whether the opened directory is no longer at `place`: it was removed, moved or replaced.
pub(super) fn has_moved(root: &Dir, place: &Path) -> bool {
    let Ok(opened) = root.dir_metadata() else { return true };
    match std::fs::metadata(place) {
        Ok(there) => (there.dev(), there.ino()) != (opened.dev(), opened.ino()),
        // If `place` cannot be examined, assume that the directory is still there.
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

pub(super) fn create_seed(root: &Dir) -> Result<()> {
    for path in SEED {
        system::directory(root, path, true)?;
    }
    Ok(())
}

pub(super) fn create_agent(root: &Dir, agent_id: &AgentId) -> Result<()> {
    for name in OWN {
        system::directory(root, &format!("{}/{name}", agent_id.home()), true)?;
    }
    Ok(())
}

/// Creates a droid's directory with the file of its task. Nothing waits for the disk: what a power loss removes, the next
/// turn of the droid makes again.
pub(super) fn create_droid(root: &Dir, task_path: &WorkspacePath, task: &str, is_first: bool) -> Result<()> {
    let (home, name) = task_path.as_str().rsplit_once('/').unwrap_or_default();
    if is_first {
        system::set_aside(root, home)?;
    }
    let opened = system::create_unsynced(root, home)?;
    system::create_unsynced(&opened, OF_DROID)?;
    match reading::regular_size(&opened, name, task_path)? {
        // The droid may have changed it.
        Some(size) if size > 0 => Ok(()),
        _ => writing::write_unsynced(root, opened, (task_path, name), task.as_bytes()),
    }
}

/// Removes temporary files of interrupted writes. Must run before anything is written: it cannot
/// tell an abandoned file from one in use.
pub(super) fn sweep(root: &Dir) -> Result<()> {
    let failed = |error: std::io::Error| io_refusal("sweep", "", &error);
    let mut left = SWEEP_ENTRIES;
    let mut pending = vec![(String::new(), 0_usize)];
    while let Some((below, depth)) = pending.pop() {
        let entries = match system::entries(root, &below) {
            Ok(Some(entries)) => entries,
            Ok(None) => continue,
            // A directory that the daemon may not enter contains no temporary files: writes could
            // not enter it either.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let Some(less) = left.checked_sub(1) else { return Ok(()) };
            left = less;
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && depth < SWEEP_DEPTH {
                // Writes accept only UTF-8 names, so other directories contain no temporary files.
                if let Ok(name) = entry.file_name().into_string() {
                    pending.push((join(&below, &name), depth + 1));
                }
            } else if kind.is_file() && entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX) {
                entry.remove_file().map_err(failed)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Workspace;
    use ghost_domain::Code;

    use super::*;
    use ghost_domain::schedule::changes::report;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::parse(text, true).unwrap()
    }

    #[tokio::test]
    async fn changes_are_found_links_are_not_followed_and_the_limit_is_enforced() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::inline(dir.path()).unwrap();
        let shared = dir.path().join("shared");
        std::fs::create_dir_all(shared.join("deep")).unwrap();
        std::fs::write(shared.join("a"), "1").unwrap();
        std::fs::write(shared.join("deep/b"), "1").unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "1").unwrap();
        std::os::unix::fs::symlink(outside.path(), shared.join("out")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), shared.join("file")).unwrap();
        let snapshot = async |at: &str, recursive| workspace.stamps(&path(at), recursive, 100).await;
        let before = snapshot("shared", true).await.unwrap().unwrap();
        assert_eq!(before.files.keys().collect::<Vec<_>>(), ["shared/a", "shared/deep/b"]);
        assert_eq!(snapshot("shared", false).await.unwrap().unwrap().files.len(), 1);
        assert_eq!(snapshot("shared/a", true).await.unwrap().unwrap().files.len(), 1);
        assert!(snapshot("shared/none", true).await.unwrap().is_none());
        assert!(snapshot("none/at/all", true).await.unwrap().is_none());
        for link in ["shared/out", "shared/file", "shared/out/secret"] {
            assert_eq!(snapshot(link, true).await.unwrap_err().code, Code::PathDenied, "{link}");
        }
        std::fs::rename(shared.join("a"), shared.join("deep/c")).unwrap();
        std::fs::write(shared.join("deep/b"), "22").unwrap();
        let after = snapshot("shared", true).await.unwrap().unwrap();
        assert_eq!(
            report(&before.changes_to(&after)),
            "- modified shared/deep/b\n- renamed shared/deep/c (was shared/a)"
        );
        assert_eq!(workspace.stamps(&path("shared"), true, 1).await.unwrap_err().code, Code::TooLarge);
    }
}
