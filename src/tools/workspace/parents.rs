//! The way to a file that is to be written: one component after the other, each opened relative to the one before and
//! none of them a symbolic link. Whoever swaps a directory for a link meanwhile changes nothing: the handle that is
//! held stays the directory that it was.

use std::io;
use std::os::fd::OwnedFd;

use cap_std::fs::Dir;
use ghost_domain::Refusal;
use ghost_domain::write_acl::WorkspacePath;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::faults::io_refusal;

/// Mode of directories that are created.
const DIR_MODE: u32 = 0o755;

/// The directory of `path`'s last component, and that component. `None` if a parent is missing and `create` is not set.
pub(super) fn parent_of<'p>(
    root: &Dir,
    path: &'p WorkspacePath,
    create: bool,
) -> Result<Option<(OwnedFd, &'p str)>, Refusal> {
    let (parents, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
    Ok(directory(root, parents, create)?.map(|fd| (fd, name)))
}

/// The directory at `path` (clean components, or empty for the root itself).
pub(super) fn directory(root: &Dir, path: &str, create: bool) -> Result<Option<OwnedFd>, Refusal> {
    let refusal = |error: Errno| io_refusal("open", path, &io::Error::from(error));
    let mut at = open_dir(root, ".").map_err(refusal)?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = match open_dir(&at, part) {
            Ok(next) => next,
            Err(Errno::NOENT) if create => make_dir(&at, part).map_err(refusal)?,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(refusal(error)),
        };
    }
    Ok(Some(at))
}

fn open_dir(at: impl std::os::fd::AsFd, part: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, part, flags, Mode::empty())
}

fn make_dir(at: &OwnedFd, part: &str) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(at, part, Mode::from_raw_mode(DIR_MODE)) {
        // The entry must be as durable as the file that will be in it.
        Ok(()) => rustix::fs::fsync(at)?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    open_dir(at, part)
}
