//! Prepares the directories that a command may write to: they exist, and belong to the user or the group of commands, who
//! can reach them.
//!
//! It must never follow a symbolic link: a command of another agent may put one in the way at any moment.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};

use ghost_domain::{Code, Refusal};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags, chmod, chownat, fstat, mkdirat, openat,
    setxattr,
};
use rustix::io::Errno;

use crate::users::User;

/// Deepest directory that is handed over.
const DEPTH_MAX: u32 = 64;
/// The name of the access that new entries of a directory begin with, whatever the umask of their maker.
const DEFAULT_ACL: &str = "system.posix_acl_default";
/// That access where a group works together, as the kernel takes it (`linux/posix_acl_xattr.h`): version 2, then tag,
/// permissions and an unused id for the owner, the group and others.
const SHARED_ACL: [u8; 28] =
    [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 7, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255, 255, 255];

/// Whom a directory belongs to, with all that is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirOwner {
    /// It stays as it is.
    Kept,
    /// One user, who alone may change it.
    User(User),
    /// All users of this group may change it, and what they make there.
    Group(u32),
}

impl DirOwner {
    /// Whether the directory is its already, and so all that is in it.
    fn has(self, found: &Stat) -> bool {
        match self {
            Self::Kept => true,
            Self::User(user) => found.st_uid == user.uid,
            Self::Group(gid) => found.st_gid == gid,
        }
    }
}

/// Whether a directory belongs to a group that works together in it.
pub(crate) fn is_shared(found: &Stat) -> bool {
    found.st_gid != 0 && found.st_mode & 0o020 != 0
}

fn open(parent: impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    openat(parent, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Which directory it is, whatever its name: the numbers of its file system and of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Opens `dir` below `root`, and creates what is missing of it. It and all that is in it goes to `owner`, unless it is
/// its already.
///
/// # Errors
/// `Unavailable` if something else, such as a link, stands in the way.
pub(crate) fn prepare(root: &Path, dir: &str, owner: DirOwner) -> Result<Identity, Refusal> {
    try_prepare(root, Path::new(dir.trim_end_matches('/')), owner).map_err(|error| {
        Refusal::new(Code::Unavailable, format!("the directory `{dir}` cannot be prepared for the command: {error}"))
            .hint("remove what stands in its place")
    })
}

fn try_prepare(root: &Path, dir: &Path, owner: DirOwner) -> io::Result<Identity> {
    let mut at = openat(CWD, root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for part in dir.components() {
        let Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
        let name = Path::new(name);
        at = match open(&at, name) {
            Err(Errno::NOENT) => {
                match mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                open(&at, name)?
            }
            found => found?,
        };
    }
    let found = fstat(&at)?;
    if !owner.has(&found) {
        hand_over(&at, owner, 0)?;
        // Last: it says that all that is in it has been handed over.
        give(&at, &found, owner)?;
    } else if matches!(owner, DirOwner::Group(_)) && !is_shared(&found) {
        share(&at, &found)?;
    }
    Ok(Identity { device: found.st_dev, inode: found.st_ino })
}

/// If the daemon is root, commands are another user. Lets that user through `dir`. Files in it keep modes of their own.
///
/// # Errors
/// Why the mode of the directory cannot be changed.
pub(crate) fn let_others_through(dir: &Path) -> Result<(), String> {
    let may_pass = std::fs::metadata(dir).map(|found| found.permissions().mode() | 0o711);
    may_pass
        .and_then(|mode| std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)))
        .map_err(|error| format!("{} cannot be opened to commands: {error}", dir.display()))
}

/// Whether another user than root reaches `dir`.
///
/// # Errors
/// Which directory above it stops them.
pub(crate) fn is_reachable(dir: &Path) -> Result<(), String> {
    let is_closed = |dir: &&Path| std::fs::metadata(dir).is_ok_and(|found| found.permissions().mode() & 0o001 == 0);
    match dir.ancestors().find(is_closed) {
        None => Ok(()),
        Some(dir) => Err(format!(
            "ghostd runs as root, so commands run as another user, who cannot pass through {}; run ghostd as an \
             ordinary user, or give it a workspace elsewhere with --workspace",
            dir.display()
        )),
    }
}

/// Hands over what is in a directory.
fn hand_over(dir: &OwnedFd, owner: DirOwner, depth: u32) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Ok(());
    }
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // A command may put another entry at this name meanwhile; this one stays the same.
        let pinned = match openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => continue,
            pinned => pinned?,
        };
        let found = fstat(&pinned)?;
        let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if is_dir {
            let inner = openat(&pinned, ".", OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
            hand_over(&inner, owner, depth + 1)?;
        }
        // A file with several names may have one elsewhere.
        if is_dir || found.st_nlink == 1 {
            give(&pinned, &found, owner)?;
        }
    }
    Ok(())
}

/// Hands over one entry, which is as `found`.
fn give(entry: &OwnedFd, found: &Stat, owner: DirOwner) -> io::Result<()> {
    let (uid, gid) = match owner {
        DirOwner::Kept => return Ok(()),
        DirOwner::User(user) => (Some(Uid::from_raw(user.uid)), user.gid),
        DirOwner::Group(gid) => (None, gid),
    };
    chownat(entry, "", uid, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)?;
    if matches!(owner, DirOwner::Group(_)) { share(entry, found) } else { Ok(()) }
}

/// Lets the group of an entry do what its owner may, also with what is made in it later.
fn share(entry: &OwnedFd, found: &Stat) -> io::Result<()> {
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind == FileType::Symlink {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", entry.as_raw_fd());
    chmod(&path, shared_mode(found.st_mode))?;
    if kind == FileType::Directory {
        setxattr(&path, DEFAULT_ACL, &SHARED_ACL, XattrFlags::empty())?;
    }
    Ok(())
}

/// The mode of an entry whose group may do what its owner may.
pub(crate) fn shared_mode(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777 | (mode & 0o700) >> 3)
}

/// Whether the file system of `dir` keeps the access of groups, which agents with users of their own need to work in one
/// directory.
///
/// # Errors
/// Why it does not.
pub fn keeps_groups(dir: &Path) -> io::Result<()> {
    let probe = dir.join(format!("probe-{}", std::process::id()));
    match std::fs::create_dir(&probe) {
        // A start that died left it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let done = setxattr(&probe, DEFAULT_ACL, &SHARED_ACL, XattrFlags::empty());
    std::fs::remove_dir(&probe)?;
    Ok(done?)
}

/// Whether the user of commands can pass through `dir` and all directories above it.
///
/// # Errors
/// Which directory stops that user, and what to do.
pub fn is_within_reach(dir: &Path) -> Result<(), String> {
    match rustix::process::geteuid().is_root() {
        true => is_reachable(dir),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_way_is_an_error_and_missing_directories_are_created() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = prepare(root.path(), "a/b/c", DirOwner::Kept).unwrap();
        assert_eq!(first, prepare(root.path(), "a/b/c/", DirOwner::Kept).unwrap());
        assert!(root.path().join("a/b/c").is_dir());
        std::os::unix::fs::symlink(outside.path(), root.path().join("a/link")).unwrap();
        assert!(prepare(root.path(), "a/link/new", DirOwner::Kept).is_err());
        assert!(prepare(root.path(), "../new", DirOwner::Kept).is_err());
        assert!(!outside.path().join("new").exists());
    }
}
