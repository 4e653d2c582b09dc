//! The users of the operating system that commands run as, and the directories that they may write to: they exist, and belong to
//! the user or the group of commands, who can reach them. A command never runs as root. No symbolic link is followed: a
//! command of another agent may put one in the way at any moment.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};

use ghost_domain::{AgentId, Code, Refusal};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags, chmod, chownat, fchmod, fchown, fstat,
    mkdirat, openat, setxattr,
};
use rustix::io::Errno;

/// The number of the user and of the group "nobody".
pub(crate) const NOBODY: u32 = 65_534;

/// A user and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number, not 0.
    pub uid: u32,
    /// The number of its group, which the users of one workspace share; not 0.
    pub gid: u32,
}

impl User {
    /// The user of all commands, if root runs them and agents have none of their own.
    pub(crate) const NOBODY: Self = Self { uid: NOBODY, gid: NOBODY };
}

/// Gives each agent of one workspace a user of its own.
pub trait Users: Send + Sync {
    /// The user of an agent, always the same one. No other agent has it.
    ///
    /// # Errors
    /// If there is none left, or it cannot be written down.
    fn user_of(&self, agent_id: &AgentId) -> Result<User, Refusal>;
}

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
    /// It stays its owner's. This group may read it, and others nothing.
    Readers(u32),
}

impl DirOwner {
    /// Whether the directory is its already, and so all that is in it.
    fn has(self, found: &Stat) -> bool {
        match self {
            Self::Kept => true,
            Self::User(user) => found.st_uid == user.uid,
            Self::Group(gid) | Self::Readers(gid) => found.st_gid == gid,
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
            Err(Errno::NOENT) => make(&at, name)?,
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

/// Makes a directory. It is closed to others where the one around it belongs to a group of commands, which it then does too.
fn make(around: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    let found = fstat(around)?;
    let mode = if found.st_gid == 0 { 0o755 } else { 0o750 };
    match mkdirat(around, name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => return open(around, name),
        made => made?,
    }
    let made = open(around, name)?;
    if rustix::process::geteuid().is_root() {
        fchown(&made, None, Some(Gid::from_raw(found.st_gid)))?;
    }
    Ok(made)
}

/// If the daemon is root, commands are another user. Gives the workspace, and what root made in it, to the group of that
/// user, which may read it; other users of the machine may pass through it alone.
///
/// # Errors
/// Why that cannot be done.
pub(crate) fn close_to_others(workspace: &Path, gid: u32) -> Result<(), String> {
    let closed = || -> io::Result<()> {
        let top = openat(CWD, workspace, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&top)?;
        if found.st_gid != gid {
            hand_over(&top, DirOwner::Readers(gid), 0)?;
            fchown(&top, None, Some(Gid::from_raw(gid)))?;
        }
        // Last: it says that all that is in it is closed.
        Ok(fchmod(&top, Mode::from_raw_mode(0o751))?)
    };
    closed().map_err(|error| format!("{} cannot be closed to other users: {error}", workspace.display()))
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
        DirOwner::Readers(gid) => return close(entry, found, gid),
        DirOwner::User(user) => (Some(Uid::from_raw(user.uid)), user.gid),
        DirOwner::Group(gid) => (None, gid),
    };
    chownat(entry, "", uid, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)?;
    if matches!(owner, DirOwner::Group(_)) { share(entry, found) } else { Ok(()) }
}

/// Closes an entry to others, if it is root's or the commands' own. An operator's files with owners of their own stay.
fn close(entry: &OwnedFd, found: &Stat, gid: u32) -> io::Result<()> {
    let is_roots = (found.st_uid, found.st_gid) == (0, 0);
    if FileType::from_raw_mode(found.st_mode) == FileType::Symlink || !(is_roots || found.st_gid == gid) {
        return Ok(());
    }
    chownat(entry, "", None, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)?;
    let mode = found.st_mode & 0o770 | (found.st_mode & 0o500) >> 3;
    Ok(chmod(format!("/proc/self/fd/{}", entry.as_raw_fd()), Mode::from_raw_mode(mode))?)
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
    fn the_workspace_is_closed_to_others_and_open_to_commands() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir_all(path("shared/deep")).unwrap();
        for name in ["shared/deep/file", "of-operator"] {
            std::fs::write(path(name), "x").unwrap();
        }
        std::os::unix::fs::chown(path("of-operator"), Some(1234), Some(1234)).unwrap();
        let facts = |name: &str| {
            let found = std::fs::metadata(path(name)).unwrap();
            let (uid, gid) = (std::os::unix::fs::MetadataExt::uid(&found), std::os::unix::fs::MetadataExt::gid(&found));
            (uid, gid, found.permissions().mode() & 0o7777)
        };
        close_to_others(root.path(), 4321).unwrap();
        assert_eq!(facts(""), (0, 4321, 0o751));
        assert_eq!((facts("shared/deep"), facts("shared/deep/file")), ((0, 4321, 0o750), (0, 4321, 0o640)));
        assert_eq!(facts("of-operator"), (1234, 1234, 0o644));
        let user = User { uid: 4321, gid: 4321 };
        prepare(root.path(), "agents/ada", DirOwner::User(user)).unwrap();
        assert_eq!((facts("agents"), facts("agents/ada")), ((0, 4321, 0o750), (4321, 4321, 0o750)));
    }

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
