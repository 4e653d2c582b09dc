//! Lists a copy of a workspace. Contents that were read before are not read again.
//!
//! A listing must never be larger than its bounds, and never take a file that may be changing for one that is known.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use ghost_domain::write_acl::is_reserved;
use rustix::fs::{AtFlags, Dir, FileType, Stat, fstat, statat};
use rustix::io::Errno;

use super::entry::{content, dir_at, is_executable, kind, link_at, open_file, open_to_others, size};
use crate::own_dirs::is_shared;
use crate::remote::node::{DEPTH_MAX, Node, Nodes, is_below, is_plain};
use crate::remote::protocol::{BYTES_MAX, ENTRIES_MAX};

/// A file that changed less than this ago may change again within one tick of the file system's clock.
const SETTLED_MS: i64 = 2_000;

/// Why a workspace cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// It has too many entries.
    #[error("the workspace has more than {ENTRIES_MAX} files and directories")]
    TooMany,
    /// It has too many bytes.
    #[error("the files of the workspace have more than {} MB", BYTES_MAX >> 20)]
    TooLarge,
    /// The disk failed.
    #[error("`{path}` cannot be read: {error}")]
    Io {
        /// Where.
        path: String,
        /// How.
        error: io::Error,
    },
}

/// What tells one state of a file from another: device, inode, size, and the times of its last changes.
type Stamp = (u64, u64, i128, [i128; 4]);

fn stamp(found: &Stat) -> Stamp {
    let times = [
        i128::from(found.st_mtime),
        i128::from(found.st_mtime_nsec),
        i128::from(found.st_ctime),
        i128::from(found.st_ctime_nsec),
    ];
    (found.st_dev, found.st_ino, i128::from(found.st_size), times)
}

/// The contents that were read, by path.
#[derive(Debug, Default)]
pub struct Hashes(HashMap<String, (Stamp, String)>);

impl Hashes {
    /// Whether the content at a path is known.
    #[cfg(test)]
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }
}

/// See [`Tree::list`](super::Tree::list).
pub(super) fn list(
    root: &OwnedFd,
    is_copy: bool,
    scope: &str,
    hashes: &mut Hashes,
    busy: &[String],
    now_ms: i64,
) -> Result<(Nodes, usize), TreeError> {
    let (mut nodes, mut left_out, mut bytes) = (Nodes::new(), 0, 0_u64);
    let mut known = HashMap::new();
    let mut dirs = vec![scope.to_owned()];
    while let Some(path) = dirs.pop() {
        let failed = |error: io::Error| TreeError::Io { path: path.clone(), error };
        let dir = match dir_at(root, &path) {
            Ok(dir) => dir,
            // Removed or replaced in the meantime, or closed to us: what is in it is not known.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {
                if let Some(node) = nodes.get_mut(&path) {
                    *node = Node::Other;
                }
                continue;
            }
            Err(error) => return Err(failed(error.into())),
        };
        let is_shared = is_copy && fstat(&dir).is_ok_and(|found| is_shared(&found));
        for entry in Dir::read_from(&dir).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(name) = entry.file_name().to_str() else {
                left_out += 1;
                continue;
            };
            if is_reserved(name) {
                continue;
            }
            let whole = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            let found = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => found,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(failed(error.into())),
            };
            if is_copy {
                open_to_others(&dir, name, &found, is_shared);
            }
            let node = match kind(&found) {
                FileType::Directory if whole.split('/').count() > DEPTH_MAX => Node::Other,
                FileType::Directory => {
                    dirs.push(whole.clone());
                    Node::Dir
                }
                FileType::Symlink => link_at(&dir, name),
                FileType::RegularFile => {
                    bytes = bytes.saturating_add(size(&found));
                    if bytes > BYTES_MAX {
                        return Err(TreeError::TooLarge);
                    }
                    let earlier = hashes.0.get(&whole).filter(|(of, _)| *of == stamp(&found));
                    let node = match earlier {
                        Some((_, sha256)) => {
                            Node::File { sha256: sha256.clone(), size: size(&found), executable: is_executable(&found) }
                        }
                        None => match open_file(&dir, name) {
                            Ok(file) => content(file).map_err(failed)?,
                            Err(Errno::NOENT) => continue,
                            Err(Errno::LOOP | Errno::ACCESS) => Node::Other,
                            Err(error) => return Err(failed(error.into())),
                        },
                    };
                    let changed_ms = i128::from(found.st_ctime) * 1_000;
                    let settled = i128::from(now_ms.saturating_sub(SETTLED_MS)) > changed_ms + 999;
                    if let (Node::File { sha256, .. }, true) = (&node, settled)
                        && !busy.iter().any(|dir| is_below(&whole, dir))
                    {
                        known.insert(whole.clone(), (stamp(&found), sha256.clone()));
                    }
                    node
                }
                _ => Node::Other,
            };
            if !is_plain(&whole) {
                left_out += 1;
                continue;
            }
            nodes.insert(whole, node);
            if nodes.len() > ENTRIES_MAX {
                return Err(TreeError::TooMany);
            }
        }
    }
    hashes.0.retain(|path, _| !is_below(path, scope));
    hashes.0.extend(known);
    Ok((nodes, left_out))
}
