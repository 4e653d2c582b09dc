//! What a command occupies on disk: the bytes and the entries of its writable places. A walk does not go by a path, which may
//! become longer than the kernel takes or lead elsewhere meanwhile, but from one directory's handle to the next; and it
//! holds few descriptors, however deep a tree is.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_int};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use super::frame::{Exec, access};
use super::kernel::*;

/// Directories below a writable place that are more than this many levels down are too deep: programs that go by paths
/// cannot reach what is in them.
pub const DEPTH_MAX: usize = 128;
/// Entries of all writable places that one walk looks at. The rest is not measured.
pub const ENTRIES_MAX: u64 = 250_000;
/// Bytes of `disk` for each entry that a command may add, as file systems reckon, and the entries that are always allowed.
const BYTES_PER_ENTRY: u64 = 16 * 1024;
const ENTRIES_LEAST: u64 = 1_024;

/// Which file it is, whatever its name.
type Identity = (u64, u64);

/// What was found in the writable places of a command.
#[derive(Default)]
pub struct Occupied {
    pub bytes: u64,
    pub entries: u64,
    /// The directories at which trees become too deep, and others' that the command may write to and not read.
    pub noted: HashSet<Identity>,
    /// There is such a closed directory that was not there before: what goes into it cannot be counted.
    pub hidden: bool,
    /// The uppermost directory in a writable place with a tree that is too deep, unless that was known; or with the last
    /// entry that was looked at.
    pub found: Option<String>,
}

impl Occupied {
    /// Whether a command has added more to what there was than it may.
    pub fn exceeds(&self, base: &Occupied, disk: u64) -> bool {
        disk > 0
            && (self.hidden
                || self.bytes > base.bytes.saturating_add(disk)
                || self.entries > base.entries.saturating_add((disk / BYTES_PER_ENTRY).max(ENTRIES_LEAST)))
    }

    /// Whether there is more than one walk looks at.
    pub fn is_cut(&self) -> bool {
        self.entries >= ENTRIES_MAX
    }
}

/// What one entry is. `statx`, because its layout is the same on every machine.
struct Entry {
    links: u32,
    uid: u32,
    mode: u32,
    identity: Identity,
    blocks: u64,
}

impl Entry {
    fn at(folder: &OwnedFd, name: &CStr) -> Result<Entry, Errno> {
        let mut data = [0u64; 32];
        let flags = 0x100 | if name.is_empty() { 0x1000 } else { 0 }; // AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH
        sys!(nr::STATX, folder.as_raw_fd(), name.as_ptr(), flags, 0x7FF, data.as_mut_ptr())?;
        Ok(Entry {
            links: data[2] as u32,
            uid: (data[2] >> 32) as u32,
            mode: (data[3] >> 32) as u32 & 0xFFFF,
            identity: (data[17], data[4]),
            blocks: data[6],
        })
    }

    fn is(&self, kind: u32) -> bool {
        self.mode & 0o170_000 == kind
    }
}

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

fn open_at(folder: &OwnedFd, name: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    // O_NOFOLLOW, O_NONBLOCK: a pipe must not stop the walk.
    sys!(nr::OPENAT, folder.as_raw_fd(), name.as_ptr(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0)
        .map(|fd| owned(fd as c_int))
}

/// Changes the mode of the very file that was looked at, if it is our user's own.
fn change_mode(folder: &OwnedFd, name: &CStr, entry: &Entry, mode: u32) {
    let Ok(pinned) = open_at(folder, name, O_PATH) else { return };
    if Entry::at(&pinned, c"").is_ok_and(|now| now.identity == entry.identity) {
        let path = format!("/proc/self/fd/{}", pinned.as_raw_fd());
        // If that fails the file is another user's, or gone.
        let _ = fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode));
    }
}

/// The names in a directory.
fn names(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let (mut names, mut buffer) = (Vec::new(), vec![0u8; 32 * 1024]);
    loop {
        let count = sys!(nr::GETDENTS64, folder.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())?;
        let mut rest = &buffer[..count];
        while let Some(length) = rest.get(16..18).map(|size| usize::from(u16::from_le_bytes([size[0], size[1]]))) {
            let name = rest.get(19..length).and_then(|name| CStr::from_bytes_until_nul(name).ok());
            names.extend(name.filter(|name| *name != c"." && *name != c"..").map(CStr::to_owned));
            rest = rest.get(length..).unwrap_or(&[]);
        }
        if count == 0 || names.len() as u64 > ENTRIES_MAX {
            return Ok(names);
        }
    }
}

/// A directory on the way down, and those in it that are still to come.
struct Level {
    name: CString,
    identity: Identity,
    left: Vec<CString>,
}

/// One walk over all writable places of a command.
struct Walk<'w> {
    found: Occupied,
    known: &'w HashSet<Identity>,
    linked: HashSet<Identity>,
    own: u32,
    /// Takes the bits from files that would let others run them as our user.
    strips: bool,
    place: &'w CStr,
}

impl Walk<'_> {
    fn add(&mut self, entry: &Entry) {
        // A file with several names counts once. A name costs something too.
        if entry.links == 1 || entry.is(FOLDER) || self.linked.insert(entry.identity) {
            self.found.bytes += entry.blocks * 512 + 512;
        }
        self.found.entries += 1;
    }

    /// Counts the entries of a directory. Returns the directories among them.
    fn folders_in(&mut self, folder: &OwnedFd, device: u64) -> Vec<CString> {
        let mut folders = Vec::new();
        for name in names(folder).unwrap_or_default() {
            if self.found.entries >= ENTRIES_MAX {
                break;
            }
            // What is gone meanwhile, or in somebody else's closed directory, is not the command's.
            let Ok(entry) = Entry::at(folder, &name) else { continue };
            if entry.identity.0 != device {
                continue;
            }
            self.add(&entry);
            if entry.is(FOLDER) {
                if entry.uid == self.own && entry.mode & 0o700 != 0o700 {
                    // What its owner closed to itself could hide anything.
                    change_mode(folder, &name, &entry, entry.mode & 0o1777 | 0o700);
                }
                folders.push(name);
            } else if self.strips && entry.is(FILE) && entry.mode & 0o6000 != 0 && entry.uid == self.own {
                change_mode(folder, &name, &entry, entry.mode & 0o1777);
            }
        }
        folders
    }

    fn note(&mut self, levels: &[Level]) {
        if self.found.found.is_some() {
            return;
        }
        let place = self.place.to_string_lossy();
        let top = levels.get(1).map_or("".into(), |level| level.name.to_string_lossy());
        self.found.found = Some(format!("{}/{top}", place.trim_end_matches('/')));
    }

    /// Somebody else's directory that cannot be read. If the command may make entries in it, it could hide what it writes.
    fn note_closed(&mut self, folder: &OwnedFd, name: &CStr) {
        // W_OK | X_OK, and AT_EACCESS: by the effective identity, as the command's calls are judged.
        let may_add = sys!(nr::FACCESSAT2, folder.as_raw_fd(), name.as_ptr(), 3, 0x200).is_ok();
        if let (true, Ok(entry)) = (may_add, Entry::at(folder, name)) {
            self.found.noted.insert(entry.identity);
            self.found.hidden |= !self.known.contains(&entry.identity);
        }
    }

    fn place(&mut self, top: OwnedFd) {
        let Ok(entry) = Entry::at(&top, c"") else { return };
        self.add(&entry);
        if !entry.is(FOLDER) {
            return;
        }
        let device = entry.identity.0;
        let Ok(mut at) = open_at(&top, c".", O_DIRECTORY) else { return };
        let left = self.folders_in(&at, device);
        let mut levels = vec![Level { name: CString::default(), identity: entry.identity, left }];
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.left.pop() {
                let inner = match open_at(&at, &name, O_DIRECTORY) {
                    Ok(inner) => inner,
                    Err(EACCES) => {
                        self.note_closed(&at, &name);
                        continue;
                    }
                    Err(_) => continue, // gone meanwhile, or replaced
                };
                let Ok(identity) = Entry::at(&inner, c"").map(|entry| entry.identity) else { continue };
                if identity.0 != device {
                    continue;
                }
                let left = self.folders_in(&inner, device);
                levels.push(Level { name, identity, left });
                // The first level is the place itself.
                if levels.len() == DEPTH_MAX + 2 {
                    self.found.noted.insert(identity);
                    if !self.known.contains(&identity) {
                        self.note(&levels);
                    }
                }
                if self.found.entries >= ENTRIES_MAX {
                    self.note(&levels);
                    return;
                }
                at = inner;
            } else {
                levels.pop();
                let Some(above) = levels.last() else { return };
                let up = open_at(&at, c"..", O_DIRECTORY);
                let is_there = |up: &OwnedFd| Entry::at(up, c"").is_ok_and(|entry| entry.identity == above.identity);
                at = match up {
                    Ok(up) if is_there(&up) => up,
                    // It was moved meanwhile: from the top again, as far as the directories are still where they were.
                    _ => match again(&top, &mut levels) {
                        Some(at) => at,
                        None => return,
                    },
                };
            }
        }
    }
}

/// Opens the last of the levels from the top. Those that are no longer there are dropped.
fn again(top: &OwnedFd, levels: &mut Vec<Level>) -> Option<OwnedFd> {
    let mut at = open_at(top, c".", O_DIRECTORY).ok()?;
    for depth in 1..levels.len() {
        match open_at(&at, &levels[depth].name, O_DIRECTORY) {
            Ok(next) if Entry::at(&next, c"").is_ok_and(|entry| entry.identity == levels[depth].identity) => at = next,
            _ => {
                levels.truncate(depth);
                break;
            }
        }
    }
    Some(at)
}

/// Measures the writable places of a command, and the files without a name that its processes hold open. `known` are the
/// directories that an earlier walk noted. A walk that `strips` takes the bits away by which others would run files as our
/// user: no call sets them, and what a command leaves must not have them even so.
pub fn occupied(exec: &Exec, tree: &[i32], known: &HashSet<Identity>, strips: bool) -> Occupied {
    // SAFETY: cannot fail and touches no memory.
    let own = unsafe { geteuid() };
    let (found, linked) = (Occupied::default(), HashSet::new());
    let mut walk = Walk { found, known, linked, own, strips, place: c"" };
    for (access, path) in exec.paths.iter().filter(|(access, _)| access & access::WRITE != 0) {
        // The listed path itself is the daemon's. Links in it were refused before the command began.
        let flags = O_PATH | O_CLOEXEC | if access & access::FOLLOW == 0 { O_NOFOLLOW } else { 0 };
        if let Ok(top) = sys!(nr::OPENAT, -100i32, path.as_ptr(), flags, 0) {
            walk.place = path;
            walk.place(owned(top as c_int));
        }
    }
    let Walk { mut found, mut linked, .. } = walk;
    for pid in tree {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(data) = fs::metadata(entry.path()) else { continue };
            if data.is_file() && data.nlink() == 0 && linked.insert((data.dev(), data.ino())) {
                found.bytes += data.blocks() * 512;
            }
        }
    }
    found
}
