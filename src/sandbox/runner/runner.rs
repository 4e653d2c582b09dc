//! The runner: runs commands inside a sandbox and carries their bytes over one stream, its standard input and output.
//! The daemon starts it once for each agent (`local`) or as the main process of a container (`docker`); after that a
//! command costs a fork, not a container exec. `PROTOCOL.md` describes the frames, `DESIGN.md` the reasons.
//!
//! It must never run a command with less protection than the request requires, never leave a process behind when its
//! input ends, never hold output beyond the credit it was given, and never trust what a command does or says. It has no
//! dependencies, starts no thread (so that a forked child may allocate), and reads nothing from its environment.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_long, c_void};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Changes whenever a frame changes. The daemon embeds the runner, so the two are equal unless an image is stale.
const VERSION: u16 = 2;
/// Largest payload of a frame, in bytes. A longer script goes through standard input.
const MAX_FRAME: usize = 256 * 1024;
/// Bytes that the daemon may send to one stream before it is granted more.
const WINDOW: u32 = 128 * 1024;
/// Largest DATA frame the runner sends, and the size of one read.
const CHUNK: usize = 64 * 1024;
/// Above this many unsent bytes the runner reads neither commands' output nor its own input.
const OUT_LIMIT: usize = 512 * 1024;
/// Streams of all kinds at one time.
const MAX_STREAMS: usize = 256;
/// How often a tree is measured, and how long a supervisor may take to report after it was told to kill.
const POLL: Duration = Duration::from_millis(50);
const GRACE: Duration = Duration::from_secs(2);
/// The unprivileged identity ("nobody") that a runner started as root gives its commands by default.
const NOBODY: u32 = 65534;
const DEFAULT_ID: u32 = u32::MAX;

// ---------------------------------------------------------------------------------------------------------------------
// System calls
// ---------------------------------------------------------------------------------------------------------------------

type Errno = i32;

// glibc's thin wrappers and `syscall(2)` itself. All are async-signal-safe in the way they are used here.
unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn ioctl(fd: c_int, request: u64, ...) -> c_int;
    fn read(fd: c_int, into: *mut c_void, length: usize) -> isize;
    fn write(fd: c_int, from: *const c_void, length: usize) -> isize;
    fn close(fd: c_int) -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn pipe2(ends: *mut c_int, flags: c_int) -> c_int;
    fn socketpair(family: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int;
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn connect(fd: c_int, address: *const c_void, length: u32) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32) -> c_int;
    fn sendmsg(fd: c_int, message: *const MessageHeader, flags: c_int) -> isize;
    fn recvmsg(fd: c_int, message: *mut MessageHeader, flags: c_int) -> isize;
    fn poll(fds: *mut PollFd, count: u64, timeout_ms: c_int) -> c_int;
    fn signalfd(fd: c_int, set: *const SignalSet, flags: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn signal(number: c_int, handler: usize) -> usize;
    fn wait4(pid: i32, status: *mut c_int, options: c_int, usage: *mut [c_long; 18]) -> i32;
    #[link_name = "kill"]
    fn libc_kill(pid: i32, signal: c_int) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
    fn mount(from: *const c_char, at: *const c_char, kind: *const c_char, flags: u64, data: *const c_char) -> c_int;
    fn setsid() -> i32;
    fn umask(mask: u32) -> u32;
    fn chdir(path: *const c_char) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    fn getuid() -> u32;
    fn geteuid() -> u32;
    fn getgid() -> u32;
    fn getrlimit(resource: c_int, limit: *mut [u64; 2]) -> c_int;
    fn setrlimit(resource: c_int, limit: *const [u64; 2]) -> c_int;
    fn _exit(code: c_int) -> !;
}

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    ready: i16,
}
#[repr(C)]
struct MessageHeader {
    name: *mut c_void,
    name_length: u32,
    parts: *mut [usize; 2],
    part_count: usize,
    control: *mut c_void,
    control_length: usize,
    flags: c_int,
}
type SignalSet = [u64; 16];

const EPERM: Errno = 1;
const ENOENT: Errno = 2;
const EINTR: Errno = 4;
const EAGAIN: Errno = 11;
const EACCES: Errno = 13;
const ENOTDIR: Errno = 20;
const ENOSYS: Errno = 38;
const EINPROGRESS: Errno = 115;
const SIGKILL: i32 = 9;
const SIGCHLD: i32 = 17;
const SIGSTOP: i32 = 19;
const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;
const O_CLOEXEC: i32 = 0o2_000_000;
const O_NONBLOCK: i32 = 0o4_000;
const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const SOCK_STREAM: u32 = 1;
const SOCK_SEQPACKET: u32 = 5;
const PR_SET_PDEATHSIG: i32 = 1;
const PR_SET_DUMPABLE: i32 = 4;
const PR_CAPBSET_DROP: i32 = 24;
const PR_SET_CHILD_SUBREAPER: i32 = 36;
const PR_SET_NO_NEW_PRIVS: i32 = 38;
const CLONE_NAMESPACES: usize = 0x1000_0000 | 0x2000_0000 | 0x0002_0000 | 0x0800_0000 | 0x0400_0000; // user pid mnt ipc uts
const CLONE_NEWNET: usize = 0x4000_0000;

/// Numbers of the system calls that are made or filtered here: x86_64, then aarch64. `NONE`: not on that machine.
const NONE: u32 = u32::MAX;
macro_rules! numbers {
    ($($name:ident $x86:tt $arm:tt),* $(,)?) => { #[allow(dead_code)] mod nr {
        use super::NONE;
        $(#[cfg(target_arch = "x86_64")] pub const $name: u32 = $x86;
          #[cfg(target_arch = "aarch64")] pub const $name: u32 = $arm;)*
        /// One past the newest call known to this list (Linux 6.18). What is newer is answered with ENOSYS.
        pub const END: u32 = 470;
        const _: u32 = NONE;
    } };
}
numbers! {
    LANDLOCK_CREATE_RULESET 444 444, LANDLOCK_ADD_RULE 445 445, LANDLOCK_RESTRICT_SELF 446 446, SECCOMP 317 277,
    CLONE 56 220, PRLIMIT64 302 261, CLOSE_RANGE 436 436, OPENAT2 437 437, OPEN_TREE 428 428, MOVE_MOUNT 429 429,
    MOUNT_SETATTR 442 442, CAPGET 125 90, CAPSET 126 91, MEMFD_CREATE 319 279, SETRESUID 117 147, SETRESGID 119 149,
    SETGROUPS 116 159, SOCKET 41 198, SOCKETPAIR 53 199, SENDTO 44 206, SENDMSG 46 211, SENDMMSG 307 269,
    CLONE3 435 435, UNSHARE 272 97, SETNS 308 268, IOCTL 16 29, PERSONALITY 135 92, PTRACE 101 117,
    PROCESS_VM_READV 310 270, PROCESS_VM_WRITEV 311 271, PROCESS_MADVISE 440 440, PIDFD_GETFD 438 438, KCMP 312 272,
    IO_URING_SETUP 425 425, IO_URING_ENTER 426 426, IO_URING_REGISTER 427 427, KEYCTL 250 219, ADD_KEY 248 217,
    REQUEST_KEY 249 218, MOUNT 165 40, UMOUNT2 166 39, PIVOT_ROOT 155 41, CHROOT 161 51, FSOPEN 430 430,
    FSCONFIG 431 431, FSMOUNT 432 432, FSPICK 433 433, OPEN_TREE_ATTR 467 467, BPF 321 280, PERF_EVENT_OPEN 298 241,
    USERFAULTFD 323 282, FANOTIFY_INIT 300 262, KEXEC_LOAD 246 104, KEXEC_FILE_LOAD 320 294, INIT_MODULE 175 105,
    FINIT_MODULE 313 273, DELETE_MODULE 176 106, CREATE_MODULE 174 NONE, QUERY_MODULE 178 NONE,
    GET_KERNEL_SYMS 177 NONE, NAME_TO_HANDLE_AT 303 264, OPEN_BY_HANDLE_AT 304 265, QUOTACTL 179 60,
    QUOTACTL_FD 443 443, ACCT 163 89, SWAPON 167 224, SWAPOFF 168 225, REBOOT 169 142, SETTIMEOFDAY 164 170,
    CLOCK_SETTIME 227 112, CLOCK_ADJTIME 305 266, ADJTIMEX 159 171, SYSLOG 103 116, SETHOSTNAME 170 161,
    SETDOMAINNAME 171 162, VHANGUP 153 58, IOPL 172 NONE, IOPERM 173 NONE, MODIFY_LDT 154 NONE, USELIB 134 NONE,
    SYSCTL 156 NONE, NFSSERVCTL 180 42, LOOKUP_DCOOKIE 212 18, MOVE_PAGES 279 239, MIGRATE_PAGES 256 238,
    MEMFD_SECRET 447 447, SHMGET 29 194, MSGGET 68 186, SEMGET 64 190, MQ_OPEN 240 180, SETPRIORITY 141 140,
    IOPRIO_SET 251 30, SCHED_SETAFFINITY 203 122, SCHED_SETSCHEDULER 144 119, SCHED_SETPARAM 142 118,
    SCHED_SETATTR 314 274, CHMOD 90 NONE, FCHMOD 91 52, FCHMODAT 268 53, FCHMODAT2 452 452, CHOWN 92 NONE,
    FCHOWN 93 55, LCHOWN 94 NONE, FCHOWNAT 260 54, SETXATTR 188 5, LSETXATTR 189 6, FSETXATTR 190 7,
    REMOVEXATTR 197 14, LREMOVEXATTR 198 15, FREMOVEXATTR 199 16, UTIME 132 NONE, UTIMES 235 NONE,
    FUTIMESAT 261 NONE, UTIMENSAT 280 88, SETXATTRAT 463 463, REMOVEXATTRAT 466 466, FILE_SETATTR 469 469,
}

fn errno() -> Errno {
    // SAFETY: glibc returns a valid pointer to this thread's errno.
    unsafe { *__errno_location() }
}

/// Turns the C convention (-1 and errno) into a result.
fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// Makes a system call that glibc does not wrap. Every argument is an integer, or the address of memory that the caller
/// keeps alive until the call returns.
macro_rules! sys {
    ($number:expr $(, $argument:expr)*) => {{
        // SAFETY: the callers pass live memory of the size that the kernel expects; integers need no care.
        let result = unsafe { syscall($number as c_long $(, $argument as usize)*) };
        if result < 0 { Err(errno()) } else { Ok(result as usize) }
    }};
}
/// Calls one of the functions declared above that returns -1 on failure. The same promise as for `sys!` holds.
macro_rules! libc {
    ($($call:tt)*) => {{
        // SAFETY: the callers pass live memory of the size that the function expects and descriptors that they own.
        checked(unsafe { $($call)* })
    }};
}

fn address<T>(value: &T) -> usize {
    std::ptr::from_ref(value) as usize
}

fn quit(code: i32) -> ! {
    // SAFETY: ends the process at once; no destructor and no exit handler of the parent's may run in a forked child.
    unsafe { _exit(code) }
}

fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that a system call has just returned and nothing else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn read_some(fd: RawFd, into: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for writes of its length.
    let count = unsafe { read(fd, into.as_mut_ptr().cast(), into.len()) };
    if count < 0 { Err(errno()) } else { Ok(count as usize) }
}

fn write_some(fd: RawFd, from: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for reads of its length.
    let count = unsafe { write(fd, from.as_ptr().cast(), from.len()) };
    if count < 0 { Err(errno()) } else { Ok(count as usize) }
}

fn pipe_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    libc!(pipe2(ends.as_mut_ptr(), O_CLOEXEC))?;
    Ok((owned(ends[0]), owned(ends[1])))
}

fn set_nonblocking(fd: RawFd) -> Result<(), Errno> {
    let flags = libc!(fcntl(fd, 3))?;
    libc!(fcntl(fd, 4, flags | O_NONBLOCK)).map(drop)
}

fn duplicate(fd: RawFd, at_least: i32) -> Result<OwnedFd, Errno> {
    libc!(fcntl(fd, 1030, at_least)).map(owned) // F_DUPFD_CLOEXEC
}

fn wait_ready(fds: &mut [PollFd], timeout: Option<Duration>) -> Result<(), Errno> {
    // Rounded up: a wait that ends a moment early would only spin.
    let timeout = timeout.map_or(-1, |time| c_int::try_from(time.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX));
    match libc!(poll(fds.as_mut_ptr(), fds.len() as u64, timeout)) {
        Err(EINTR) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Blocks the given signals and returns a descriptor that reads them.
fn signals_as_reads(numbers: &[i32]) -> Result<OwnedFd, Errno> {
    let mut set: SignalSet = [0; 16];
    for number in numbers {
        set[0] |= 1 << (number - 1);
    }
    libc!(sigprocmask(2, &set, std::ptr::null_mut()))?;
    libc!(signalfd(-1, &set, O_CLOEXEC | O_NONBLOCK)).map(owned)
}

fn process_id() -> i32 {
    std::process::id() as i32
}

fn send_signal(pid: i32, number: i32) {
    // A process that has gone is no error: there is nothing left to signal.
    let _ = libc!(libc_kill(pid, number));
}

/// Reaps one child without waiting: `Ok(None)` when none has ended, `Err` when there are no children at all.
fn reap() -> Result<Option<(i32, i32, [c_long; 18])>, Errno> {
    let (mut status, mut usage) = (0, [0; 18]);
    match libc!(wait4(-1, &mut status, 1, &mut usage)) {
        Ok(0) | Err(EINTR) => Ok(None),
        Ok(pid) => Ok(Some((pid, status, usage))),
        Err(error) => Err(error),
    }
}

/// Sends one message, with descriptors if there are any, over a control socket.
fn send_message(fd: RawFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
    let mut part = [bytes.as_ptr() as usize, bytes.len()];
    let mut control = [0u64; 10]; // a cmsghdr of two words, then up to 16 descriptors
    control[0] = 16 + fds.len() as u64 * 4;
    control[1] = 1 | 1 << 32; // SOL_SOCKET, SCM_RIGHTS
    for (place, fd) in fds.iter().take(16).enumerate() {
        control[2 + place / 2] |= (*fd as u64) << (32 * (place % 2));
    }
    let control_length = if fds.is_empty() { 0 } else { 16 + fds.len().min(16).div_ceil(2) * 8 };
    let control_at = if fds.is_empty() { std::ptr::null_mut() } else { control.as_mut_ptr().cast() };
    let (name, parts) = (std::ptr::null_mut(), &raw mut part);
    let header =
        MessageHeader { name, name_length: 0, parts, part_count: 1, control: control_at, control_length, flags: 0 };
    // SAFETY: the header points at `part` and `control`, which live until the call returns.
    if unsafe { sendmsg(fd, &header, 0x4000) } < 0 { Err(errno()) } else { Ok(()) }
}

/// Receives one message with its descriptors. An empty message means that the other end has gone.
fn receive_message(fd: RawFd, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut part = [into.as_mut_ptr() as usize, into.len()];
    let mut control = [0u64; 10];
    let (name, parts, control_at) = (std::ptr::null_mut(), &raw mut part, control.as_mut_ptr().cast());
    let mut header =
        MessageHeader { name, name_length: 0, parts, part_count: 1, control: control_at, control_length: 80, flags: 0 };
    // SAFETY: the header points at `part`, `into` and `control`, which live until the call returns.
    let count = unsafe { recvmsg(fd, &mut header, 0x4000_0040) }; // MSG_CMSG_CLOEXEC, MSG_DONTWAIT
    if count < 0 {
        return Err(errno());
    }
    let held = if header.control_length >= 16 { (control[0].saturating_sub(16) / 4).min(16) as usize } else { 0 };
    let fds = (0..held).map(|place| owned((control[2 + place / 2] >> (32 * (place % 2))) as u32 as c_int)).collect();
    Ok((count as usize, fds))
}

/// Closes every descriptor from 3 up but those given. Falls back to a loop where the kernel lacks `close_range`.
fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<usize> = keep.iter().map(|fd| *fd as usize).filter(|fd| *fd > 2).collect();
    keep.sort_unstable();
    let mut from = 3;
    for upto in keep.iter().copied().chain([u32::MAX as usize]) {
        if from < upto && sys!(nr::CLOSE_RANGE, from, upto - 1, 0).is_err() {
            for fd in from..upto.min(65536) {
                let _ = libc!(close(fd as c_int));
            }
        }
        from = upto + 1;
    }
}

/// Runs `action` with the effective identity of the commands. Only a runner started as root needs it: files, pipes and
/// processes made inside belong to the unprivileged user, whom root without capabilities could not reach otherwise.
fn with_identity<T>(identity: Option<(u32, u32)>, action: impl FnOnce() -> T) -> Result<T, Errno> {
    let Some((uid, gid)) = identity else { return Ok(action()) };
    sys!(nr::SETRESGID, DEFAULT_ID, gid, DEFAULT_ID)?;
    if let Err(error) = sys!(nr::SETRESUID, DEFAULT_ID, uid, DEFAULT_ID) {
        let _ = sys!(nr::SETRESGID, DEFAULT_ID, 0, DEFAULT_ID);
        return Err(error);
    }
    let value = action();
    sys!(nr::SETRESUID, DEFAULT_ID, 0, DEFAULT_ID)?;
    sys!(nr::SETRESGID, DEFAULT_ID, 0, DEFAULT_ID)?;
    // A change of identity resets this to the system's default, which an administrator may have made readable.
    libc!(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))?;
    Ok(value)
}

// ---------------------------------------------------------------------------------------------------------------------
// Frames
// ---------------------------------------------------------------------------------------------------------------------

mod kind {
    pub const HELLO: u8 = 0x01;
    pub const EXEC: u8 = 0x02;
    pub const DATA: u8 = 0x03;
    pub const EOF: u8 = 0x04;
    pub const CREDIT: u8 = 0x05;
    pub const SIGNAL: u8 = 0x06;
    pub const KILL: u8 = 0x07;
    pub const DIAL: u8 = 0x08;
    pub const LISTEN: u8 = 0x09;
    pub const CLOSE: u8 = 0x0A;
    pub const WATCH: u8 = 0x0B;
    pub const STARTED: u8 = 0x82;
    pub const EXIT: u8 = 0x86;
    pub const REFUSED: u8 = 0x87;
    pub const OPENED: u8 = 0x88;
    pub const ACCEPTED: u8 = 0x89;
    pub const CLOSED: u8 = 0x8A;
    pub const FATAL: u8 = 0x8F;
    /// Set in frames that the runner sends.
    pub const FROM_RUNNER: u8 = 0x80;
}

/// A frame that breaks the protocol. It ends the runner: after it nothing in the stream can be trusted.
#[derive(Debug)]
struct Malformed(String);

/// Why a stream was not opened. The codes are part of the protocol.
#[derive(Clone, Copy)]
enum Refused {
    Protection = 1,
    Identity = 2,
    Request = 3,
    SetUp = 4,
    Program = 5,
    TooMany = 6,
    Connect = 7,
    Listen = 8,
}
struct Refusal(Refused, String);

/// Reads little-endian fields from a payload, refusing what is short.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| Malformed("payload is too short".into()))?;
        self.0 = rest;
        Ok(taken)
    }
    fn number(&mut self, bytes: usize) -> Result<u64, Malformed> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.number(1)? as u8)
    }
    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(self.number(2)? as u16)
    }
    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(self.number(4)? as u32)
    }
    fn u64(&mut self) -> Result<u64, Malformed> {
        self.number(8)
    }
    fn text(&mut self) -> Result<CString, Malformed> {
        let length = self.u32()? as usize;
        CString::new(self.take(length)?).map_err(|_| Malformed("text holds a zero byte".into()))
    }
    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        // Every item takes at least one byte, so the payload's bound is a bound on the list.
        let count = self.u32()? as usize;
        if count > self.0.len() {
            return Err(Malformed("list is longer than its payload".into()));
        }
        (0..count).map(|_| item(self)).collect()
    }
    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("payload is too long".into())) }
    }
}

fn put_text(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(&(text.len() as u32).to_le_bytes());
    into.extend_from_slice(text.as_bytes());
}

// ---------------------------------------------------------------------------------------------------------------------
// The request of a command
// ---------------------------------------------------------------------------------------------------------------------

mod flag {
    /// Standard input is a pipe that the daemon feeds; without it, `/dev/null`.
    pub const STDIN: u32 = 1;
    /// The tree lives until its last process ends; without it, it is killed when the main process ends.
    pub const BACKGROUND: u32 = 2;
    /// Use user, PID, mount, IPC and UTS namespaces if they can be had.
    pub const NAMESPACES: u32 = 4;
    /// Use a network namespace of its own as well. Needs NAMESPACES.
    pub const NETNS: u32 = 8;
    /// `/tmp` and `/dev/shm` are private file systems in memory. Refused without namespaces.
    pub const PRIVATE_TMP: u32 = 16;
    /// Allow `memfd_create`, whose memory no limit but a cgroup's covers.
    pub const MEMFD: u32 = 32;
    /// Without namespaces, refuse changes of mode, owner, times and attributes, which Landlock does not cover.
    pub const SEAL_METADATA: u32 = 64;
    /// Allow Unix sockets, which a browser needs. For containers alone: every socket file that is visible can be reached,
    /// so the protection of the network is then not in force.
    pub const UNIX: u32 = 128;
    pub const ALL: u32 = 255;
}

mod access {
    pub const READ: u8 = 1;
    pub const WRITE: u8 = 2;
    pub const EXECUTE: u8 = 4;
    /// Symbolic links in the path are followed. Only for paths that no agent can change.
    pub const FOLLOW: u8 = 64;
    /// A path that does not exist is skipped.
    pub const OPTIONAL: u8 = 128;
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Network {
    /// No sockets but connected pairs.
    #[default]
    None = 0,
    /// TCP to the listed ports alone, by Landlock.
    Ports = 1,
    /// A network namespace of its own: loopback, and the tunnels.
    Private = 2,
    /// TCP and UDP to anywhere.
    Open = 3,
}

/// What must hold for a command. The same bits say what a kernel offers, what is required and what is in force.
mod guard {
    pub const SECCOMP: u32 = 1;
    pub const FILES: u32 = 2;
    pub const NETWORK: u32 = 4;
    pub const SIGNALS: u32 = 8;
    pub const TRACE: u32 = 16;
    pub const TREE: u32 = 32;
    pub const METADATA: u32 = 64;
    pub const TASKS: u32 = 128;
    pub const NAMESPACES: u32 = 256;
    pub const NETNS: u32 = 512;
    pub const UID: u32 = 1024;
    pub const PORTS: u32 = 2048;
    /// What the daemon may promise for a wrapper.
    pub const VOUCHED: u32 = NAMESPACES | NETNS | TASKS;
    pub const NAMES: [(u32, &str); 12] = [
        (SECCOMP, "seccomp"),
        (FILES, "files"),
        (NETWORK, "network"),
        (SIGNALS, "signals"),
        (TRACE, "trace"),
        (TREE, "tree"),
        (METADATA, "metadata"),
        (TASKS, "tasks"),
        (NAMESPACES, "namespaces"),
        (NETNS, "netns"),
        (UID, "uid"),
        (PORTS, "ports"),
    ];
}

#[derive(Default)]
struct Exec {
    flags: u32,
    required: u32,
    vouched: u32,
    network: Network,
    uid: u32,
    gid: u32,
    umask: u32,
    deadline_ms: u32,
    memory: u64,
    processes: u32,
    disk: u64,
    tmp_bytes: u64,
    /// nofile, fsize, as, data, cpu (seconds), nproc. 0 leaves a limit as it is.
    limits: [u64; 6],
    credit: [u32; 2],
    cwd: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
    paths: Vec<(u8, CString)>,
    connect: Vec<u16>,
    bind: Vec<u16>,
    tunnel: Vec<u16>,
    wrapper: Vec<CString>,
}

impl Exec {
    fn decode(payload: &[u8]) -> Result<Exec, Malformed> {
        let mut from = Fields(payload);
        let exec = Exec {
            flags: from.u32()?,
            required: from.u32()?,
            vouched: from.u32()?,
            network: match from.u8()? {
                0 => Network::None,
                1 => Network::Ports,
                2 => Network::Private,
                3 => Network::Open,
                other => return Err(Malformed(format!("unknown network mode {other}"))),
            },
            uid: from.u32()?,
            gid: from.u32()?,
            umask: from.u32()?,
            deadline_ms: from.u32()?,
            memory: from.u64()?,
            processes: from.u32()?,
            disk: from.u64()?,
            tmp_bytes: from.u64()?,
            limits: [from.u64()?, from.u64()?, from.u64()?, from.u64()?, from.u64()?, from.u64()?],
            credit: [from.u32()?, from.u32()?],
            cwd: from.text()?,
            argv: from.list(Fields::text)?,
            env: from.list(Fields::text)?,
            paths: from.list(|from| Ok((from.u8()?, from.text()?)))?,
            connect: from.list(Fields::u16)?,
            bind: from.list(Fields::u16)?,
            tunnel: from.list(Fields::u16)?,
            wrapper: from.list(Fields::text)?,
        };
        from.end()?;
        if exec.argv.is_empty() {
            return Err(Malformed("argv is empty".into()));
        }
        if exec.flags & !flag::ALL != 0 || exec.required >> guard::NAMES.len() != 0 {
            return Err(Malformed("unknown flag or protection".into()));
        }
        Ok(exec)
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// What the kernel offers, and what a command gets of it
// ---------------------------------------------------------------------------------------------------------------------

struct Facts {
    landlock: u32,
    seccomp: bool,
    namespaces: bool,
    netns: bool,
    uid: u32,
    gid: u32,
    /// Root that may change its identity, and does for every command.
    drops: bool,
    /// The runner is the first process of its container, so the kernel kills everything with it.
    first: bool,
    /// Why something is missing, a line each.
    reasons: String,
}

impl Facts {
    fn find() -> Facts {
        let landlock = sys!(nr::LANDLOCK_CREATE_RULESET, 0, 0, 1).unwrap_or(0) as u32;
        let action: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
        let seccomp = sys!(nr::SECCOMP, 2, 0, address(&action)).is_ok();
        // SAFETY: these two calls cannot fail and touch no memory.
        let (uid, gid) = unsafe { (getuid(), getgid()) };
        let (header, mut capabilities) = ([0x2008_0522u32, 0], [0u32; 6]);
        let known = sys!(nr::CAPGET, address(&header), &raw mut capabilities).is_ok();
        let drops = uid == 0 && known && capabilities[0] & 0xC0 == 0xC0; // CAP_SETGID, CAP_SETUID
        let first = process_id() == 1;
        let mut reasons = String::new();
        if landlock < 6 {
            let _ = writeln!(reasons, "landlock: version {landlock}; files need 3, ports 4, signals 6");
        }
        if !seccomp {
            reasons.push_str("seccomp: the kernel has no filters\n");
        }
        if uid == 0 && !drops {
            reasons.push_str("uid: root without CAP_SETUID and CAP_SETGID cannot become another user\n");
        }
        Facts { landlock, seccomp, namespaces: false, netns: false, uid, gid, drops, first, reasons }
    }

    /// The protections that hold for a command in the given circumstances. `own` namespaces are those that the runner
    /// makes; `inside` is also true for a wrapper's.
    fn guards(&self, own: bool, inside: bool, netns: bool, becomes: bool, sealed: bool) -> u32 {
        let held = [
            (guard::SECCOMP, self.seccomp),
            (guard::FILES, self.landlock >= 3), // below, files that may only be read could be truncated
            (guard::NETWORK, self.seccomp),
            (guard::SIGNALS, inside || self.landlock >= 6),
            (guard::TRACE, inside || self.landlock >= 1),
            (guard::TREE, inside || self.first),
            (guard::METADATA, inside || (sealed && self.seccomp)),
            (guard::TASKS, own),
            (guard::NAMESPACES, inside),
            (guard::NETNS, netns),
            (guard::UID, becomes),
            (guard::PORTS, self.landlock >= 4),
        ];
        held.iter().filter(|(_, holds)| *holds).fold(0, |bits, (bit, _)| bits | bit)
    }

    /// The protections that a command can be given here at best.
    fn available(&self) -> u32 {
        self.guards(self.namespaces, self.namespaces, self.netns, self.drops, true)
    }

    /// The HELLO payload.
    fn hello(&self) -> Vec<u8> {
        let mut payload = VERSION.to_le_bytes().to_vec();
        for number in [self.landlock, self.available(), self.uid, self.gid, process_id() as u32, WINDOW] {
            payload.extend_from_slice(&number.to_le_bytes());
        }
        payload.extend_from_slice(&[u8::from(self.seccomp), u8::from(self.namespaces), u8::from(self.drops)]);
        let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("").to_owned();
        let folder = PathBuf::from(format!("/sys/fs/cgroup{group}"));
        let controllers = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        for text in [kernel.trim(), std::env::consts::ARCH, controllers.trim(), self.reasons.trim()] {
            put_text(&mut payload, text);
        }
        payload
    }
}

/// What one command gets, decided before anything is created.
struct Plan {
    namespaces: bool,
    netns: bool,
    /// The uid and gid of the command, and whether they differ from the runner's own.
    user: (u32, u32),
    becomes: bool,
    in_force: u32,
}

impl Plan {
    fn new(exec: &Exec, facts: &Facts) -> Result<Plan, Refusal> {
        let refuse = |code, text: &str| Err(Refusal(code, text.to_owned()));
        let own = if facts.uid == 0 { (NOBODY, NOBODY) } else { (facts.uid, facts.gid) };
        let user = (
            if exec.uid == DEFAULT_ID { own.0 } else { exec.uid },
            if exec.gid == DEFAULT_ID { own.1 } else { exec.gid },
        );
        let becomes = user != (facts.uid, facts.gid);
        if user.0 == 0 || (becomes && user.1 == 0) {
            return refuse(Refused::Identity, "uid: a command never runs as root");
        }
        if becomes && !facts.drops {
            return refuse(Refused::Identity, "uid: this runner cannot become another user");
        }
        let wrapped = !exec.wrapper.is_empty();
        let namespaces = exec.has(flag::NAMESPACES) && facts.namespaces && !wrapped;
        let netns = namespaces && exec.has(flag::NETNS) && facts.netns && exec.network != Network::Open;
        if exec.has(flag::PRIVATE_TMP) && !namespaces {
            // The listed `/tmp` would be the host's.
            return refuse(Refused::Protection, "namespaces: a private /tmp needs them");
        }
        if exec.network == Network::Private && !netns && (!wrapped || exec.vouched & guard::NETNS == 0) {
            return refuse(Refused::Protection, "netns: the private network needs it");
        }
        if exec.network == Network::Ports && facts.landlock < 4 {
            return refuse(Refused::Protection, "ports: a list of ports needs Landlock 4");
        }
        if !exec.tunnel.is_empty() && !netns || exec.tunnel.len() > 16 {
            return refuse(Refused::Request, "tunnel: only for the private network, and at most 16");
        }
        let vouched = if wrapped { exec.vouched & guard::VOUCHED } else { 0 };
        let inside = namespaces || vouched & guard::NAMESPACES != 0;
        let sealed = exec.has(flag::SEAL_METADATA);
        let mut in_force = vouched | facts.guards(namespaces, inside, netns, becomes, sealed);
        if exec.has(flag::UNIX) {
            in_force &= !guard::NETWORK;
        }
        let missing = exec.required & !in_force;
        if let Some((_, name)) = guard::NAMES.iter().find(|(bit, _)| missing & bit != 0) {
            let reasons = facts.reasons.trim().replace('\n', "; ");
            return Err(Refusal(Refused::Protection, format!("{name}: required and not to be had here. {reasons}")));
        }
        Ok(Plan { namespaces, netns, user, becomes, in_force })
    }

    fn identity(&self) -> Option<(u32, u32)> {
        self.becomes.then_some(self.user)
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Failures between the fork and the program
// ---------------------------------------------------------------------------------------------------------------------

/// Where a set-up failed. The forked child reports it as one byte, because it must not allocate.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Step {
    Streams,
    Map,
    Path,
    Mount,
    Proc,
    Loopback,
    Tunnel,
    Disk,
    Landlock,
    Seccomp,
    Limits,
    Identity,
    Capabilities,
    Directory,
    Program,
}
impl Step {
    const ALL: [Step; 15] = {
        use Step::*;
        [
            Streams,
            Map,
            Path,
            Mount,
            Proc,
            Loopback,
            Tunnel,
            Disk,
            Landlock,
            Seccomp,
            Limits,
            Identity,
            Capabilities,
            Directory,
            Program,
        ]
    };
}

struct Failed(Step, Errno, String);

impl Failed {
    fn refusal(&self) -> Refusal {
        let Failed(step, errno, what) = self;
        let code = if matches!(step, Step::Program) { Refused::Program } else { Refused::SetUp };
        let step = format!("{step:?}").to_lowercase();
        Refusal(code, format!("{step} {what}: {}", io::Error::from_raw_os_error(*errno)))
    }
}

/// For `map_err`: the step with no more to say.
fn at(step: Step) -> impl Fn(Errno) -> Failed {
    move |errno| Failed(step, errno, String::new())
}

// ---------------------------------------------------------------------------------------------------------------------
// The seccomp filter
// ---------------------------------------------------------------------------------------------------------------------

#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    value: u32,
}

const ALLOW: u32 = 0x7FFF_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const fn refuse_with(errno: Errno) -> u32 {
    0x0005_0000 | errno as u32
}
const fn load(offset: u32) -> Instruction {
    Instruction { code: 0x20, jump_true: 0, jump_false: 0, value: offset }
}
/// Loads the low half of an argument: every argument judged here is an int, of which the kernel reads no more.
const fn argument(index: u32) -> Instruction {
    load(16 + index * 8)
}
const fn mask(value: u32) -> Instruction {
    Instruction { code: 0x54, jump_true: 0, jump_false: 0, value }
}
const fn answer(value: u32) -> Instruction {
    Instruction { code: 0x06, jump_true: 0, jump_false: 0, value }
}
/// Returns `then` if the loaded word equals `value`, else goes on.
const fn if_equal(value: u32, then: u32) -> [Instruction; 2] {
    [Instruction { code: 0x15, jump_true: 0, jump_false: 1, value }, answer(then)]
}

/// Builds the filter. It is a list of what is refused: programs are many, dangerous calls are few and known, and a call
/// newer than the list does not exist. A refusal is an errno that programs understand; only a foreign ABI kills.
fn filter(exec: &Exec, inside: bool) -> Vec<Instruction> {
    let mut out = Vec::with_capacity(384);
    let arch = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
    out.extend([load(4), Instruction { code: 0x15, jump_true: 1, jump_false: 0, value: arch }, answer(KILL_PROCESS)]);
    let if_at_least = |value| Instruction { code: 0x35, jump_true: 0, jump_false: 1, value };
    out.push(load(0));
    if cfg!(target_arch = "x86_64") {
        out.extend([if_at_least(0x4000_0000), answer(KILL_PROCESS)]); // the x32 ABI
    }
    out.extend([if_at_least(nr::END), answer(refuse_with(ENOSYS))]);
    let denied = refuse_with(EPERM);
    let no_access = refuse_with(EACCES);
    // `body` answers, or loads the call's number again.
    let mut on = |number: u32, body: &[Instruction]| {
        out.push(Instruction { code: 0x15, jump_true: 0, jump_false: body.len() as u8, value: number });
        out.extend_from_slice(body);
    };
    on(nr::CLONE3, &[answer(refuse_with(ENOSYS))]); // its flags are in memory; libraries fall back to `clone`
    // Any new namespace: CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}; for unshare CLONE_NEWTIME, a signal bit in clone.
    for (number, flags) in [(nr::CLONE, 0x7E02_0000), (nr::UNSHARE, 0x7E02_0080)] {
        let [test, allow] = if_equal(0, ALLOW);
        on(number, &[argument(0), mask(flags), test, allow, answer(denied)]);
    }
    let [stream, stream_yes] = if_equal(SOCK_STREAM, ALLOW);
    let [packet, packet_yes] = if_equal(SOCK_SEQPACKET, ALLOW);
    let not_equal = |value, skip| Instruction { code: 0x15, jump_true: 0, jump_false: skip, value };
    // Pairs of Unix datagram sockets are refused too: one of them can still be connected to a path.
    let pair = [argument(0), not_equal(AF_UNIX, 6), argument(1), mask(15), stream, stream_yes, packet, packet_yes];
    on(nr::SOCKETPAIR, &[pair.as_slice(), &[answer(no_access)]].concat());
    if exec.has(flag::UNIX) {
        // Falls through to the rule of the network mode, so the number is loaded again.
        let unix = if_equal(AF_UNIX, ALLOW);
        on(nr::SOCKET, &[argument(0), unix[0], unix[1], load(0)]);
    }
    let [four, four_yes] = if_equal(AF_INET, ALLOW);
    let [six, six_yes] = if_equal(AF_INET6, ALLOW);
    match exec.network {
        Network::None => on(nr::SOCKET, &[answer(no_access)]),
        Network::Private | Network::Open => {
            on(nr::SOCKET, &[argument(0), four, four_yes, six, six_yes, answer(no_access)]);
        }
        Network::Ports => {
            // TCP alone: Landlock knows no ports of UDP, SCTP or MPTCP, nor a connection opened by a first send.
            let jump = |value, skip| Instruction { code: 0x15, jump_true: skip, jump_false: 0, value };
            let [none, none_yes] = if_equal(0, ALLOW);
            let [tcp, tcp_yes] = if_equal(6, ALLOW);
            let family = [argument(0), jump(AF_INET, 1), not_equal(AF_INET6, 8), argument(1), mask(15)];
            let protocol = [not_equal(SOCK_STREAM, 5), argument(2), none, none_yes, tcp, tcp_yes, answer(no_access)];
            on(nr::SOCKET, &[family.as_slice(), &protocol].concat());
            let [plain, plain_yes] = if_equal(0, ALLOW);
            for (number, flags) in [(nr::SENDTO, 3), (nr::SENDMSG, 2), (nr::SENDMMSG, 3)] {
                on(number, &[argument(flags), mask(0x2000_0000), plain, plain_yes, answer(no_access)]);
            }
        }
    }
    let (sti, linux) = (if_equal(0x5412, denied), if_equal(0x541C, denied));
    on(nr::IOCTL, &[argument(1), sti[0], sti[1], linux[0], linux[1], answer(ALLOW)]);
    let (plain, query) = (if_equal(0, ALLOW), if_equal(u32::MAX, ALLOW));
    on(nr::PERSONALITY, &[argument(0), plain[0], plain[1], query[0], query[1], answer(denied)]);
    // The daemon and the supervisor may have the same uid: their limits and scheduling are not the command's business.
    let own = if_equal(0, ALLOW);
    on(nr::PRLIMIT64, &[argument(0), own[0], own[1], answer(denied)]);
    if !inside {
        for (number, index) in
            [(nr::SCHED_SETAFFINITY, 0), (nr::SCHED_SETSCHEDULER, 0), (nr::SCHED_SETPARAM, 0), (nr::SCHED_SETATTR, 0)]
        {
            on(number, &[argument(index), own[0], own[1], answer(denied)]);
        }
        // Their `who` may also name all processes of the user (2 and 3).
        for (number, which) in [(nr::SETPRIORITY, 2), (nr::IOPRIO_SET, 3)] {
            let user = if_equal(which, denied);
            on(number, &[argument(0), user[0], user[1], argument(1), own[0], own[1], answer(denied)]);
        }
    }
    #[rustfmt::skip]
    let never: &[u32] = &[
        nr::SETNS, nr::PTRACE, nr::PROCESS_VM_READV, nr::PROCESS_VM_WRITEV, nr::PROCESS_MADVISE, nr::PIDFD_GETFD,
        nr::KCMP, nr::IO_URING_SETUP, nr::IO_URING_ENTER, nr::IO_URING_REGISTER, nr::KEYCTL, nr::ADD_KEY,
        nr::REQUEST_KEY, nr::MOUNT, nr::UMOUNT2, nr::PIVOT_ROOT, nr::CHROOT, nr::OPEN_TREE, nr::MOVE_MOUNT, nr::FSOPEN,
        nr::FSCONFIG, nr::FSMOUNT, nr::FSPICK, nr::MOUNT_SETATTR, nr::OPEN_TREE_ATTR, nr::BPF, nr::PERF_EVENT_OPEN,
        nr::USERFAULTFD, nr::FANOTIFY_INIT, nr::KEXEC_LOAD, nr::KEXEC_FILE_LOAD, nr::INIT_MODULE, nr::FINIT_MODULE,
        nr::DELETE_MODULE, nr::CREATE_MODULE, nr::QUERY_MODULE, nr::GET_KERNEL_SYMS, nr::NAME_TO_HANDLE_AT,
        nr::OPEN_BY_HANDLE_AT, nr::QUOTACTL, nr::QUOTACTL_FD, nr::ACCT, nr::SWAPON, nr::SWAPOFF, nr::REBOOT,
        nr::SETTIMEOFDAY, nr::CLOCK_SETTIME, nr::CLOCK_ADJTIME, nr::ADJTIMEX, nr::SYSLOG, nr::SETHOSTNAME,
        nr::SETDOMAINNAME, nr::VHANGUP, nr::IOPL, nr::IOPERM, nr::MODIFY_LDT, nr::USELIB, nr::SYSCTL, nr::NFSSERVCTL,
        nr::LOOKUP_DCOOKIE, nr::MOVE_PAGES, nr::MIGRATE_PAGES, nr::MEMFD_SECRET,
    ];
    // Shared between all processes of a user unless there is an IPC namespace.
    let shared: &[u32] = if inside { &[] } else { &[nr::SHMGET, nr::MSGGET, nr::SEMGET, nr::MQ_OPEN] };
    let memory: &[u32] = if exec.has(flag::MEMFD) { &[] } else { &[nr::MEMFD_CREATE] };
    #[rustfmt::skip]
    let metadata: &[u32] = &[
        nr::CHMOD, nr::FCHMOD, nr::FCHMODAT, nr::FCHMODAT2, nr::CHOWN, nr::FCHOWN, nr::LCHOWN, nr::FCHOWNAT,
        nr::SETXATTR, nr::LSETXATTR, nr::FSETXATTR, nr::REMOVEXATTR, nr::LREMOVEXATTR, nr::FREMOVEXATTR, nr::UTIME,
        nr::UTIMES, nr::FUTIMESAT, nr::UTIMENSAT, nr::SETXATTRAT, nr::REMOVEXATTRAT, nr::FILE_SETATTR,
    ];
    let metadata = if exec.has(flag::SEAL_METADATA) && !inside { metadata } else { &[] };
    for number in [never, shared, memory, metadata].concat().into_iter().filter(|number| *number != NONE) {
        on(number, &[answer(denied)]);
    }
    out.push(answer(ALLOW));
    out
}

// ---------------------------------------------------------------------------------------------------------------------
// Files: opening the listed paths, the mount plan, the Landlock ruleset
// ---------------------------------------------------------------------------------------------------------------------

/// Opens a listed path as a place in the file system. Unless the request says so no symbolic link is followed: a folder
/// that another agent may write could have been swapped for a link since the daemon checked it.
fn open_place(access: u8, path: &CStr) -> Result<Option<OwnedFd>, Failed> {
    let resolve: u64 = if access & access::FOLLOW != 0 { 0 } else { 4 }; // RESOLVE_NO_SYMLINKS
    let how = [(O_CLOEXEC | 0o10_000_000) as u64, 0, resolve]; // O_PATH
    match sys!(nr::OPENAT2, -100i32, path.as_ptr(), address(&how), 24) {
        Ok(fd) => Ok(Some(owned(fd as c_int))),
        Err(ENOENT | ENOTDIR) if access & access::OPTIONAL != 0 => Ok(None),
        Err(errno) => Err(Failed(Step::Path, errno, path.to_string_lossy().into_owned())),
    }
}

fn is_folder(place: &OwnedFd) -> bool {
    place.try_clone().and_then(|place| fs::File::from(place).metadata()).is_ok_and(|data| data.is_dir())
}

/// Inside fresh namespaces: everything read-only but the listed places, a private `/tmp`, and a `/proc` that shows this
/// command alone.
fn arrange_mounts(exec: &Exec) -> Result<(), Failed> {
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
fn ruleset(exec: &Exec, version: u32) -> Result<Option<OwnedFd>, Failed> {
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
            // WRITE_FILE, REMOVE_*, MAKE_{DIR,REG,FIFO,SYM}, REFER, TRUNCATE; no devices and no sockets.
            rights |= 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 13 | 1 << 14;
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

// ---------------------------------------------------------------------------------------------------------------------
// The command: what runs between the fork and the program
// ---------------------------------------------------------------------------------------------------------------------

/// All that the forked child needs, laid out before the fork, so that it only makes system calls.
struct Launch {
    stdio: Option<[RawFd; 3]>,
    report: RawFd,
    programs: Vec<CString>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    limits: Vec<(c_int, [u64; 2])>,
    identity: Option<(u32, u32)>,
    ruleset: Option<OwnedFd>,
    filter: Vec<Instruction>,
    /// The request itself, for the copy of the runner that a wrapper starts with `--apply`.
    handed_on: Option<OwnedFd>,
}

impl Launch {
    fn prepare(
        exec: &Exec,
        plan: &Plan,
        facts: &Facts,
        ends: Option<[RawFd; 3]>,
        report: RawFd,
    ) -> Result<Launch, Failed> {
        let wrapped = !exec.wrapper.is_empty();
        let argv = if wrapped { &exec.wrapper } else { &exec.argv };
        let pointers = |list: &[CString]| list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        let path = exec.env.iter().find_map(|pair| pair.to_bytes().strip_prefix(b"PATH=")).unwrap_or(b"/usr/bin:/bin");
        let name = argv[0].to_bytes();
        let programs = if name.contains(&b'/') {
            vec![argv[0].clone()]
        } else {
            path.split(|byte| *byte == b':')
                .filter_map(|folder| CString::new([folder, b"/", name].concat()).ok())
                .collect()
        };
        let inside = plan.in_force & guard::NAMESPACES != 0;
        let mut wanted = vec![(4, u64::MAX)]; // RLIMIT_CORE, at zero below
        wanted.extend([7, 1, 9, 2, 0, 6].into_iter().zip(exec.limits)); // NOFILE FSIZE AS DATA CPU NPROC
        if plan.namespaces && exec.processes > 0 {
            // Counted by user namespace, so by command. The polled limit below it kills and names the reason.
            wanted.push((6, u64::from(exec.processes) + u64::from(exec.processes) / 4 + 16));
        }
        let mut limits = Vec::new();
        for (resource, value) in wanted.into_iter().filter(|(_, value)| *value != 0) {
            let mut now = [0; 2];
            libc!(getrlimit(resource, &mut now)).map_err(at(Step::Limits))?;
            let value = if resource == 4 { 0 } else { value.min(now[1]) };
            limits.push((resource, [value, value]));
        }
        Ok(Launch {
            stdio: ends,
            report,
            programs,
            argv: pointers(argv),
            envp: pointers(&exec.env),
            limits,
            identity: if plan.namespaces { None } else { plan.identity() },
            ruleset: if wrapped { None } else { ruleset(exec, facts.landlock)? },
            filter: if wrapped || !facts.seccomp { Vec::new() } else { filter(exec, inside) },
            handed_on: None,
        })
    }

    /// Becomes the program. Returns only if that failed. Makes system calls only: no allocation, no lock.
    fn run(&self, exec: &Exec) -> (Step, Errno) {
        match self.try_run(exec) {
            Ok(errno) => (Step::Program, errno),
            Err(failed) => failed,
        }
    }

    fn try_run(&self, exec: &Exec) -> Result<Errno, (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        let empty: SignalSet = [0; 16];
        // Ignored signals and the mask outlive an exec; both are the runner's own affair.
        for number in 1..=64 {
            // SAFETY: installs the default action; there is no handler to be unsound.
            unsafe { signal(number, 0) };
        }
        libc!(sigprocmask(2, &empty, std::ptr::null_mut())).map_err(at(Step::Streams))?;
        if let Some(ends) = self.stdio {
            libc!(setsid()).map_err(at(Step::Streams))?;
            for (place, end) in ends.iter().enumerate() {
                libc!(dup2(*end, place as c_int)).map_err(at(Step::Streams))?;
            }
        }
        for (resource, limit) in &self.limits {
            libc!(setrlimit(*resource, limit)).map_err(at(Step::Limits))?;
        }
        // SAFETY: cannot fail and touches no memory.
        unsafe { umask(exec.umask & 0o777) };
        if let Some((uid, gid)) = self.identity {
            // The supervisor's real uid is still root, so the capabilities come back for these calls.
            sys!(nr::SETRESUID, DEFAULT_ID, 0, DEFAULT_ID).map_err(at(Step::Identity))?;
            sys!(nr::SETGROUPS, 0, 0).map_err(at(Step::Identity))?;
            sys!(nr::SETRESGID, gid, gid, gid).map_err(at(Step::Identity))?;
            drop_bounding();
            sys!(nr::SETRESUID, uid, uid, uid).map_err(at(Step::Identity))?;
        }
        libc!(chdir(exec.cwd.as_ptr())).map_err(at(Step::Directory))?;
        libc!(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)).map_err(at(Step::Identity))?;
        let handed_on = self.handed_on.is_some();
        if !handed_on {
            drop_bounding();
            let (header, none) = ([0x2008_0522u32, 0], [0u32; 6]);
            sys!(nr::CAPSET, address(&header), address(&none)).map_err(at(Step::Capabilities))?;
            libc!(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)).map_err(at(Step::Capabilities))?;
        }
        // Marks every descriptor of ours to be closed by the exec; the report pipe must live until then.
        let _ = sys!(nr::CLOSE_RANGE, 3, u32::MAX, 4);
        if let Some(set) = &self.ruleset {
            sys!(nr::LANDLOCK_RESTRICT_SELF, set.as_raw_fd(), 0).map_err(at(Step::Landlock))?;
        }
        if !self.filter.is_empty() {
            let program = (self.filter.len() as u16, self.filter.as_ptr());
            sys!(nr::SECCOMP, 1, 0, address(&program)).map_err(at(Step::Seccomp))?;
        }
        if let Some(request) = &self.handed_on {
            libc!(dup2(request.as_raw_fd(), 3)).map_err(at(Step::Streams))?;
            libc!(dup2(self.report, 4)).map_err(at(Step::Streams))?;
        }
        let mut last = ENOENT;
        for program in &self.programs {
            // SAFETY: both lists end in null and point at texts that `exec` and `self` keep alive.
            unsafe { execve(program.as_ptr(), self.argv.as_ptr(), self.envp.as_ptr()) };
            match errno() {
                ENOENT | ENOTDIR => {}
                EACCES => last = EACCES,
                other => return Ok(other),
            }
        }
        Ok(last)
    }
}

/// Empties the bounding set. Without CAP_SETPCAP it fails, and then no_new_privs does the same work.
fn drop_bounding() {
    for capability in 0..64 {
        if libc!(prctl(PR_CAPBSET_DROP, capability as c_long, 0, 0, 0)).is_err() {
            return;
        }
    }
}

/// `--apply`: what a wrapper such as bubblewrap starts inside its own namespaces. Descriptor 3 holds the request,
/// descriptor 4 takes the report of a failure. Applies the rest of the policy and becomes the program.
fn apply() -> ! {
    let mut payload = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = read_some(3, &mut chunk) {
        payload.extend_from_slice(&chunk[..count]);
    }
    let (step, errno) = match Exec::decode(&payload) {
        Err(_) => (Step::Streams, 0),
        Ok(mut exec) => {
            exec.wrapper.clear();
            let in_force = exec.vouched & guard::VOUCHED;
            let plan = Plan { namespaces: false, netns: false, user: (0, 0), becomes: false, in_force };
            match Launch::prepare(&exec, &plan, &Facts::find(), None, 4) {
                Ok(launch) => launch.run(&exec),
                Err(Failed(step, errno, _)) => (step, errno),
            }
        }
    };
    let _ = write_some(4, &failure_record(step, errno));
    quit(127)
}

fn failure_record(step: Step, errno: Errno) -> [u8; 5] {
    let [a, b, c, d] = errno.to_le_bytes();
    [step as u8, a, b, c, d]
}

// ---------------------------------------------------------------------------------------------------------------------
// The supervisor: one process for each command
// ---------------------------------------------------------------------------------------------------------------------

/// Why a command ended. The numbers are part of the protocol.
#[derive(Clone, Copy, PartialEq)]
enum Why {
    Exited = 0,
    Signal = 1,
    Deadline = 2,
    Memory = 3,
    Processes = 4,
    Disk = 5,
    Killed = 6,
    Lost = 7,
}

/// The descriptors that a supervisor keeps.
struct Ends {
    control: RawFd,
    stdio: [RawFd; 3],
    null: RawFd,
}

/// Runs in the forked supervisor and never returns. As the first process of a PID namespace, or as a subreaper, it owns
/// every process of its command, also after a double fork and `setsid`.
fn supervise(exec: &Exec, plan: &Plan, facts: &Facts, ends: &Ends, payload: Option<&[u8]>) -> ! {
    let (signals, tunnels) = match set_up(exec, plan, ends) {
        Ok(set) => set,
        Err(failed) => refuse(ends, &failed),
    };
    let Some(payload) = payload else {
        quit(0) // the probe at start: all that it should show is that the set-up works
    };
    let start = || {
        let (report, write_end) = pipe_pair().map_err(at(Step::Streams))?;
        let write_end = duplicate(write_end.as_raw_fd(), 16).map_err(at(Step::Streams))?;
        let mut launch = Launch::prepare(exec, plan, facts, Some(ends.stdio), write_end.as_raw_fd())?;
        if !exec.wrapper.is_empty() {
            let request = sys!(nr::MEMFD_CREATE, c"request".as_ptr(), 1).map_err(at(Step::Streams))?;
            let request = duplicate(owned(request as c_int).as_raw_fd(), 16).map_err(at(Step::Streams))?;
            fs::write(format!("/proc/self/fd/{}", request.as_raw_fd()), payload)
                .map_err(|error| at(Step::Streams)(error.raw_os_error().unwrap_or(0)))?;
            launch.handed_on = Some(request);
        }
        let base =
            if exec.disk > 0 { occupied(exec, &[]).ok_or(Failed(Step::Disk, EACCES, String::new()))? } else { 0 };
        let started = Instant::now();
        let main = sys!(nr::CLONE, SIGCHLD, 0, 0, 0, 0).map_err(at(Step::Program))? as i32;
        if main == 0 {
            let (step, errno) = launch.run(exec);
            let _ = write_some(launch.report, &failure_record(step, errno));
            quit(127);
        }
        Ok((report, main, base, started))
    };
    let (report, main, base, started) = match start() {
        Ok(started) => started,
        Err(failed) => refuse(ends, &failed),
    };
    for end in ends.stdio.into_iter().filter(|end| *end != ends.null) {
        drop(owned(end));
    }
    if exec.wrapper.is_empty()
        && let Some(failed) = failure_in(&report, exec)
    {
        refuse(ends, &failed);
    }
    let tunnel_fds: Vec<RawFd> = tunnels.iter().map(AsRawFd::as_raw_fd).collect();
    let _ = send_message(ends.control, b"S", &tunnel_fds);
    drop(tunnels);
    let tree = Tree { main, base, exec, inside: plan.namespaces, started };
    let result = tree.watch(ends.control, &signals);
    let wrapped = !exec.wrapper.is_empty() && set_nonblocking(report.as_raw_fd()).is_ok();
    if wrapped && let Some(failed) = failure_in(&report, exec) {
        refuse(ends, &failed);
    }
    let mut message = vec![b'R', result.why as u8];
    message.extend_from_slice(&result.status.to_le_bytes());
    for number in [result.duration_us, result.max_rss_kib, result.cpu_us] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    let _ = send_message(ends.control, &message, &[]);
    quit(0)
}

/// Tells the runner why the command is not run, and ends.
fn refuse(ends: &Ends, failed: &Failed) -> ! {
    let Refusal(code, text) = failed.refusal();
    let _ = send_message(ends.control, &[&[b'X', code as u8], text.as_bytes()].concat(), &[]);
    quit(1)
}

/// Reads what the child reported. Nothing means that it has become its program.
fn failure_in(report: &OwnedFd, exec: &Exec) -> Option<Failed> {
    let mut record = [0; 5];
    let count = loop {
        match read_some(report.as_raw_fd(), &mut record) {
            Err(EINTR) => {}
            other => break other.unwrap_or(0),
        }
    };
    if count < 5 {
        return None;
    }
    let step = Step::ALL.get(record[0] as usize).copied().unwrap_or(Step::Program);
    let what = match step {
        Step::Program if exec.wrapper.is_empty() => exec.argv[0].to_string_lossy().into_owned(),
        Step::Directory => exec.cwd.to_string_lossy().into_owned(),
        _ => String::new(),
    };
    Some(Failed(step, i32::from_le_bytes([record[1], record[2], record[3], record[4]]), what))
}

fn set_up(exec: &Exec, plan: &Plan, ends: &Ends) -> Result<(OwnedFd, Vec<TcpListener>), Failed> {
    // What the runner holds for other commands must not live on here: their ends would never close.
    close_all_but(&[ends.control, ends.stdio[0], ends.stdio[1], ends.stdio[2], ends.null]);
    for place in 0..3 {
        libc!(dup2(ends.null, place)).map_err(at(Step::Streams))?;
    }
    let signals = signals_as_reads(&[SIGCHLD]).map_err(at(Step::Streams))?;
    libc!(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)).map_err(at(Step::Streams))?;
    // A process that cannot be dumped does not own its files in /proc. It must for these few writes.
    libc!(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)).map_err(at(Step::Map))?;
    // The kernel's out-of-memory killer should take commands before the daemon. Raising the score needs no privilege.
    let _ = fs::write("/proc/self/oom_score_adj", "800");
    if plan.namespaces {
        let (uid, gid) = plan.user;
        let maps = [
            ("setgroups", "deny".into()),
            ("gid_map", format!("{gid} {gid} 1")),
            ("uid_map", format!("{uid} {uid} 1")),
        ];
        for (file, text) in maps {
            fs::write(format!("/proc/self/{file}"), text)
                .map_err(|error| Failed(Step::Map, error.raw_os_error().unwrap_or(0), file.into()))?;
        }
        sys!(nr::SETRESGID, gid, gid, gid).map_err(at(Step::Map))?;
        sys!(nr::SETRESUID, uid, uid, uid).map_err(at(Step::Map))?;
        arrange_mounts(exec)?;
        // The death of the first process takes the whole PID namespace with it.
        libc!(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)).map_err(at(Step::Map))?;
    }
    libc!(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)).map_err(at(Step::Map))?;
    let mut tunnels = Vec::new();
    if plan.netns && exec.network != Network::None {
        raise_loopback().map_err(at(Step::Loopback))?;
        for port in &exec.tunnel {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port));
            tunnels.push(listener.map_err(|error| at(Step::Tunnel)(error.raw_os_error().unwrap_or(0)))?);
        }
    }
    Ok((signals, tunnels))
}

/// Brings the loopback device of a new network namespace up.
fn raise_loopback() -> Result<(), Errno> {
    let fd = owned(libc!(socket(AF_INET as c_int, 2 | O_CLOEXEC, 0))?);
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16] = 1; // IFF_UP
    libc!(ioctl(fd.as_raw_fd(), 0x8914, request.as_mut_ptr())).map(drop) // SIOCSIFFLAGS
}

struct Ended {
    why: Why,
    status: i32,
    duration_us: u64,
    max_rss_kib: u64,
    cpu_us: u64,
}

/// The processes of one command.
struct Tree<'a> {
    main: i32,
    /// Bytes in its writable places before it started.
    base: u64,
    exec: &'a Exec,
    inside: bool,
    started: Instant,
}

impl Tree<'_> {
    /// Waits for the end of the command, enforcing what the kernel does not. Returns when no process is left.
    fn watch(&self, control: RawFd, signals: &OwnedFd) -> Ended {
        let mut ended = Ended { why: Why::Exited, status: 0, duration_us: 0, max_rss_kib: 0, cpu_us: 0 };
        let deadline =
            (self.exec.deadline_ms > 0).then(|| self.started + Duration::from_millis(self.exec.deadline_ms.into()));
        let measured = self.exec.memory > 0 || self.exec.processes > 0 || self.exec.disk > 0;
        let mut measure_at = measured.then(|| self.started + POLL / 2);
        let (mut main_lives, mut verdict) = (true, None);
        loop {
            let left = self.collect(&mut ended, &mut main_lives);
            if !left {
                break;
            }
            if verdict.is_some() || (!main_lives && !self.exec.has(flag::BACKGROUND)) {
                self.kill_all(&mut ended, &mut main_lives);
                break;
            }
            let now = Instant::now();
            let until = [deadline, measure_at].into_iter().flatten().min();
            let mut fds = [control, signals.as_raw_fd()].map(|fd| PollFd { fd, events: POLLIN, ready: 0 });
            let _ = wait_ready(&mut fds, until.map(|until| until.saturating_duration_since(now)));
            if fds[1].ready != 0 {
                let mut drained = [0; 512];
                let _ = read_some(signals.as_raw_fd(), &mut drained);
            }
            if fds[0].ready != 0 {
                verdict = self.obey(control, main_lives);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                verdict = verdict.or(Some(Why::Deadline));
            }
            if measure_at.is_some_and(|due| Instant::now() >= due) {
                let began = Instant::now();
                verdict = verdict.or_else(|| self.excess());
                // A slow measurement (a large workspace) must not become the main work.
                measure_at = Some(Instant::now() + POLL.max(began.elapsed() * 10));
            }
        }
        ended.duration_us = self.started.elapsed().as_micros() as u64;
        ended.why = verdict.unwrap_or(if ended.status & 0x7F == 0 { Why::Exited } else { Why::Signal });
        ended
    }

    /// Takes one order of the runner. The end of the runner is an order to kill.
    fn obey(&self, control: RawFd, main_lives: bool) -> Option<Why> {
        let mut order = [0; 8];
        match receive_message(control, &mut order) {
            Err(EAGAIN | EINTR) => None,
            Ok((2, _)) if order[0] == b'G' => {
                // After the main process its group's number may be somebody else's.
                if main_lives || self.inside {
                    send_signal(-self.main, i32::from(order[1]));
                }
                None
            }
            _ => Some(Why::Killed),
        }
    }

    /// Reaps what has ended. False when no child is left: as every orphan comes to us, then the tree is gone.
    fn collect(&self, ended: &mut Ended, main_lives: &mut bool) -> bool {
        loop {
            match reap() {
                Ok(Some((pid, status, usage))) => {
                    ended.max_rss_kib = ended.max_rss_kib.max(usage[4] as u64);
                    ended.cpu_us += ((usage[0] + usage[2]) * 1_000_000 + usage[1] + usage[3]) as u64;
                    if pid == self.main {
                        ended.status = status;
                        *main_lives = false;
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn kill_all(&self, ended: &mut Ended, main_lives: &mut bool) {
        loop {
            if self.inside {
                send_signal(-1, SIGKILL); // everything in the namespace but us, in one step
            } else {
                kill_descendants(&[]);
            }
            if !self.collect(ended, main_lives) {
                return;
            }
            let _ = wait_ready(&mut [], Some(Duration::from_millis(1)));
        }
    }

    /// Which limit the tree is over, if any.
    fn excess(&self) -> Option<Why> {
        let tree = descendants(&[]);
        let (mut kib, mut tasks) = (0, 0);
        for pid in &tree {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            for (name, rest) in status.lines().filter_map(|line| line.split_once(':')) {
                let number = || rest.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
                match name {
                    // Not file pages: the kernel takes those back by itself.
                    "RssAnon" | "RssShmem" | "VmSwap" | "VmPTE" => kib += number(),
                    "Threads" => tasks += number(),
                    _ => {}
                }
            }
        }
        if self.exec.memory > 0 && kib * 1024 > self.exec.memory {
            return Some(Why::Memory);
        }
        if self.exec.processes > 0 && tasks > u64::from(self.exec.processes) {
            return Some(Why::Processes);
        }
        let fits = |now: u64| now <= self.base.saturating_add(self.exec.disk);
        (self.exec.disk > 0 && !occupied(self.exec, &tree).is_some_and(fits)).then_some(Why::Disk)
    }
}

/// The direct children of a process, of all its threads.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>()).collect()
}

/// The children of every process, from one look at all of them: for kernels built without the lists of children.
fn families() -> BTreeMap<i32, Vec<i32>> {
    let mut families: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        families.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    families
}

/// Every process below this one, but for the given children and what is below them.
fn descendants(but: &[i32]) -> Vec<i32> {
    let me = process_id();
    let listed = Path::new(&format!("/proc/{me}/task/{me}/children")).exists();
    let families = if listed { BTreeMap::new() } else { families() };
    let below = |pid: i32| if listed { children(pid) } else { families.get(&pid).cloned().unwrap_or_default() };
    let mut tree: Vec<i32> = below(me).into_iter().filter(|pid| !but.contains(pid)).collect();
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        tree.extend(below(*pid));
        next += 1;
    }
    tree
}

/// Stops the tree before killing it, so that a fork bomb cannot outrun the list. Called again until nothing is left.
fn kill_descendants(but: &[i32]) {
    let mut known = HashSet::new();
    for _ in 0..64 {
        let tree = descendants(but);
        let fresh: Vec<i32> = tree.into_iter().filter(|pid| known.insert(*pid)).collect();
        if fresh.is_empty() {
            break;
        }
        fresh.iter().for_each(|pid| send_signal(*pid, SIGSTOP));
    }
    known.iter().for_each(|pid| send_signal(*pid, SIGKILL));
}

/// Bytes in the writable places of a command, and in files that its processes hold open without a name. `None` if that
/// cannot be found out, which a command can bring about and which therefore counts as excess.
fn occupied(exec: &Exec, tree: &[i32]) -> Option<u64> {
    let (mut sum, mut linked) = (0u64, HashSet::new());
    let mut add = |data: &fs::Metadata| {
        // A name costs something too: a million empty files are no small thing.
        if data.nlink() == 1 || data.is_dir() || linked.insert((data.dev(), data.ino())) {
            sum += data.blocks() * 512 + 512;
        }
    };
    // SAFETY: cannot fail and touches no memory.
    let own = unsafe { geteuid() };
    let gone = |error: &io::Error| matches!(error.raw_os_error(), Some(ENOENT | ENOTDIR));
    for (_, path) in exec.paths.iter().filter(|(access, _)| access & access::WRITE != 0) {
        let top = PathBuf::from(OsStr::from_bytes(path.to_bytes()));
        let Ok(data) = fs::symlink_metadata(&top) else { continue };
        add(&data);
        let (device, mut folders) = (data.dev(), if data.is_dir() { vec![top] } else { Vec::new() });
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if gone(&error) => continue,
                // A folder that was somebody else's before cannot grow by this command.
                Err(_) if fs::symlink_metadata(&folder).is_ok_and(|data| data.uid() != own) => continue,
                Err(_) => return None,
            };
            for entry in entries {
                match entry.and_then(|entry| entry.metadata().map(|data| (entry, data))) {
                    Ok((entry, data)) if data.dev() == device => {
                        add(&data);
                        if data.is_dir() {
                            folders.push(entry.path());
                        }
                    }
                    Err(error) if !gone(&error) => return None,
                    _ => {}
                }
            }
        }
    }
    for pid in tree {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(data) = fs::metadata(entry.path()) else { continue };
            if data.is_file() && data.nlink() == 0 && linked.insert((data.dev(), data.ino())) {
                sum += data.blocks() * 512;
            }
        }
    }
    Some(sum)
}

// ---------------------------------------------------------------------------------------------------------------------
// Streams
// ---------------------------------------------------------------------------------------------------------------------

/// The reading side of a stream: a command's stdout (1) or stderr (2), or what a connection receives (0).
struct Pump {
    channel: u8,
    fd: Option<OwnedFd>,
    credit: u32,
    /// The daemon wants no more: what comes is counted and dropped.
    discard: bool,
    total: u64,
}

/// The writing side: a command's stdin, or what a connection sends. It never holds more than a window.
struct Sink {
    fd: OwnedFd,
    waiting: Vec<u8>,
    /// What the daemon may still send, and what it has not yet been granted again.
    allowed: u32,
    owed: u32,
    closing: bool,
}

impl Sink {
    fn new(fd: OwnedFd) -> Sink {
        Sink { fd, waiting: Vec::new(), allowed: WINDOW, owed: 0, closing: false }
    }
}

enum Kind {
    Command {
        pid: i32,
        control: OwnedFd,
        in_force: u32,
        started: bool,
        report: Option<Report>,
        force_at: Option<Instant>,
    },
    Connection {
        connecting: bool,
        error: Errno,
    },
    Listener {
        listener: TcpListener,
        owner: u32,
        port: u16,
    },
}

/// What a supervisor says at the end: the bytes of its message, or the lack of one.
struct Report {
    why: u8,
    status: i32,
    numbers: Vec<u8>,
}

struct Stream {
    kind: Kind,
    pumps: Vec<Pump>,
    sink: Option<Sink>,
    identity: Option<(u32, u32)>,
}

impl Stream {
    fn connection(fd: OwnedFd, connecting: bool) -> Result<Stream, Errno> {
        set_nonblocking(fd.as_raw_fd())?;
        let other = duplicate(fd.as_raw_fd(), 3)?;
        let pump = Pump { channel: 0, fd: Some(fd), credit: 0, discard: false, total: 0 };
        let kind = Kind::Connection { connecting, error: 0 };
        Ok(Stream { kind, pumps: vec![pump], sink: Some(Sink::new(other)), identity: None })
    }
}

/// What a ready descriptor is for.
#[derive(Clone, Copy)]
enum Role {
    Input,
    Output,
    Signals,
    Control(u32),
    Connecting(u32),
    Sink(u32),
    Pump(u32, usize),
    Accept(u32),
}

/// Why the runner ends.
enum End {
    /// The daemon closed the stream, died, or was silent for too long.
    Closed,
    Signal,
    Malformed(String),
    System(&'static str, Errno),
}

struct Runner {
    facts: Facts,
    null: OwnedFd,
    signals: OwnedFd,
    greeted: bool,
    received: Vec<u8>,
    /// The longest silence of the daemon while a command runs, if it promised to speak, and when it last spoke.
    silence: Option<Duration>,
    heard_at: Instant,
    /// Frames not yet written.
    out: Vec<u8>,
    streams: BTreeMap<u32, Stream>,
    /// The next stream that the runner itself opens, an accepted connection. The daemon's ids are below this range.
    next: u32,
}

impl Runner {
    fn new() -> Result<Runner, Errno> {
        libc!(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))?;
        libc!(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))?;
        close_all_but(&[]);
        let null = fs::File::options().read(true).write(true).open("/dev/null");
        let null = duplicate(null.map_err(|error| error.raw_os_error().unwrap_or(0))?.as_raw_fd(), 3)?;
        let signals = signals_as_reads(&[1, 2, 3, 15, SIGCHLD])?;
        let facts = Facts::find();
        if facts.drops {
            sys!(nr::SETGROUPS, 0, 0)?; // what root belonged to is nothing for its commands
        }
        let (received, out, streams) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (silence, heard_at) = (None, Instant::now());
        let greeted = false;
        let mut runner =
            Runner { facts, null, signals, greeted, received, silence, heard_at, out, streams, next: 1 << 31 };
        runner.try_namespaces();
        set_nonblocking(0)?;
        set_nonblocking(1)?;
        let hello = runner.facts.hello();
        runner.frame(kind::HELLO, 0, &[&hello]);
        Ok(runner)
    }

    /// Finds out whether commands can have namespaces by building them once as a command would.
    fn try_namespaces(&mut self) {
        (self.facts.namespaces, self.facts.netns) = (true, true);
        let flags = flag::NAMESPACES | flag::NETNS | flag::PRIVATE_TMP;
        let (uid, gid, cwd) = (DEFAULT_ID, DEFAULT_ID, c"/".into());
        let exec = Exec { flags, network: Network::Private, uid, gid, cwd, tmp_bytes: 1 << 20, ..Exec::default() };
        let failure = match self.launch(&exec, None) {
            Err(Refusal(_, text)) => Some(text),
            Ok(Stream { kind: Kind::Command { pid, control, .. }, .. }) => {
                let mut status = 0;
                let _ = libc!(wait4(pid, &mut status, 0, std::ptr::null_mut()));
                let mut text = [0; 512];
                let said = receive_message(control.as_raw_fd(), &mut text).map_or(0, |(count, _)| count);
                match (status, said) {
                    (0, _) => None,
                    (_, 2..) => Some(String::from_utf8_lossy(&text[2..said]).into_owned()),
                    _ => Some(format!("the probe ended with status {status}")),
                }
            }
            Ok(_) => None,
        };
        if let Some(text) = failure {
            (self.facts.namespaces, self.facts.netns) = (false, false);
            let _ = writeln!(self.facts.reasons, "namespaces: {text}");
        }
    }

    /// Serves until the stream ends, then leaves nothing behind.
    fn serve(&mut self) -> End {
        loop {
            if let Err(end) = self.turn() {
                self.finish(&end);
                return end;
            }
        }
    }

    fn turn(&mut self) -> Result<(), End> {
        let (mut fds, roles) = self.interest();
        let force = self.streams.values().filter_map(|stream| match &stream.kind {
            Kind::Command { force_at, .. } => *force_at,
            _ => None,
        });
        let runs = self.streams.values().any(|stream| matches!(stream.kind, Kind::Command { .. }));
        let silent_at = self.silence.filter(|_| runs).map(|silence| self.heard_at + silence);
        let due = force.chain(silent_at).min();
        let timeout = due.map(|at| at.saturating_duration_since(Instant::now()));
        wait_ready(&mut fds, timeout).map_err(|errno| End::System("poll", errno))?;
        for (fd, role) in fds.iter().zip(roles).filter(|(fd, _)| fd.ready != 0) {
            match role {
                Role::Signals => self.on_signals()?,
                Role::Control(id) => self.on_control(id),
                Role::Connecting(id) => self.on_connected(id),
                Role::Sink(id) => self.feed(id),
                Role::Pump(id, index) => self.pump(id, index, false),
                Role::Accept(id) => self.accept(id),
                Role::Output if fd.ready & !POLLOUT != 0 => return Err(End::Closed),
                Role::Output => {}
                Role::Input => self.input()?,
            }
        }
        // Input that came meanwhile has been read above.
        if silent_at.is_some_and(|_| self.silence.is_some_and(|silence| self.heard_at.elapsed() >= silence)) {
            return Err(End::Closed);
        }
        self.settle();
        self.flush()
    }

    /// The descriptors to wait for. News of commands comes before their output, and output before new input.
    fn interest(&self) -> (Vec<PollFd>, Vec<Role>) {
        let mut fds = Vec::with_capacity(4 + self.streams.len() * 4);
        let mut roles = Vec::with_capacity(fds.capacity());
        let mut add = |fd: RawFd, events: i16, role| {
            fds.push(PollFd { fd, events, ready: 0 });
            roles.push(role);
        };
        add(self.signals.as_raw_fd(), POLLIN, Role::Signals);
        let room = self.out.len() < OUT_LIMIT;
        for (id, stream) in &self.streams {
            match &stream.kind {
                Kind::Command { control, report: None, .. } => add(control.as_raw_fd(), POLLIN, Role::Control(*id)),
                // No command may use up the streams that others need.
                Kind::Listener { listener, .. } if room && self.streams.len() < MAX_STREAMS / 2 => {
                    add(listener.as_raw_fd(), POLLIN, Role::Accept(*id));
                }
                _ => {}
            }
        }
        for (id, stream) in &self.streams {
            if let Kind::Connection { connecting: true, .. } = stream.kind {
                if let Some(sink) = &stream.sink {
                    add(sink.fd.as_raw_fd(), POLLOUT, Role::Connecting(*id));
                }
                continue;
            }
            if let Some(sink) = stream.sink.as_ref().filter(|sink| !sink.waiting.is_empty()) {
                add(sink.fd.as_raw_fd(), POLLOUT, Role::Sink(*id));
            }
            if matches!(stream.kind, Kind::Command { started: false, .. }) || !room {
                continue;
            }
            for (index, pump) in stream.pumps.iter().enumerate() {
                if let (Some(fd), true) = (&pump.fd, pump.discard || pump.credit > 0) {
                    add(fd.as_raw_fd(), POLLIN, Role::Pump(*id, index));
                }
            }
        }
        add(1, if self.out.is_empty() { 0 } else { POLLOUT }, Role::Output);
        if room {
            add(0, POLLIN, Role::Input);
        }
        (fds, roles)
    }

    // --- Frames ---

    fn frame(&mut self, kind: u8, id: u32, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.out.extend_from_slice(&(length as u32).to_le_bytes());
        self.out.push(kind | kind::FROM_RUNNER);
        self.out.extend_from_slice(&id.to_le_bytes());
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
    }

    fn refuse(&mut self, id: u32, Refusal(code, text): Refusal) {
        self.frame(kind::REFUSED, id, &[&(code as u16).to_le_bytes(), text.as_bytes()]);
    }

    fn flush(&mut self) -> Result<(), End> {
        let mut done = 0;
        while done < self.out.len() {
            match write_some(1, &self.out[done..]) {
                Ok(count) => done += count,
                Err(EINTR) => {}
                Err(EAGAIN) => break,
                Err(_) => return Err(End::Closed),
            }
        }
        self.out.drain(..done);
        Ok(())
    }

    fn input(&mut self) -> Result<(), End> {
        let mut chunk = [0; CHUNK];
        match read_some(0, &mut chunk) {
            Ok(0) => return Err(End::Closed),
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                self.heard_at = Instant::now();
            }
            Err(EAGAIN | EINTR) => {}
            Err(errno) => return Err(End::System("read", errno)),
        }
        let received = std::mem::take(&mut self.received);
        let mut rest = received.as_slice();
        while let Some((header, body)) = rest.split_at_checked(9) {
            let mut fields = Fields(header);
            let (length, kind, id) = (fields.u32()? as usize, fields.u8()?, fields.u32()?);
            if length > MAX_FRAME {
                return Err(End::Malformed(format!("frame of {length} bytes; at most {MAX_FRAME}")));
            }
            let Some((payload, next)) = body.split_at_checked(length) else { break };
            self.take(kind, id, payload)?;
            rest = next;
        }
        self.received = rest.to_vec();
        Ok(())
    }

    /// Obeys one frame. Frames for a stream that has just ended cross its last frame on the way; they are ignored.
    fn take(&mut self, kind: u8, id: u32, payload: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields(payload);
        if !self.greeted {
            if kind != kind::HELLO {
                return Err(Malformed("the first frame must be HELLO".into()));
            }
            let version = fields.u16()?;
            if version != VERSION {
                return Err(Malformed(format!("version {version}; this runner speaks {VERSION}")));
            }
            self.greeted = true;
            return fields.end();
        }
        if matches!(kind, kind::EXEC | kind::DIAL | kind::LISTEN) {
            if self.streams.contains_key(&id) || id >> 31 != 0 {
                return Err(Malformed(format!("stream {id} is in use or out of range")));
            }
            return self.open(kind, id, payload);
        }
        match kind {
            kind::DATA | kind::EOF => {
                if fields.u8()? != 0 {
                    return Err(Malformed("only channel 0 can be written".into()));
                }
                let data = fields.take(fields.0.len())?;
                let Some(sink) = self.streams.get_mut(&id).and_then(|stream| stream.sink.as_mut()) else {
                    return Ok(());
                };
                if data.len() > sink.allowed as usize || sink.closing || (kind == kind::EOF && !data.is_empty()) {
                    return Err(Malformed(format!("stream {id}: more data than was granted, or data after its end")));
                }
                sink.allowed -= data.len() as u32;
                sink.closing = kind == kind::EOF;
                sink.waiting.extend_from_slice(data);
                self.feed(id);
            }
            kind::CREDIT => {
                let (channel, amount) = (fields.u8()?, fields.u32()?);
                fields.end()?;
                let pumps = self.streams.get_mut(&id).map(|stream| &mut stream.pumps);
                for pump in pumps.into_iter().flatten().filter(|pump| pump.channel == channel) {
                    pump.discard |= amount == u32::MAX;
                    pump.credit = pump.credit.saturating_add(amount);
                }
            }
            kind::SIGNAL => {
                let number = fields.u8()?;
                fields.end()?;
                if !(1..=64).contains(&number) {
                    return Err(Malformed(format!("there is no signal {number}")));
                }
                if let Some(Stream { kind: Kind::Command { control, .. }, .. }) = self.streams.get(&id) {
                    let _ = send_message(control.as_raw_fd(), &[b'G', number], &[]);
                }
            }
            kind::KILL => {
                fields.end()?;
                if let Some(Stream { kind: Kind::Command { control, force_at, .. }, .. }) = self.streams.get_mut(&id) {
                    let _ = send_message(control.as_raw_fd(), b"K", &[]);
                    *force_at = Some(Instant::now() + GRACE);
                }
            }
            kind::CLOSE => {
                fields.end()?;
                if self.streams.get(&id).is_some_and(|stream| !matches!(stream.kind, Kind::Command { .. })) {
                    self.streams.remove(&id);
                    self.frame(kind::CLOSED, id, &[&0i32.to_le_bytes()]);
                }
            }
            kind::WATCH => {
                let seconds = fields.u16()?;
                fields.end()?;
                self.silence = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            _ => return Err(Malformed(format!("unknown frame {kind:#04x}"))),
        }
        Ok(())
    }

    fn open(&mut self, kind: u8, id: u32, payload: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields(payload);
        let opened = if self.streams.len() >= MAX_STREAMS {
            Err(Refusal(Refused::TooMany, format!("at most {MAX_STREAMS} streams")))
        } else if kind == kind::EXEC {
            let exec = Exec::decode(payload)?;
            self.launch(&exec, Some(payload))
        } else if kind == kind::DIAL {
            let (host, port) = (fields.text()?, fields.u16()?);
            fields.end()?;
            dial(&host.to_string_lossy(), port)
        } else {
            let port = fields.u16()?;
            fields.end()?;
            self.listen(id, port)
        };
        match opened {
            Ok(stream) => drop(self.streams.insert(id, stream)),
            Err(refusal) => self.refuse(id, refusal),
        }
        Ok(())
    }

    // --- Commands ---

    /// Starts the supervisor of a command. Without a payload it only tries the set-up.
    fn launch(&self, exec: &Exec, payload: Option<&[u8]>) -> Result<Stream, Refusal> {
        let plan = Plan::new(exec, &self.facts)?;
        let system = |errno| Refusal(Refused::SetUp, format!("process: {}", io::Error::from_raw_os_error(errno)));
        let start = || -> Result<Stream, Errno> {
            let mut pair = [0; 2];
            libc!(socketpair(AF_UNIX as c_int, SOCK_SEQPACKET as c_int | O_CLOEXEC, 0, pair.as_mut_ptr()))?;
            let (control, theirs) = (owned(pair[0]), owned(pair[1]));
            let (stdin, sink) = if exec.has(flag::STDIN) {
                let (stdin, ours) = pipe_pair()?;
                set_nonblocking(ours.as_raw_fd())?;
                (Some(stdin), Some(Sink::new(ours)))
            } else {
                (None, None)
            };
            let (mut pumps, mut outs) = (Vec::new(), Vec::new());
            for (channel, credit) in [1, 2].into_iter().zip(exec.credit) {
                let (ours, out) = pipe_pair()?;
                set_nonblocking(ours.as_raw_fd())?;
                pumps.push(Pump { channel, fd: Some(ours), credit, discard: credit == u32::MAX, total: 0 });
                outs.push(out);
            }
            let null = self.null.as_raw_fd();
            let stdin = stdin.as_ref().map_or(null, AsRawFd::as_raw_fd);
            let stdio = [stdin, outs[0].as_raw_fd(), outs[1].as_raw_fd()];
            let spaces = if plan.namespaces { CLONE_NAMESPACES } else { 0 };
            let network = if plan.netns { CLONE_NEWNET } else { 0 };
            let pid = sys!(nr::CLONE, spaces | network | SIGCHLD as usize, 0, 0, 0, 0)? as i32;
            if pid == 0 {
                let ends = Ends { control: theirs.as_raw_fd(), stdio, null };
                supervise(exec, &plan, &self.facts, &ends, payload);
            }
            // A supervisor enforces the deadline. Should it hang (a dead network mount), it is killed itself.
            let limit = (exec.deadline_ms > 0).then(|| Duration::from_millis(exec.deadline_ms.into()) + GRACE);
            let force_at = limit.map(|limit| Instant::now() + limit);
            let kind = Kind::Command { pid, control, in_force: plan.in_force, started: false, report: None, force_at };
            Ok(Stream { kind, pumps, sink, identity: plan.identity() })
        };
        with_identity(plan.identity(), start).and_then(|started| started).map_err(system)
    }

    /// Takes what a supervisor says: started, refused or ended. Its silence is the loss of the command.
    fn on_control(&mut self, id: u32) {
        let mut message = [0; 4096];
        let Some(Stream { kind: Kind::Command { control, in_force, started, report, .. }, .. }) =
            self.streams.get_mut(&id)
        else {
            return;
        };
        let (count, fds) = match receive_message(control.as_raw_fd(), &mut message) {
            Err(EAGAIN | EINTR) => return,
            Err(_) => (0, Vec::new()),
            Ok(received) => received,
        };
        match message[..count] {
            [b'S'] => {
                *started = true;
                let bits = in_force.to_le_bytes();
                self.frame(kind::STARTED, id, &[&bits]);
                self.adopt(id, fds);
            }
            [b'X', code, ref text @ ..] => {
                let (code, text) = (u16::from(code).to_le_bytes(), text.to_vec());
                self.streams.remove(&id);
                self.frame(kind::REFUSED, id, &[&code, &text]);
            }
            [b'R', why, a, b, c, d, ref numbers @ ..] => {
                let status = i32::from_le_bytes([a, b, c, d]);
                *report = Some(Report { why, status, numbers: numbers.to_vec() });
            }
            _ => {
                *report = Some(Report { why: Why::Lost as u8, status: 0, numbers: vec![0; 24] });
                *started = true;
                self.sweep();
            }
        }
    }

    /// Takes over the listening sockets that a supervisor opened in its command's network.
    fn adopt(&mut self, owner: u32, fds: Vec<OwnedFd>) {
        for listener in fds.into_iter().map(TcpListener::from) {
            let port = listener.local_addr().map_or(0, |address| address.port());
            if listener.set_nonblocking(true).is_ok() {
                let id = self.new_id();
                let kind = Kind::Listener { listener, owner, port };
                self.streams.insert(id, Stream { kind, pumps: Vec::new(), sink: None, identity: None });
            }
        }
    }

    fn on_signals(&mut self) -> Result<(), End> {
        let mut records = [0u8; 128 * 16];
        let count = read_some(self.signals.as_raw_fd(), &mut records).unwrap_or(0);
        if records[..count].chunks_exact(128).any(|record| i32::from(record[0]) != SIGCHLD) {
            return Err(End::Signal);
        }
        while let Ok(Some(_)) = reap() {}
        Ok(())
    }

    /// Kills what a dead supervisor left to us: every child that is not a supervisor.
    fn sweep(&mut self) {
        let lost = |stream: &Stream| match &stream.kind {
            Kind::Command { pid, report, .. } => report.is_none().then_some(*pid),
            _ => None,
        };
        let known: Vec<i32> = self.streams.values().filter_map(lost).collect();
        let identities: HashSet<Option<(u32, u32)>> = self.streams.values().map(|stream| stream.identity).collect();
        for _ in 0..1000 {
            while let Ok(Some(_)) = reap() {}
            if descendants(&known).is_empty() {
                return;
            }
            for identity in &identities {
                let _ = with_identity(*identity, || kill_descendants(&known));
            }
            let _ = wait_ready(&mut [], Some(Duration::from_millis(1)));
        }
    }

    /// Moves bytes from a command or connection to the daemon, as far as its credit goes. When `last`, no writer lives:
    /// an empty pipe has then ended, whoever else may hold it.
    fn pump(&mut self, id: u32, index: usize, last: bool) {
        let mut chunk = [0; CHUNK];
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let pump = &mut stream.pumps[index];
        let Some(fd) = &pump.fd else { return };
        let room = if pump.discard { CHUNK } else { CHUNK.min(pump.credit as usize) };
        if room == 0 {
            // Only the end can be told without credit.
            let mut waiting: c_int = 0;
            if last && libc!(ioctl(fd.as_raw_fd(), 0x541B, &raw mut waiting)).is_ok() && waiting == 0 {
                pump.fd = None;
                let channel = pump.channel;
                self.frame(kind::EOF, id, &[&[channel]]);
            }
            return;
        }
        let result = read_some(fd.as_raw_fd(), &mut chunk[..room]);
        let channel = pump.channel;
        match result {
            Ok(count @ 1..) => {
                pump.total += count as u64;
                if !pump.discard {
                    pump.credit -= count as u32;
                    self.frame(kind::DATA, id, &[&[channel], &chunk[..count]]);
                }
            }
            Err(EINTR) => {}
            Err(EAGAIN) if !last => {}
            Ok(0) | Err(_) => {
                if let (Kind::Connection { error, .. }, Err(errno)) = (&mut stream.kind, result) {
                    *error = errno;
                    stream.sink = None;
                }
                pump.fd = None;
                self.frame(kind::EOF, id, &[&[channel]]);
            }
        }
    }

    /// Moves waiting bytes to a command or connection, grants again what it took, and closes at the end.
    fn feed(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if matches!(stream.kind, Kind::Connection { connecting: true, .. }) {
            return;
        }
        let Some(sink) = &mut stream.sink else { return };
        let mut done = 0;
        let broken = loop {
            if done == sink.waiting.len() {
                break false;
            }
            match write_some(sink.fd.as_raw_fd(), &sink.waiting[done..]) {
                Ok(count) => done += count,
                Err(EINTR) => {}
                Err(EAGAIN) => break false,
                Err(_) => break true,
            }
        };
        sink.waiting.drain(..done);
        sink.owed += done as u32;
        let owed = if sink.owed >= WINDOW / 4 || sink.waiting.is_empty() { std::mem::take(&mut sink.owed) } else { 0 };
        sink.allowed += owed;
        let closed = sink.closing && sink.waiting.is_empty();
        if closed && matches!(stream.kind, Kind::Connection { .. }) {
            let _ = libc!(shutdown(sink.fd.as_raw_fd(), 1));
        }
        if broken || closed {
            stream.sink = None;
        }
        if broken {
            self.frame(kind::EOF, id, &[&[0]]); // nobody reads this any more
        } else if owed > 0 && !closed {
            self.frame(kind::CREDIT, id, &[&[0], &owed.to_le_bytes()]);
        }
    }

    /// Ends what has ended, and kills supervisors that outstayed their time.
    fn settle(&mut self) {
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            match &mut stream.kind {
                Kind::Command { report: Some(_), .. } => {
                    for index in 0..2 {
                        if self.out.len() < OUT_LIMIT {
                            self.pump(id, index, true);
                        }
                    }
                    self.exit_if_drained(id);
                }
                Kind::Command { pid, force_at, .. } if force_at.is_some_and(|at| Instant::now() >= at) => {
                    *force_at = None;
                    let pid = *pid;
                    let _ = with_identity(stream.identity, || send_signal(pid, SIGKILL));
                }
                Kind::Connection { error, .. } if stream.sink.is_none() && stream.pumps[0].fd.is_none() => {
                    let error = error.to_le_bytes();
                    self.streams.remove(&id);
                    self.frame(kind::CLOSED, id, &[&error]);
                }
                _ => {}
            }
        }
    }

    fn exit_if_drained(&mut self, id: u32) {
        let Some(Stream { kind: Kind::Command { report: Some(report), .. }, pumps, .. }) = self.streams.get(&id) else {
            return;
        };
        if pumps.iter().any(|pump| pump.fd.is_some()) {
            return;
        }
        let signal = report.status & 0x7F;
        let code = if signal == 0 { (report.status >> 8) & 0xFF } else { -1 };
        let totals = [pumps[0].total.to_le_bytes(), pumps[1].total.to_le_bytes()].concat();
        let (why, numbers) = (report.why, report.numbers.clone());
        self.streams.remove(&id);
        self.streams.retain(|_, stream| !matches!(stream.kind, Kind::Listener { owner, .. } if owner == id));
        self.frame(kind::EXIT, id, &[&[why], &code.to_le_bytes(), &[signal as u8], &numbers, &totals]);
    }

    // --- Connections ---

    fn new_id(&mut self) -> u32 {
        while self.streams.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1) | 1 << 31;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1) | 1 << 31;
        id
    }

    fn listen(&mut self, id: u32, port: u16) -> Result<Stream, Refusal> {
        let failed = |error: io::Error| Refusal(Refused::Listen, format!("127.0.0.1:{port}: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        self.frame(kind::OPENED, id, &[&port.to_le_bytes()]);
        Ok(Stream { kind: Kind::Listener { listener, owner: id, port }, pumps: Vec::new(), sink: None, identity: None })
    }

    fn accept(&mut self, id: u32) {
        let Some(Stream { kind: Kind::Listener { listener, owner, port }, .. }) = self.streams.get(&id) else { return };
        let (owner, port) = (*owner, *port);
        let Ok((connection, _)) = listener.accept() else { return };
        let _ = connection.set_nodelay(true);
        if let Ok(stream) = Stream::connection(connection.into(), false) {
            let id = self.new_id();
            self.streams.insert(id, stream);
            self.frame(kind::ACCEPTED, owner, &[&id.to_le_bytes(), &port.to_le_bytes()]);
        }
    }

    fn on_connected(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let (Kind::Connection { connecting, .. }, Some(sink)) = (&mut stream.kind, &stream.sink) else { return };
        let (mut error, mut length): (c_int, u32) = (0, 4);
        let _ = libc!(getsockopt(sink.fd.as_raw_fd(), 1, 4, (&raw mut error).cast(), &mut length)); // SO_ERROR
        if error != 0 {
            self.streams.remove(&id);
            let text = io::Error::from_raw_os_error(error).to_string();
            return self.refuse(id, Refusal(Refused::Connect, text));
        }
        *connecting = false;
        self.frame(kind::OPENED, id, &[&0u16.to_le_bytes()]);
        self.feed(id);
    }

    // --- The end ---

    /// Says why, if there is somebody to hear it, and kills every process below.
    fn finish(&mut self, end: &End) {
        if let End::Malformed(text) = end {
            self.frame(kind::FATAL, 0, &[text.as_bytes()]);
            let until = Instant::now() + GRACE;
            while self.flush().is_ok() && !self.out.is_empty() && Instant::now() < until {
                let mut fds = [PollFd { fd: 1, events: POLLOUT, ready: 0 }];
                let _ = wait_ready(&mut fds, Some(GRACE));
            }
        }
        let commands = |stream: &Stream| match stream.kind {
            Kind::Command { pid, .. } => Some((pid, stream.identity)),
            _ => None,
        };
        let supervisors: Vec<_> = self.streams.values().filter_map(commands).collect();
        let identities: Vec<_> = supervisors.iter().map(|(_, identity)| *identity).collect();
        self.streams.clear(); // closes the control sockets: the supervisors kill their trees and end
        let until = Instant::now() + GRACE;
        loop {
            match reap() {
                Ok(Some(_)) => continue,
                Err(_) => return,
                Ok(None) => {}
            }
            if Instant::now() > until {
                for (pid, identity) in &supervisors {
                    let _ = with_identity(*identity, || send_signal(*pid, SIGKILL));
                }
                for identity in &identities {
                    let _ = with_identity(*identity, || kill_descendants(&[]));
                }
            }
            let _ = wait_ready(&mut [], Some(Duration::from_millis(1)));
        }
    }
}

impl From<Malformed> for End {
    fn from(Malformed(text): Malformed) -> End {
        End::Malformed(text)
    }
}

/// Opens a connection in the runner's own network. Names are not resolved but for `localhost`.
fn dial(host: &str, port: u16) -> Result<Stream, Refusal> {
    let failed = |errno| Refusal(Refused::Connect, format!("{host}:{port}: {}", io::Error::from_raw_os_error(errno)));
    let ip = if host == "localhost" { Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)) } else { host.parse() };
    let ip = ip.map_err(|_| Refusal(Refused::Connect, format!("{host}: not an address")))?;
    let mut place = [0u8; 28];
    let (family, length) = match ip {
        IpAddr::V4(ip) => {
            place[4..8].copy_from_slice(&ip.octets());
            (AF_INET, 16)
        }
        IpAddr::V6(ip) => {
            place[8..24].copy_from_slice(&ip.octets());
            (AF_INET6, 28)
        }
    };
    place[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    place[2..4].copy_from_slice(&port.to_be_bytes());
    let kind = SOCK_STREAM as c_int | O_CLOEXEC | O_NONBLOCK;
    let fd = owned(libc!(socket(family as c_int, kind, 0)).map_err(failed)?);
    match libc!(connect(fd.as_raw_fd(), place.as_ptr().cast(), length)) {
        Ok(_) | Err(EINPROGRESS) => Stream::connection(fd, true).map_err(failed),
        Err(errno) => Err(failed(errno)),
    }
}

/// `--identify`: says which directories stand at the given paths, a line of two numbers each, and ends. With it the daemon
/// finds out, in a container, whether the engine mounted what it was told to mount.
fn identify(paths: impl Iterator<Item = std::ffi::OsString>) -> ! {
    for path in paths {
        match fs::symlink_metadata(&path) {
            Ok(data) => println!("{} {}", data.dev(), data.ino()),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                quit(1);
            }
        }
    }
    quit(0)
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(word) if word == "--apply" => apply(),
        Some(word) if word == "--identify" => identify(arguments),
        None => {}
        _ => {
            eprintln!("runner: started by ghostd; takes no arguments but --apply and --identify");
            quit(2);
        }
    }
    let end = match Runner::new() {
        Ok(mut runner) => runner.serve(),
        Err(errno) => End::System("start", errno),
    };
    match end {
        End::Closed | End::Signal => quit(0),
        End::Malformed(text) => eprintln!("runner: malformed frame: {text}"),
        End::System(what, errno) => eprintln!("runner: {what}: {}", io::Error::from_raw_os_error(errno)),
    }
    quit(2);
}
