//! Prepares the directories that a command may write to: they exist, and belong to the user of commands, who can reach
//! them.
//!
//! It must never follow a symbolic link: a command of another agent may put one in the way at any moment.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};

use ghost_domain::{Code, Refusal};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

/// The user that commands have if the daemon is root: "nobody".
pub(crate) const NOBODY: u32 = 65_534;
/// Deepest directory that is handed over.
const DEPTH_MAX: u32 = 64;

fn open(parent: impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    openat(parent, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Which directory it is, whatever its name: the numbers of its file system and of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Opens `dir` below `root`, and creates what is missing of it. `user`, if given, becomes the owner of it and of all that
/// is in it, unless it is already.
///
/// # Errors
/// `Unavailable` if something else, such as a link, stands in the way.
pub(crate) fn prepare(root: &Path, dir: &str, user: Option<u32>) -> Result<Identity, Refusal> {
    try_prepare(root, Path::new(dir.trim_end_matches('/')), user).map_err(|error| {
        Refusal::new(Code::Unavailable, format!("the directory `{dir}` cannot be prepared for the command: {error}"))
            .hint("remove what stands in its place")
    })
}

fn try_prepare(root: &Path, dir: &Path, user: Option<u32>) -> io::Result<Identity> {
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
    if let Some(user) = user.filter(|user| found.st_uid != *user) {
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
        hand_over(&at, uid, gid, 0)?;
        rustix::fs::fchown(&at, Some(uid), Some(gid))?;
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

fn hand_over(dir: &OwnedFd, uid: Uid, gid: Gid, depth: u32) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Ok(());
    }
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let found = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if is_dir {
            let inner = openat(dir, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
            hand_over(&inner, uid, gid, depth + 1)?;
        }
        // A file with several names may have one elsewhere.
        if is_dir || found.st_nlink == 1 {
            chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
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
        let first = prepare(root.path(), "a/b/c", None).unwrap();
        assert_eq!(first, prepare(root.path(), "a/b/c/", None).unwrap());
        assert!(root.path().join("a/b/c").is_dir());
        std::os::unix::fs::symlink(outside.path(), root.path().join("a/link")).unwrap();
        assert!(prepare(root.path(), "a/link/new", None).is_err());
        assert!(prepare(root.path(), "../new", None).is_err());
        assert!(!outside.path().join("new").exists());
    }
}
