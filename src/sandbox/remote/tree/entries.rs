//! The entries of a copy: what is at a name, how it goes, and the list of all. No symbolic link is followed. Contents that were
//! read before are not read again, but of a file that may be changing.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use ghost_domain::write_acl::is_reserved;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fstat, openat, readlinkat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use sha2::{Digest as _, Sha256};

use crate::own_dirs::{is_shared, shared_mode};
use crate::remote::node::{DEPTH_MAX, Node, Nodes, is_below, is_plain};
use crate::remote::protocol::{BYTES_MAX, ENTRIES_MAX};

const BUFFER: usize = 64 * 1024;

/// Directories that are open at once while a copy is emptied.
const EMPTY_DEPTH_MAX: usize = 64;

/// Longest target of a link.
pub(super) const TARGET_MAX: usize = 4_096;

pub(super) fn open_dir(at: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(at, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn open_file(at: impl AsFd, name: &str) -> Result<File, Errno> {
    // A pipe must not block.
    openat(at, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        .map(File::from)
}

pub(super) fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

pub(super) fn is_executable(found: &Stat) -> bool {
    found.st_mode & 0o100 != 0
}

pub(super) fn size(found: &Stat) -> u64 {
    u64::try_from(found.st_size).unwrap_or(0)
}

/// What is at `name`; `None` if nothing is.
fn node_at(at: impl AsFd, name: &str) -> io::Result<Option<Node>> {
    let found = match statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(match kind(&found) {
        FileType::Directory => Node::Dir,
        FileType::Symlink => link_at(&at, name),
        FileType::RegularFile => match open_file(&at, name) {
            Ok(file) => content(file)?,
            Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS) => Node::Other,
            Err(error) => return Err(error.into()),
        },
        _ => Node::Other,
    }))
}

pub(super) fn link_at(at: impl AsFd, name: &str) -> Node {
    let target = readlinkat(at, name, Vec::new()).ok().and_then(|target| target.into_string().ok());
    target.filter(|target| target.len() <= TARGET_MAX).map_or(Node::Other, |target| Node::Link { target })
}

/// Whether `name` is as `was` says. A file that has another size is not read.
pub(super) fn is_still(at: impl AsFd, name: &str, was: Option<&Node>) -> io::Result<bool> {
    if let Some(Node::File { size: wanted, .. }) = was {
        match statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if kind(&found) == FileType::RegularFile && size(&found) == *wanted => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(node_at(at, name)?.as_ref() == was)
}

/// Who gets root's new entries of a directory: its owner, and in a server's copy also its group. Commands are other users
/// then, who must be able to change them.
pub(super) struct Heir {
    pub(super) uid: Uid,
    pub(super) gid: Gid,
    /// Whether the group may change them, too.
    is_shared: bool,
}

impl Heir {
    /// `None` if entries stay as they are made.
    pub(super) fn of(dir: impl AsFd, is_copy: bool) -> io::Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let found = fstat(dir)?;
        let (uid, gid) = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
        let is_shared = is_copy && is_shared(&found);
        Ok((!uid.is_root() || is_shared).then_some(Self { uid, gid, is_shared }))
    }

    /// The mode that an entry gets.
    pub(super) fn mode(&self, mode: u32) -> Mode {
        if self.is_shared { shared_mode(mode) } else { Mode::from_raw_mode(mode) }
    }
}

/// Hands over the directory or link that was made at `name`.
pub(super) fn hand_over(dir: impl AsFd, name: &str, is_copy: bool) -> io::Result<()> {
    let Some(heir) = Heir::of(&dir, is_copy)? else { return Ok(()) };
    // A command may have put something else there since. What it made is not root's.
    let made = openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&made)?;
    let is_dir = kind(&found) == FileType::Directory;
    if found.st_uid != 0 || !(is_dir || found.st_nlink == 1) {
        return Ok(());
    }
    chownat(&made, "", Some(heir.uid), Some(heir.gid), AtFlags::EMPTY_PATH)?;
    if is_dir && heir.is_shared {
        rustix::fs::chmod(format!("/proc/self/fd/{}", made.as_raw_fd()), heir.mode(found.st_mode & 0o777))?;
    }
    Ok(())
}

/// Removes what is at `name`, which is `was`.
pub(super) fn clear(at: impl AsFd, name: &str, was: Option<&Node>) -> io::Result<()> {
    match was {
        None => Ok(()),
        Some(Node::Dir) => Ok(unlinkat(at, name, AtFlags::REMOVEDIR)?),
        // What cannot be compared may be a directory that cannot be read.
        Some(Node::Other) => match unlinkat(&at, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => Ok(unlinkat(at, name, AtFlags::REMOVEDIR)?),
            done => Ok(done?),
        },
        Some(_) => Ok(unlinkat(at, name, AtFlags::empty())?),
    }
}

fn hash(mut file: File) -> io::Result<(String, u64)> {
    let (mut hash, mut buffer, mut size) = (Sha256::new(), vec![0; BUFFER], 0_u64);
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => return Ok((hex::encode(hash.finalize()), size)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&buffer[..read]);
        size = size.saturating_add(read as u64);
        if size > BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

/// A file with its content.
pub(super) fn content(file: File) -> io::Result<Node> {
    let found = fstat(&file)?;
    if kind(&found) != FileType::RegularFile {
        return Ok(Node::Other);
    }
    let (sha256, size) = hash(file)?;
    Ok(Node::File { sha256, size, executable: is_executable(&found) })
}

/// The directory at `path`, a plain path or the root, which is `root`.
pub(super) fn dir_at(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let mut at = open_dir(root, ".")?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = open_dir(&at, part)?;
    }
    Ok(at)
}

/// Lets everybody read an entry of a copy, as ghostd's workspace does, and in a shared directory the group do what the
/// owner may: programs close files to others, `cp` and `tar` give them modes of elsewhere. Does nothing to a file that has
/// another name, too.
pub(super) fn open_to_others(dir: impl AsFd, name: impl Arg, found: &Stat, is_shared: bool) {
    let wanted = match kind(found) {
        FileType::Directory => 0o755,
        FileType::RegularFile if is_executable(found) => 0o755,
        FileType::RegularFile => 0o644,
        _ => return,
    };
    if kind(found) == FileType::Directory || found.st_nlink == 1 {
        let wanted = if is_shared { shared_mode(wanted).as_raw_mode() } else { wanted };
        open(dir, name, found, wanted);
    }
}

/// Lets the owner of an entry use it again.
pub(super) fn open_to_owner(dir: impl AsFd, name: impl Arg, found: &Stat) {
    match kind(found) {
        FileType::Directory => open(dir, name, found, 0o700),
        FileType::RegularFile => open(dir, name, found, 0o600),
        _ => {}
    }
}

/// Adds permissions to an entry, if we may: we are the owner or root. Does nothing if it is not as `found` any more.
fn open(dir: impl AsFd, name: impl Arg, found: &Stat, wanted: u32) {
    let user = rustix::process::geteuid();
    if found.st_mode & wanted == wanted || !(user.is_root() || user.as_raw() == found.st_uid) {
        return;
    }
    // `chmod` would follow a link that has replaced the entry since. This descriptor needs no permission to read.
    let Ok(entry) = openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) else { return };
    if fstat(&entry).is_ok_and(|now| (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino)) {
        let path = format!("/proc/self/fd/{}", entry.as_raw_fd());
        // If it stays closed, the list shows it as something that cannot be read.
        let _ = rustix::fs::chmod(path, Mode::from_raw_mode((found.st_mode | wanted) & 0o777));
    }
}

/// Removes everything in a directory, also what its owner closed to itself, however deep it is.
pub(super) fn empty(top: &OwnedFd) -> io::Result<()> {
    let mut moved = 0;
    loop {
        let before = moved;
        empty_below(top, top, 0, &mut moved)?;
        if moved == before {
            return Ok(());
        }
    }
}

/// Empties `dir`, which is `depth` directories below `top`. What is too deep moves to `top`: each open directory takes a
/// descriptor, and a command can nest more of them than there are.
fn empty_below(top: &OwnedFd, dir: &OwnedFd, depth: usize, moved: &mut usize) -> io::Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let found = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind(&found) != FileType::Directory {
            unlinkat(dir, name, AtFlags::empty())?;
            continue;
        }
        open_to_owner(dir, name, &found);
        if depth >= EMPTY_DEPTH_MAX {
            renameat(dir, name, top, format!(".ghost-deep-{moved}"))?;
            *moved += 1;
            continue;
        }
        let inner = openat(dir, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        empty_below(top, &inner, depth + 1, moved)?;
        unlinkat(dir, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

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

/// See `Tree::list`.
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
