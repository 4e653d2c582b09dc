//! The operating system below the workspace: opens directories, and maps its errors to refusals.
//!
//! Each component of a path is opened relative to the one before, and none may be a symbolic link. If a directory is
//! replaced by a link meanwhile, the open handle still refers to the original directory.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use cap_std::fs::{Dir, ReadDir};
use ghost_domain::text::clip;
use ghost_domain::{Refusal, WorkspacePath, refusal};
use ghost_operations::Result;
use rustix::fs::{FileType, Gid, Mode, OFlags, Uid, fchown, fstat};
use rustix::io::Errno;
use serde_json::json;

/// The mode of directories that are created: closed to other users of the machine.
pub(super) const DIR_MODE: u32 = 0o750;

/// Directories of one name that are set aside.
const ASIDE_MAX: u32 = 100;

/// What happens to directories that are missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Refuse,
    /// Created. Each is on the disk before a file in it can be.
    Create,
    /// Created, but a power loss may remove them again.
    CreateUnsynced,
}

/// The parent directory of `path`, and its last component. `None` if a parent is missing and
/// `create` is not set.
pub(super) fn parent_of<'p>(root: &Dir, path: &'p WorkspacePath, create: bool) -> Result<Option<(OwnedFd, &'p str)>> {
    let (parents, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
    Ok(directory(root, parents, create)?.map(|fd| (fd, name)))
}

/// Opens the directory at `path`, whose components must be clean; empty means the root itself.
pub(super) fn directory(root: &Dir, path: &str, create: bool) -> Result<Option<OwnedFd>> {
    match walk(root, path, if create { Missing::Create } else { Missing::Refuse }) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(io_refusal("open", path, &io::Error::from(error))),
    }
}

/// Opens the directory at `path` below `top`, and creates the directories that are missing. They are not synced;
/// [`sync_above`] does that for a file that must last.
pub(super) fn create_unsynced(top: impl AsFd, path: &str) -> Result<OwnedFd> {
    walk(top, path, Missing::CreateUnsynced).map_err(|error| io_refusal("create", path, &io::Error::from(error)))
}

/// Renames the directory at `path`, if there is one: `.1` or a higher number is added to its name.
pub(super) fn set_aside(root: &Dir, path: &str) -> Result<()> {
    let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
    let Some(parent) = directory(root, parents, false)? else { return Ok(()) };
    let mut number = 1_u32;
    loop {
        match rustix::fs::renameat(&parent, name, &parent, format!("{name}.{number}")) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::EXIST | Errno::NOTEMPTY) if number < ASIDE_MAX => number += 1,
            Err(error) => return Err(io_refusal("rename", path, &io::Error::from(error))),
        }
    }
}

/// Syncs the directories above the parent of the file at `path`, so that their entries last as long as the file's.
pub(super) fn sync_above(root: &Dir, path: &WorkspacePath) -> Result<(), Errno> {
    let mut at = open_dir(root, ".")?;
    let (parents, _) = path.as_str().rsplit_once('/').unwrap_or_default();
    for part in parents.split('/').filter(|part| !part.is_empty()) {
        rustix::fs::fsync(&at)?;
        at = open_dir(&at, part)?;
    }
    Ok(())
}

/// Opens a directory below `top` that was found a moment ago. `None` if it was removed or replaced
/// meanwhile. A walk that keeps paths and reopens them needs only one handle, however wide the tree
/// is.
pub(super) fn reopen(top: &Dir, path: &str) -> io::Result<Option<Dir>> {
    match walk(top, path, Missing::Refuse) {
        Ok(fd) => Ok(Some(Dir::from_std_file(fd.into()))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The entries of a directory below `top` that was found a moment ago; see [`reopen`].
pub(super) fn entries(top: &Dir, path: &str) -> io::Result<Option<ReadDir>> {
    reopen(top, path)?.map(|dir| dir.entries()).transpose()
}

/// The path of `name` in the directory at `path`; the empty path is the root.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

fn walk(top: impl AsFd, path: &str, missing: Missing) -> Result<OwnedFd, Errno> {
    // The handle of the workspace cannot be synced.
    let mut at = open_dir(top, ".")?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = match open_dir(&at, part) {
            Err(Errno::NOENT) if missing != Missing::Refuse => make_dir(&at, part, missing == Missing::Create)?,
            next => next?,
        };
    }
    Ok(at)
}

fn open_dir(at: impl AsFd, part: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, part, flags, Mode::empty())
}

fn make_dir(at: &OwnedFd, part: &str, is_synced: bool) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(at, part, Mode::from_raw_mode(DIR_MODE)) {
        Ok(()) => {
            let made = open_dir(at, part)?;
            hand_over(at, &made)?;
            if is_synced {
                // The entry must be as durable as the file in the directory.
                rustix::fs::fsync(at)?;
            }
            Ok(made)
        }
        Err(Errno::EXIST) => open_dir(at, part),
        Err(error) => Err(error),
    }
}

/// Gives what root has made in a directory to the directory's owner and group. If ghostd is root, commands are another user,
/// who must be able to change what the tools of files made in a directory of that user, and to read the rest.
pub(super) fn hand_over(parent: impl AsFd, made: impl AsFd) -> Result<(), Errno> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (parent, found) = (fstat(parent)?, fstat(&made)?);
    // Somebody else may have put another entry there. It is not root's, or has a name elsewhere.
    let is_dir = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    let is_roots = (parent.st_uid, parent.st_gid) == (0, 0);
    if is_roots || found.st_uid != 0 || !(is_dir || found.st_nlink == 1) {
        return Ok(());
    }
    fchown(made, Some(Uid::from_raw(parent.st_uid)), Some(Gid::from_raw(parent.st_gid)))
}

/// The detail of a refusal that names the resource that the system has run out of.
const OUT_OF: &str = "out_of";

/// Whether a write failed because the system had no room for it: space, quota or file descriptors. That passes, and
/// is nothing that the model which asked for the write could change.
pub fn is_out_of_room(refusal: &Refusal) -> bool {
    refusal.details.as_ref().is_some_and(|details| details.get(OUT_OF).is_some())
}

/// The refusal for `error`, which occurred while doing `doing` (for example "read") to `path`.
pub(crate) fn io_refusal(doing: &str, path: &str, error: &io::Error) -> Refusal {
    let shown = clip(if path.is_empty() { "." } else { path }, 120);
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match (error.kind(), errno) {
        (io::ErrorKind::NotFound, _) => {
            refusal!(NotFound, "there is no `{shown}`").hint("workspace.list shows what there is")
        }
        (_, Some(Errno::NOTDIR | Errno::LOOP | Errno::MLINK)) => in_the_way(path, "a file or a symbolic link"),
        (_, Some(Errno::ISDIR)) => in_the_way(path, "a directory"),
        // The capability handle returns this for a link that leads out of the root.
        (io::ErrorKind::PermissionDenied, None) => {
            refusal!(PathDenied, "cannot {doing} `{shown}`: it leads out of the workspace")
                .hint("give a path inside the workspace that passes no symbolic link")
        }
        (io::ErrorKind::PermissionDenied, Some(_)) => {
            refusal!(PathDenied, "cannot {doing} `{shown}`: the system denies access to it")
                .hint("choose another path, or ask an operator to check the permissions of the data directory")
        }
        (_, Some(Errno::XDEV)) => in_the_way(path, "another file system"),
        (_, Some(Errno::NOSPC | Errno::DQUOT)) => refusal!(Unavailable, "cannot {doing} `{shown}`: the disk is full")
            .hint("nothing was changed; an operator must free some space first")
            .details(json!({ OUT_OF: "space" })),
        (_, Some(Errno::FBIG)) => {
            refusal!(TooLarge, "cannot {doing} `{shown}`: the file would be larger than the system allows")
                .hint("nothing was changed; write a smaller file")
        }
        (_, Some(Errno::ROFS)) => refusal!(Unavailable, "cannot {doing} `{shown}`: the disk is read-only")
            .hint("nothing was changed; an operator must make the data directory writable"),
        (_, Some(Errno::MFILE | Errno::NFILE)) => {
            refusal!(Unavailable, "cannot {doing} `{shown}`: the daemon has too many files open")
                .hint("try again in a moment; an operator can raise the limit of open files (`ulimit -n`) of ghostd")
                .details(json!({ OUT_OF: "descriptors" }))
        }
        (_, Some(Errno::NAMETOOLONG)) => {
            refusal!(PathDenied, "cannot {doing} `{shown}`: the name is too long").hint("choose a shorter name")
        }
        _ => refusal!(Unavailable, "cannot {doing} `{shown}`: {error}")
            .hint("nothing was changed; try again, or tell an operator"),
    }
}

/// The refusal for a path at which something of the wrong type is found.
pub(super) fn in_the_way(path: &str, what: &str) -> Refusal {
    refusal!(PathDenied, "`{}` cannot be used: {what} is in the way", clip(path, 120))
        .hint("choose another path; writes pass directories only and replace regular files only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_by_itself_is_no_affair_of_the_model() {
        let refusal = |errno: Errno| io_refusal("write", "a.md", &io::Error::from_raw_os_error(errno.raw_os_error()));
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE] {
            assert!(is_out_of_room(&refusal(errno)), "{errno:?}");
        }
        for errno in [Errno::FBIG, Errno::ROFS, Errno::ACCESS, Errno::NOENT, Errno::IO] {
            assert!(!is_out_of_room(&refusal(errno)), "{errno:?}");
        }
        assert!(refusal(Errno::MFILE).hint.is_some_and(|hint| hint.contains("ulimit -n")));
    }
}
