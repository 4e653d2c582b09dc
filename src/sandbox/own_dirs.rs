//! Prepares the directories that a command may write to: they exist, and belong to the user of commands.
//!
//! It must never follow a symbolic link: a command of another agent may put one in the way at any moment.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

/// Deepest directory that is handed over.
const DEPTH_MAX: u32 = 64;

fn open(parent: impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    openat(parent, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Opens `dir` below `root`, and creates what is missing of it. `user`, if given, becomes the owner of it and of all that
/// is in it, unless it is already.
pub(crate) fn prepare(root: &Path, dir: &Path, user: Option<u32>) -> io::Result<()> {
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
    match user {
        Some(user) if fstat(&at)?.st_uid != user => {
            let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
            hand_over(&at, uid, gid, 0)?;
            rustix::fs::fchown(&at, Some(uid), Some(gid))?;
            Ok(())
        }
        _ => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_way_is_an_error_and_missing_directories_are_created() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        prepare(root.path(), Path::new("a/b/c"), None).unwrap();
        assert!(root.path().join("a/b/c").is_dir());
        std::os::unix::fs::symlink(outside.path(), root.path().join("a/link")).unwrap();
        assert!(prepare(root.path(), Path::new("a/link/new"), None).is_err());
        assert!(prepare(root.path(), Path::new("../new"), None).is_err());
        assert!(!outside.path().join("new").exists());
    }
}
