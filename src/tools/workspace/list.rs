//! Listing a directory: sorted, bounded, links shown and not followed.

use std::collections::VecDeque;

use cap_std::fs::Dir;
use ghost_domain::tool_catalogue::glob;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Refusal};
use serde::Serialize;

use super::faults::io_refusal;
use super::files::TEMP_PREFIX;
use super::parents;

/// Levels that a listing goes down, at most.
pub const DEPTH_MAX: u32 = 8;
/// Entries of one listing, at most.
pub const ENTRIES_MAX: usize = 2_000;
/// Entries that one listing looks at in search of those that are wanted. Bounds its directories too: each of them is one.
const SCAN_MAX: usize = 50_000;

/// What an entry is.
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
    /// Path relative to the root.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// Size of a file; nothing for the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// What a directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries, sorted by path.
    pub entries: Vec<Entry>,
    /// Whether some were left out: beyond a bound, or in a directory that could not be opened.
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
    // Below it, as paths: an open handle for each that waits would take every one that the daemon may have.
    let mut waiting = VecDeque::from([(String::new(), 1)]);
    let mut listing = Listing::default();
    let mut scanned = 0;
    'walk: while let Some((below, level)) = waiting.pop_front() {
        let base = match (path.as_str(), below.as_str()) {
            ("", only) | (only, "") => only.to_owned(),
            (start, below) => format!("{start}/{below}"),
        };
        let failed = |error: std::io::Error| io_refusal("list", &base, &error);
        let entries = match parents::again(&top, &below).and_then(|dir| dir.map(|dir| dir.entries()).transpose()) {
            Ok(Some(entries)) => entries,
            // It has gone meanwhile.
            Ok(None) => continue,
            Err(error) if below.is_empty() => return Err(failed(error)),
            // It is shown without what is in it, and that is said.
            Err(error) => {
                tracing::debug!(path = base, %error, "a directory was left out of a listing");
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
            if name.starts_with(TEMP_PREFIX) {
                continue;
            }
            let full = if base.is_empty() { name.clone() } else { format!("{base}/{name}") };
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && level < depth {
                waiting.push_back((if below.is_empty() { name.clone() } else { format!("{below}/{name}") }, level + 1));
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
