//! The system calls that the runner makes, and small safe ways to make them.
//!
//! Nothing here must allocate on a path that a forked child takes, but where a comment says so.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::numbers::nr;

/// No change of an identity, in system calls; the default one, in requests.
pub const DEFAULT_ID: u32 = u32::MAX;

/// A number of the kernel's list of errors.
pub type Errno = i32;

// glibc's thin wrappers and `syscall(2)` itself. All are async-signal-safe in the way they are used here.
unsafe extern "C" {
    pub fn syscall(number: c_long, ...) -> c_long;
    pub fn __errno_location() -> *mut c_int;
    pub fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    pub fn ioctl(fd: c_int, request: u64, ...) -> c_int;
    pub fn read(fd: c_int, into: *mut c_void, length: usize) -> isize;
    pub fn write(fd: c_int, from: *const c_void, length: usize) -> isize;
    pub fn close(fd: c_int) -> c_int;
    pub fn dup2(from: c_int, to: c_int) -> c_int;
    pub fn pipe2(ends: *mut c_int, flags: c_int) -> c_int;
    pub fn socketpair(family: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int;
    pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    pub fn connect(fd: c_int, address: *const c_void, length: u32) -> c_int;
    pub fn shutdown(fd: c_int, how: c_int) -> c_int;
    pub fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32) -> c_int;
    pub fn sendmsg(fd: c_int, message: *const MessageHeader, flags: c_int) -> isize;
    pub fn recvmsg(fd: c_int, message: *mut MessageHeader, flags: c_int) -> isize;
    pub fn poll(fds: *mut PollFd, count: u64, timeout_ms: c_int) -> c_int;
    pub fn signalfd(fd: c_int, set: *const SignalSet, flags: c_int) -> c_int;
    pub fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    pub fn signal(number: c_int, handler: usize) -> usize;
    pub fn wait4(pid: i32, status: *mut c_int, options: c_int, usage: *mut [c_long; 18]) -> i32;
    #[link_name = "kill"]
    pub fn libc_kill(pid: i32, signal: c_int) -> c_int;
    pub fn prctl(option: c_int, ...) -> c_int;
    pub fn setsid() -> i32;
    pub fn umask(mask: u32) -> u32;
    pub fn chdir(path: *const c_char) -> c_int;
    pub fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int;
    pub fn getuid() -> u32;
    pub fn geteuid() -> u32;
    pub fn getgid() -> u32;
    pub fn getrlimit(resource: c_int, limit: *mut [u64; 2]) -> c_int;
    pub fn setrlimit(resource: c_int, limit: *const [u64; 2]) -> c_int;
    pub fn _exit(code: c_int) -> !;
}

#[repr(C)]
pub struct PollFd {
    pub fd: c_int,
    pub events: i16,
    pub ready: i16,
}
#[repr(C)]
pub struct MessageHeader {
    pub name: *mut c_void,
    pub name_length: u32,
    pub parts: *mut [usize; 2],
    pub part_count: usize,
    pub control: *mut c_void,
    pub control_length: usize,
    pub flags: c_int,
}
pub type SignalSet = [u64; 16];

pub const EPERM: Errno = 1;
pub const ENOENT: Errno = 2;
pub const EINTR: Errno = 4;
pub const EAGAIN: Errno = 11;
pub const EACCES: Errno = 13;
pub const EEXIST: Errno = 17;
pub const ENOTDIR: Errno = 20;
pub const ENOSYS: Errno = 38;
pub const EOPNOTSUPP: Errno = 95;
pub const EINPROGRESS: Errno = 115;
pub const SIGKILL: i32 = 9;
pub const SIGCHLD: i32 = 17;
pub const SIGSTOP: i32 = 19;
pub const POLLIN: i16 = 1;
pub const POLLOUT: i16 = 4;
pub const O_CLOEXEC: i32 = 0o2_000_000;
pub const O_NONBLOCK: i32 = 0o4_000;
pub const O_PATH: i32 = 0o10_000_000;
pub const O_DIRECTORY: i32 = if cfg!(target_arch = "x86_64") { 0o200_000 } else { 0o40_000 };
pub const O_NOFOLLOW: i32 = if cfg!(target_arch = "x86_64") { 0o400_000 } else { 0o100_000 };
pub const AF_UNIX: u32 = 1;
pub const AF_INET: u32 = 2;
pub const AF_INET6: u32 = 10;
pub const SOCK_STREAM: u32 = 1;
pub const SOCK_SEQPACKET: u32 = 5;
pub const PR_SET_PDEATHSIG: i32 = 1;
pub const PR_SET_DUMPABLE: i32 = 4;
pub const PR_CAPBSET_DROP: i32 = 24;
pub const PR_SET_CHILD_SUBREAPER: i32 = 36;
pub const PR_SET_NO_NEW_PRIVS: i32 = 38;
pub const CLONE_NAMESPACES: usize = 0x1000_0000 | 0x2000_0000 | 0x0002_0000 | 0x0800_0000 | 0x0400_0000; // user pid mnt ipc uts
pub const CLONE_NEWNET: usize = 0x4000_0000;

pub fn errno() -> Errno {
    // SAFETY: glibc returns a valid pointer to this thread's errno.
    unsafe { *__errno_location() }
}

/// Turns the C convention (-1 and errno) into a result.
pub fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

/// Makes a system call that glibc does not wrap. Every argument is an integer, or the address of memory that the caller
/// keeps alive until the call returns.
macro_rules! sys {
    ($number:expr $(, $argument:expr)*) => {{
        // SAFETY: the callers pass live memory of the size that the kernel expects; integers need no care.
        let result = unsafe { $crate::kernel::syscall($number as ::std::ffi::c_long $(, $argument as usize)*) };
        if result < 0 { Err($crate::kernel::errno()) } else { Ok(result as usize) }
    }};
}
/// Calls one of the functions declared above that returns -1 on failure. The same promise as for `sys!` holds.
macro_rules! libc {
    ($($call:tt)*) => {{
        // SAFETY: the callers pass live memory of the size that the function expects and descriptors that they own.
        $crate::kernel::checked(unsafe { $($call)* })
    }};
}

pub fn address<T>(value: &T) -> usize {
    std::ptr::from_ref(value) as usize
}

pub fn quit(code: i32) -> ! {
    // SAFETY: ends the process at once; no destructor and no exit handler of the parent's may run in a forked child.
    unsafe { _exit(code) }
}

pub fn owned(fd: c_int) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that a system call has just returned and nothing else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub fn read_some(fd: RawFd, into: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for writes of its length.
    let count = unsafe { read(fd, into.as_mut_ptr().cast(), into.len()) };
    if count < 0 { Err(errno()) } else { Ok(count as usize) }
}

pub fn write_some(fd: RawFd, from: &[u8]) -> Result<usize, Errno> {
    // SAFETY: the slice is valid for reads of its length.
    let count = unsafe { write(fd, from.as_ptr().cast(), from.len()) };
    if count < 0 { Err(errno()) } else { Ok(count as usize) }
}

pub fn pipe_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    libc!(pipe2(ends.as_mut_ptr(), O_CLOEXEC))?;
    Ok((owned(ends[0]), owned(ends[1])))
}

pub fn set_nonblocking(fd: RawFd) -> Result<(), Errno> {
    let flags = libc!(fcntl(fd, 3))?;
    libc!(fcntl(fd, 4, flags | O_NONBLOCK)).map(drop)
}

pub fn duplicate(fd: RawFd, at_least: i32) -> Result<OwnedFd, Errno> {
    libc!(fcntl(fd, 1030, at_least)).map(owned) // F_DUPFD_CLOEXEC
}

pub fn wait_ready(fds: &mut [PollFd], timeout: Option<Duration>) -> Result<(), Errno> {
    // Rounded up: a wait that ends a moment early would only spin.
    let timeout = timeout.map_or(-1, |time| c_int::try_from(time.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX));
    match libc!(poll(fds.as_mut_ptr(), fds.len() as u64, timeout)) {
        Err(EINTR) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Blocks the given signals and returns a descriptor that reads them.
pub fn signals_as_reads(numbers: &[i32]) -> Result<OwnedFd, Errno> {
    let mut set: SignalSet = [0; 16];
    for number in numbers {
        set[0] |= 1 << (number - 1);
    }
    libc!(sigprocmask(2, &set, std::ptr::null_mut()))?;
    libc!(signalfd(-1, &set, O_CLOEXEC | O_NONBLOCK)).map(owned)
}

pub fn process_id() -> i32 {
    std::process::id() as i32
}

pub fn send_signal(pid: i32, number: i32) {
    // A process that has gone is no error: there is nothing left to signal.
    let _ = libc!(libc_kill(pid, number));
}

/// Reaps one child without waiting: `Ok(None)` when none has ended, `Err` when there are no children at all.
pub fn reap() -> Result<Option<(i32, i32, [c_long; 18])>, Errno> {
    let (mut status, mut usage) = (0, [0; 18]);
    match libc!(wait4(-1, &mut status, 1, &mut usage)) {
        Ok(0) | Err(EINTR) => Ok(None),
        Ok(pid) => Ok(Some((pid, status, usage))),
        Err(error) => Err(error),
    }
}

/// Sends one message, with descriptors if there are any, over a control socket.
pub fn send_message(fd: RawFd, bytes: &[u8], fds: &[RawFd]) -> Result<(), Errno> {
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
pub fn receive_message(fd: RawFd, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
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
pub fn close_all_but(keep: &[RawFd]) {
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
pub fn with_identity<T>(identity: Option<(u32, u32)>, action: impl FnOnce() -> T) -> Result<T, Errno> {
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
