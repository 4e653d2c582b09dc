//! Files: opening the listed paths, the mounts of a command, its Landlock ruleset; and where a set-up can fail. No path is looked
//! up twice: descriptors carry what was found.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, c_int};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::frame::{Exec, Network, Refusal, Refused, access, flag};
use super::kernel::*;

macro_rules! steps {
    ($($step:ident),* $(,)?) => {
        /// Where a set-up failed. The forked child reports it as one byte, because it must not allocate.
        #[derive(Clone, Copy, Debug)]
        #[repr(u8)]
        pub enum Step { $($step),* }
        impl Step {
            pub const ALL: &[Step] = &[$(Step::$step),*];
        }
    };
}
steps! {
    Streams, Map, Path, Mount, Root, Proc, Loopback, Tunnel, Landlock, Seccomp, Limits, Identity, Capabilities, Directory,
    Program,
}

pub struct Failed(pub Step, pub Errno, pub String);

impl Failed {
    pub fn refusal(&self) -> Refusal {
        let Failed(step, errno, what) = self;
        let code = if matches!(step, Step::Program) { Refused::Program } else { Refused::SetUp };
        let step = format!("{step:?}").to_lowercase();
        Refusal(code, format!("{step} {what}: {}", io::Error::from_raw_os_error(*errno)))
    }
}

/// For `map_err`: the step with no more to say.
pub fn at(step: Step) -> impl Fn(Errno) -> Failed {
    move |errno| Failed(step, errno, String::new())
}

/// A listed path, and what was found there.
pub struct Place<'e> {
    access: u8,
    path: &'e CStr,
    found: OwnedFd,
}

/// Opens all listed paths, once: mounts and rules are made of what was found.
pub fn open_places(exec: &Exec) -> Result<Vec<Place<'_>>, Failed> {
    let mut places = Vec::with_capacity(exec.paths.len());
    for (access, path) in &exec.paths {
        if let Some(found) = open_place(*access, path)? {
            places.push(Place { access: *access, path, found });
        }
    }
    Ok(places)
}

/// Opens a listed path as a place in the file system. Unless the request says so no symbolic link is followed: a folder
/// that another agent may write could have been swapped for a link since the daemon checked it.
fn open_place(access: u8, path: &CStr) -> Result<Option<OwnedFd>, Failed> {
    let resolve: u64 = if access & access::FOLLOW != 0 { 0 } else { 4 }; // RESOLVE_NO_SYMLINKS
    let how = [(O_CLOEXEC | O_PATH) as u64, 0, resolve];
    match sys!(nr::OPENAT2, -100i32, path.as_ptr(), address(&how), 24) {
        Ok(fd) => Ok(Some(owned(fd as c_int))),
        Err(ENOENT | ENOTDIR) if access & access::OPTIONAL != 0 => Ok(None),
        Err(errno) => Err(Failed(Step::Path, errno, path.to_string_lossy().into_owned())),
    }
}

pub fn is_folder(place: &OwnedFd) -> bool {
    place.try_clone().and_then(|place| fs::File::from(place).metadata()).is_ok_and(|data| data.is_dir())
}

/// What the new root has at a path.
struct Held<'p> {
    access: u8,
    /// `None`: a file system in memory.
    source: Option<&'p OwnedFd>,
}

/// Inside fresh namespaces: a root in memory that holds the listed places alone, read-only but the writable ones, and a
/// `/proc` that shows this command alone. What is not listed does not exist.
pub fn arrange_mounts(exec: &Exec, places: &mut [Place]) -> Result<(), Failed> {
    let mut held = BTreeMap::new();
    for Place { access, path, found } in &*places {
        let place = held.entry(*path).or_insert(Held { access: 0, source: None });
        (place.access, place.source) = (place.access | access, Some(found));
    }
    for path in [c"/tmp", c"/dev/shm"].into_iter().filter(|_| exec.has(flag::PRIVATE_TMP)) {
        held.insert(path, Held { access: access::WRITE, source: None });
    }
    // The kernel gives a namespace a `/proc` of its own only while it sees a whole one.
    let proc = new_mount(c"proc", &[], 2 | 4 | 8).map_err(at(Step::Proc))?;
    let root = new_mount(c"tmpfs", &[(c"mode", c"755"), (c"size", c"1m"), (c"nr_inodes", c"4096")], 2 | 4);
    let root = root.map_err(at(Step::Mount))?;
    // Onto the present root, which it then takes the place of.
    sys!(nr::MOVE_MOUNT, root.as_raw_fd(), c"".as_ptr(), -100i32, c"/".as_ptr(), MOVE).map_err(at(Step::Mount))?;
    mount_in(&root, c"/proc", &proc, true).map_err(at(Step::Proc))?;
    let devices = folder_in(&root, b"dev").map_err(at(Step::Mount))?;
    let links = [c"/proc/self/fd", c"/proc/self/fd/0", c"/proc/self/fd/1", c"/proc/self/fd/2"];
    for (name, target) in [c"fd", c"stdin", c"stdout", c"stderr"].into_iter().zip(links) {
        sys!(nr::SYMLINKAT, target.as_ptr(), devices.as_raw_fd(), name.as_ptr()).map_err(at(Step::Mount))?;
    }
    let bytes = if exec.tmp_bytes == 0 { 64 << 20 } else { exec.tmp_bytes };
    let text = |number: u64| CString::new(number.to_string()).unwrap_or_default();
    let (size, entries) = (text(bytes), text((bytes / 1024).clamp(1024, 1 << 20)));
    let private = [(c"mode", c"1777"), (c"size", size.as_c_str()), (c"nr_inodes", entries.as_c_str())];
    for (path, place) in &held {
        let failed = |errno| Failed(Step::Mount, errno, path.to_string_lossy().into_owned());
        let writable = place.access & access::WRITE != 0;
        // Of outer places, which come first, the nearest one.
        let around = held.range::<&CStr, _>(..path).rev().find(|(outer, _)| is_below(path, outer));
        let has_it =
            |(_, outer): (&&CStr, &Held)| outer.source.is_some() && (outer.access & access::WRITE != 0) == writable;
        if path.to_bytes() == b"/proc" || (place.source.is_some() && around.is_some_and(has_it)) {
            continue;
        }
        let Some(source) = place.source else {
            let memory = new_mount(c"tmpfs", &private, 2 | 4).map_err(failed)?;
            mount_in(&root, path, &memory, true).map_err(failed)?;
            continue;
        };
        if place.access & access::FOLLOW != 0 && linked_in(&root, path, &held) {
            continue;
        }
        // OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH
        let tree = sys!(nr::OPEN_TREE, source.as_raw_fd(), c"".as_ptr(), 1 | O_CLOEXEC | 0x8000 | 0x1000);
        let tree = owned(tree.map_err(failed)? as c_int);
        // MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, and no propagation back (MS_PRIVATE).
        let attributes = [if writable { 2u64 } else { 3 }, 0, 1 << 18, 0];
        sys!(nr::MOUNT_SETATTR, tree.as_raw_fd(), c"".as_ptr(), 0x9000, address(&attributes), 32).map_err(failed)?;
        mount_in(&root, path, &tree, is_folder(source)).map_err(failed)?;
    }
    let read_only = [3u64, 0, 0, 0];
    sys!(nr::MOUNT_SETATTR, root.as_raw_fd(), c"".as_ptr(), 0x1000, address(&read_only), 32)
        .map_err(at(Step::Mount))?;
    sys!(nr::FCHDIR, root.as_raw_fd()).map_err(at(Step::Mount))?;
    // With one directory for both, the old root lies upon the new one, and goes.
    sys!(nr::PIVOT_ROOT, c".".as_ptr(), c".".as_ptr()).map_err(at(Step::Root))?;
    sys!(nr::UMOUNT2, c".".as_ptr(), 2).map_err(at(Step::Root))?; // MNT_DETACH
    libc!(chdir(c"/".as_ptr())).map_err(at(Step::Root))?;
    // What is new in this root is not what was found at its path.
    let private = |path: &CStr| exec.has(flag::PRIVATE_TMP) && [c"/tmp", c"/dev/shm"].contains(&path);
    for place in places.iter_mut().filter(|place| place.path.to_bytes().starts_with(b"/proc") || private(place.path)) {
        if let Some(found) = open_place(place.access, place.path)? {
            place.found = found;
        }
    }
    Ok(())
}

/// MOVE_MOUNT_F_EMPTY_PATH: what is moved is named by its descriptor.
const MOVE: i32 = 4;

/// A new file system, mounted nowhere yet. `attributes` are MOUNT_ATTR_NOSUID (2), NODEV (4) and NOEXEC (8).
fn new_mount(kind: &CStr, options: &[(&CStr, &CStr)], attributes: u32) -> Result<OwnedFd, Errno> {
    let context = owned(sys!(nr::FSOPEN, kind.as_ptr(), 1)? as c_int);
    for (key, value) in options {
        sys!(nr::FSCONFIG, context.as_raw_fd(), 1, key.as_ptr(), value.as_ptr(), 0)?;
    }
    sys!(nr::FSCONFIG, context.as_raw_fd(), 6, 0, 0, 0)?; // create
    sys!(nr::FSMOUNT, context.as_raw_fd(), 1, attributes).map(|mount| owned(mount as c_int))
}

/// Opens a directory of the new root, and makes what is missing of the way to it. It leads through no link: where it passes
/// through a place, it stays in what was opened there.
fn folder_in(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    let mut at = duplicate(root.as_raw_fd(), 3)?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let name = CString::new(name).map_err(|_| ENOENT)?;
        let mut next = sys!(nr::OPENAT, at.as_raw_fd(), name.as_ptr(), flags, 0);
        if next == Err(ENOENT) {
            sys!(nr::MKDIRAT, at.as_raw_fd(), name.as_ptr(), 0o755)?;
            next = sys!(nr::OPENAT, at.as_raw_fd(), name.as_ptr(), flags, 0);
        }
        at = owned(next? as c_int);
    }
    Ok(at)
}

/// Mounts `tree` at a path of the new root.
fn mount_in(root: &OwnedFd, path: &CStr, tree: &OwnedFd, folder: bool) -> Result<(), Errno> {
    let path = path.to_bytes();
    let place = if folder {
        folder_in(root, path)?
    } else {
        let at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let (above, name) = (folder_in(root, &path[..at])?, CString::new(&path[at..]).map_err(|_| ENOENT)?);
        match sys!(nr::MKNODAT, above.as_raw_fd(), name.as_ptr(), 0o100_444, 0) {
            Ok(_) | Err(EEXIST) => {}
            Err(errno) => return Err(errno),
        }
        owned(sys!(nr::OPENAT, above.as_raw_fd(), name.as_ptr(), O_PATH | O_NOFOLLOW | O_CLOEXEC, 0)? as c_int)
    };
    // And MOVE_MOUNT_T_EMPTY_PATH: descriptor to descriptor, so no name is looked up again.
    sys!(nr::MOVE_MOUNT, tree.as_raw_fd(), c"".as_ptr(), place.as_raw_fd(), c"".as_ptr(), MOVE | 0x40).map(drop)
}

/// Whether the path is a link at the top (`/bin`) to a place that the command has anyhow. Then the new root has the link.
fn linked_in(root: &OwnedFd, path: &CStr, held: &BTreeMap<&CStr, Held>) -> bool {
    let Some(name) = path.to_bytes_with_nul().strip_prefix(b"/").filter(|name| !name.contains(&b'/')) else {
        return false;
    };
    let Ok(target) = fs::read_link(OsStr::from_bytes(path.to_bytes())) else { return false };
    let whole = Path::new("/").join(&target);
    let plain = !whole.components().any(|part| part == std::path::Component::ParentDir);
    let has_it = |other: &&CStr| whole.starts_with(OsStr::from_bytes(other.to_bytes())) && **other != *path;
    let Ok(target) = CString::new(target.as_os_str().as_bytes()) else { return false };
    plain && held.keys().any(has_it) && sys!(nr::SYMLINKAT, target.as_ptr(), root.as_raw_fd(), name.as_ptr()).is_ok()
}

fn is_below(path: &CStr, outer: &CStr) -> bool {
    path.to_bytes().strip_prefix(outer.to_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

/// The Landlock ruleset of one command, with the rights of this kernel's version. `None` where there is no Landlock.
pub fn ruleset(exec: &Exec, places: &[Place], version: u32) -> Result<Option<OwnedFd>, Failed> {
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
    for Place { access, path, found } in places {
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
        if !is_folder(found) {
            rights &= 1 | 1 << 1 | 1 << 2 | 1 << 14;
        }
        let rights = (rights & handled).to_le_bytes();
        let mut rule = [0u8; 12];
        rule[..8].copy_from_slice(&rights);
        rule[8..].copy_from_slice(&found.as_raw_fd().to_le_bytes());
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
