//! Files: opening the listed paths, the mounts of a command, its Landlock ruleset.
//!
//! A path must never be looked up twice: descriptors carry what was found.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::failure::{Failed, Step, at};
use super::kernel::*;
use super::numbers::nr;
use super::request::{Exec, Network, access, flag};

/// Opens a listed path as a place in the file system. Unless the request says so no symbolic link is followed: a folder
/// that another agent may write could have been swapped for a link since the daemon checked it.
pub fn open_place(access: u8, path: &CStr) -> Result<Option<OwnedFd>, Failed> {
    let resolve: u64 = if access & access::FOLLOW != 0 { 0 } else { 4 }; // RESOLVE_NO_SYMLINKS
    let how = [(O_CLOEXEC | 0o10_000_000) as u64, 0, resolve]; // O_PATH
    match sys!(nr::OPENAT2, -100i32, path.as_ptr(), address(&how), 24) {
        Ok(fd) => Ok(Some(owned(fd as c_int))),
        Err(ENOENT | ENOTDIR) if access & access::OPTIONAL != 0 => Ok(None),
        Err(errno) => Err(Failed(Step::Path, errno, path.to_string_lossy().into_owned())),
    }
}

pub fn is_folder(place: &OwnedFd) -> bool {
    place.try_clone().and_then(|place| fs::File::from(place).metadata()).is_ok_and(|data| data.is_dir())
}

/// Inside fresh namespaces: everything read-only but the listed places, a private `/tmp`, and a `/proc` that shows this
/// command alone.
pub fn arrange_mounts(exec: &Exec) -> Result<(), Failed> {
    let mount_at = |kind: &CStr, at: &CStr, data: &str| {
        let data = CString::new(data).unwrap_or_default();
        libc!(mount(
            kind.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            2 | 4 | (8 * u64::from(kind != c"tmpfs")),
            data.as_ptr()
        ))
    };
    let private = exec.has(flag::PRIVATE_TMP);
    let hidden = |path: &CStr| {
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        private && ["/tmp", "/dev/shm"].iter().any(|top| path.starts_with(top) && path != Path::new(top))
    };
    let mut kept = Vec::new();
    for (access, path) in &exec.paths {
        let writable = access & access::WRITE != 0;
        let replaced = private && matches!(path.to_bytes(), b"/tmp" | b"/dev/shm");
        if (!writable && !hidden(path)) || replaced || path.to_bytes() == b"/" {
            continue;
        }
        let Some(place) = open_place(*access, path)? else { continue };
        let failed = |errno| Failed(Step::Mount, errno, path.to_string_lossy().into_owned());
        // OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH
        let tree = sys!(nr::OPEN_TREE, place.as_raw_fd(), c"".as_ptr(), 1 | O_CLOEXEC | 0x8000 | 0x1000);
        let tree = owned(tree.map_err(failed)? as c_int);
        if !writable {
            let read_only = [1u64 | 2, 0, 0, 0];
            sys!(nr::MOUNT_SETATTR, tree.as_raw_fd(), c"".as_ptr(), 0x9000, address(&read_only), 32).map_err(failed)?;
        }
        kept.push((is_folder(&place), path, tree, place));
    }
    // MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID on everything, and no propagation back (MS_PRIVATE).
    let all = exec.paths.iter().any(|(access, path)| access & access::WRITE != 0 && path.to_bytes() == b"/");
    let read_only = [if all { 2u64 } else { 3 }, 0, 1 << 18, 0];
    sys!(nr::MOUNT_SETATTR, -100i32, c"/".as_ptr(), 0x8000, address(&read_only), 32).map_err(at(Step::Mount))?;
    if private {
        let bytes = if exec.tmp_bytes == 0 { 64 << 20 } else { exec.tmp_bytes };
        let options = format!("mode=1777,size={bytes},nr_inodes={}", (bytes / 1024).clamp(1024, 1 << 20));
        mount_at(c"tmpfs", c"/tmp", &options).map_err(at(Step::Mount))?;
        match mount_at(c"tmpfs", c"/dev/shm", &options) {
            Ok(_) | Err(ENOENT) => {}
            Err(errno) => return Err(Failed(Step::Mount, errno, "/dev/shm".into())),
        }
    }
    for (folder, path, tree, place) in kept {
        let failed = |errno| Failed(Step::Mount, errno, path.to_string_lossy().into_owned());
        let system = |error: io::Error| failed(error.raw_os_error().unwrap_or(0));
        let place = if hidden(path) {
            let name = Path::new(OsStr::from_bytes(path.to_bytes()));
            let parent = if folder { name } else { name.parent().unwrap_or(name) };
            fs::create_dir_all(parent).map_err(system)?;
            if !folder && !name.exists() {
                fs::write(name, "").map_err(system)?;
            }
            open_place(0, path)?.ok_or_else(|| failed(ENOENT))?
        } else {
            place
        };
        // MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH: descriptor to descriptor, so no name is looked up again.
        sys!(nr::MOVE_MOUNT, tree.as_raw_fd(), c"".as_ptr(), place.as_raw_fd(), c"".as_ptr(), 0x44).map_err(failed)?;
    }
    mount_at(c"proc", c"/proc", "").map_err(at(Step::Proc)).map(drop)
}

/// The Landlock ruleset of one command, with the rights of this kernel's version. `None` where there is no Landlock.
pub fn ruleset(exec: &Exec, version: u32) -> Result<Option<OwnedFd>, Failed> {
    if version == 0 {
        return Ok(None);
    }
    let handled: u64 =
        (1 << match version {
            1 => 13,
            2 => 14,
            3 | 4 => 15,
            _ => 16,
        }) - 1;
    let ports: u64 = if version >= 4 && matches!(exec.network, Network::None | Network::Ports) { 3 } else { 0 };
    let scoped: u64 = if version >= 6 { 3 } else { 0 }; // abstract Unix sockets, signals
    let attributes = [handled, ports, scoped];
    let size = match version {
        1..=3 => 8,
        4 | 5 => 16,
        _ => 24,
    };
    let set = sys!(nr::LANDLOCK_CREATE_RULESET, address(&attributes), size, 0).map_err(at(Step::Landlock))?;
    let set = owned(set as c_int);
    for (access, path) in &exec.paths {
        let Some(place) = open_place(*access, path)? else { continue };
        let mut rights: u64 = 0;
        if access & access::READ != 0 {
            rights |= 1 << 2 | 1 << 3; // READ_FILE, READ_DIR
        }
        if access & access::EXECUTE != 0 {
            rights |= 1;
        }
        if access & access::WRITE != 0 {
            // WRITE_FILE, REMOVE_*, MAKE_{DIR,REG,FIFO,SYM}, REFER, TRUNCATE; no devices, and sockets by flag alone.
            rights |= 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14;
            rights |= u64::from(exec.has(flag::UNIX)) << 9;
        }
        if !is_folder(&place) {
            rights &= 1 | 1 << 1 | 1 << 2 | 1 << 14;
        }
        let rights = (rights & handled).to_le_bytes();
        let mut rule = [0u8; 12];
        rule[..8].copy_from_slice(&rights);
        rule[8..].copy_from_slice(&place.as_raw_fd().to_le_bytes());
        sys!(nr::LANDLOCK_ADD_RULE, set.as_raw_fd(), 1, rule.as_ptr(), 0)
            .map_err(|errno| Failed(Step::Landlock, errno, path.to_string_lossy().into_owned()))?;
    }
    for (right, list) in [(1u64, &exec.bind), (2, &exec.connect)] {
        for port in list.iter().filter(|_| ports != 0) {
            let rule = [right, u64::from(*port)];
            sys!(nr::LANDLOCK_ADD_RULE, set.as_raw_fd(), 2, address(&rule), 0).map_err(at(Step::Landlock))?;
        }
    }
    Ok(Some(set))
}
