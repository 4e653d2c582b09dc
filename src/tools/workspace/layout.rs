//! The initial directories of a workspace, and removal of temporary files that a crash
//! left.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _};
use ghost_domain::AgentId;
use ghost_domain::write_acl::{TEMP_PREFIX, WorkspacePath};
use ghost_operations::Result;

use super::system::{self, io_refusal};
use super::{reading, writing};

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
        let entries = match system::reopen(root, &below).and_then(|dir| dir.map(|dir| dir.entries()).transpose()) {
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
                    pending.push((if below.is_empty() { name } else { format!("{below}/{name}") }, depth + 1));
                }
            } else if kind.is_file() && entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX) {
                entry.remove_file().map_err(failed)?;
            }
        }
    }
    Ok(())
}
