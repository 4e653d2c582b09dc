//! Lists a directory: sorted, limited, with links shown but not followed.

use std::collections::VecDeque;

use cap_std::fs::Dir;
use ghost_domain::tool_catalogue::glob;
use ghost_domain::write_acl::{WorkspacePath, is_reserved};
use ghost_domain::{Code, Refusal};
use serde::Serialize;

use super::faults::io_refusal;
use super::parents;

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
) -> Result<Listing, Refusal> {
    let (depth, limit) = (depth.clamp(1, DEPTH_MAX), limit.clamp(1, ENTRIES_MAX));
    let start = if path.as_str().is_empty() { "." } else { path.as_str() };
    let facts = root.metadata(start).map_err(|error| io_refusal("list", path.as_str(), &error))?;
    if !facts.is_dir() {
        return Err(Refusal::new(Code::InvalidArguments, format!("`{}` is not a directory", path.as_str()))
            .hint("use workspace.read to read a file"));
    }
    let top = root.open_dir(start).map_err(|error| io_refusal("list", path.as_str(), &error))?;
    // Keep paths, not open handles: a wide tree would use up the daemon's file descriptors.
    let mut pending = VecDeque::from([(String::new(), 1)]);
    let mut listing = Listing::default();
    let mut scanned = 0;
    'walk: while let Some((below, level)) = pending.pop_front() {
        let base = match (path.as_str(), below.as_str()) {
            ("", only) | (only, "") => only.to_owned(),
            (start, below) => format!("{start}/{below}"),
        };
        let failed = |error: std::io::Error| io_refusal("list", &base, &error);
        let entries = match parents::reopen(&top, &below).and_then(|dir| dir.map(|dir| dir.entries()).transpose()) {
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
            let full = if base.is_empty() { name.clone() } else { format!("{base}/{name}") };
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && level < depth {
                pending.push_back((if below.is_empty() { name.clone() } else { format!("{below}/{name}") }, level + 1));
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
