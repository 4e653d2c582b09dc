//! The system calls that the runner makes, small safe ways to make them, and their numbers. Nothing here allocates on a path that
//! a forked child takes, but where a comment says so.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Numbers of the system calls that are made or filtered here: x86_64, then aarch64. `NONE`: not on that machine.
pub const NONE: u32 = u32::MAX;
macro_rules! numbers {
    ($($name:ident $x86:tt $arm:tt),* $(,)?) => { #[allow(dead_code)] pub mod nr {
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
    NFSSERVCTL 180 42, LOOKUP_DCOOKIE 212 18, MOVE_PAGES 279 239, MIGRATE_PAGES 256 238,
    MEMFD_SECRET 447 447, SHMGET 29 194, MSGGET 68 186, SEMGET 64 190, MQ_OPEN 240 180, SETPRIORITY 141 140,
    IOPRIO_SET 251 30, SCHED_SETAFFINITY 203 122, SCHED_SETSCHEDULER 144 119, SCHED_SETPARAM 142 118,
    SCHED_SETATTR 314 274, CHMOD 90 NONE, FCHMOD 91 52, FCHMODAT 268 53, FCHMODAT2 452 452, CHOWN 92 NONE,
    FCHOWN 93 55, LCHOWN 94 NONE, FCHOWNAT 260 54, SETXATTR 188 5, LSETXATTR 189 6, FSETXATTR 190 7,
    REMOVEXATTR 197 14, LREMOVEXATTR 198 15, FREMOVEXATTR 199 16, UTIME 132 NONE, UTIMES 235 NONE, FUTIMESAT 261 NONE,
    UTIMENSAT 280 88, SETXATTRAT 463 463, REMOVEXATTRAT 466 466, FILE_SETATTR 469 469, FACCESSAT2 439 439, READ 0 63,
    WRITE 1 64, READV 19 65, WRITEV 20 66, PREAD64 17 67, PWRITE64 18 68, PREADV 295 69, PWRITEV 296 70,
    PREADV2 327 286, PWRITEV2 328 287, CLOSE 3 57, LSEEK 8 62, FSYNC 74 82, FDATASYNC 75 83, SYNC 162 81,
    SYNCFS 306 267, SYNC_FILE_RANGE 277 84, FTRUNCATE 77 46, TRUNCATE 76 45, FALLOCATE 285 47, FADVISE64 221 223,
    READAHEAD 187 213, COPY_FILE_RANGE 326 285, SENDFILE 40 71, SPLICE 275 76, TEE 276 77, FCNTL 72 25, FLOCK 73 32,
    DUP 32 23, DUP2 33 NONE, DUP3 292 24, PIPE 22 NONE, PIPE2 293 59, ACCESS 21 NONE, FACCESSAT 269 48, STAT 4 NONE,
    FSTAT 5 80, LSTAT 6 NONE, NEWFSTATAT 262 79, STATX 332 291, STATFS 137 43, FSTATFS 138 44, READLINK 89 NONE,
    READLINKAT 267 78, GETCWD 79 17, CHDIR 80 49, FCHDIR 81 50, GETDENTS 78 NONE, GETDENTS64 217 61, RENAME 82 NONE,
    RENAMEAT 264 38, RENAMEAT2 316 276, LINK 86 NONE, LINKAT 265 37, SYMLINK 88 NONE, SYMLINKAT 266 36, UNLINK 87 NONE,
    UNLINKAT 263 35, RMDIR 84 NONE, UMASK 95 166, GETXATTR 191 8, LGETXATTR 192 9, FGETXATTR 193 10,
    GETXATTRAT 464 464, LISTXATTR 194 11, LLISTXATTR 195 12, FLISTXATTR 196 13, LISTXATTRAT 465 465,
    FILE_GETATTR 468 468, BRK 12 214, MMAP 9 222, MUNMAP 11 215, MPROTECT 10 226, MREMAP 25 216, MSYNC 26 227,
    MADVISE 28 233, MINCORE 27 232, MLOCK 149 228, MLOCK2 325 284, MLOCKALL 151 230, MUNLOCK 150 229,
    MUNLOCKALL 152 231, MSEAL 462 462, PKEY_ALLOC 330 289, PKEY_FREE 331 290, PKEY_MPROTECT 329 288,
    MAP_SHADOW_STACK 453 453, MEMBARRIER 324 283, FORK 57 NONE, VFORK 58 NONE, EXECVE 59 221, EXECVEAT 322 281,
    EXIT 60 93, EXIT_GROUP 231 94, WAIT4 61 260, WAITID 247 95, SET_TID_ADDRESS 218 96, SET_ROBUST_LIST 273 99,
    GET_ROBUST_LIST 274 100, RSEQ 334 293, FUTEX 202 98, FUTEX_WAKE 454 454, FUTEX_WAIT 455 455, FUTEX_REQUEUE 456 456,
    FUTEX_WAITV 449 449, ARCH_PRCTL 158 NONE, SET_THREAD_AREA 205 NONE, GET_THREAD_AREA 211 NONE, PRCTL 157 167,
    RESTART_SYSCALL 219 128, SETSID 112 157, GETSID 124 156, SETPGID 109 154, GETPGID 121 155, GETPGRP 111 NONE,
    GETPID 39 172, GETPPID 110 173, GETTID 186 178, PIDFD_OPEN 434 434, KILL 62 129, TKILL 200 130, TGKILL 234 131,
    PIDFD_SEND_SIGNAL 424 424, RT_SIGACTION 13 134, RT_SIGPENDING 127 136, RT_SIGPROCMASK 14 135,
    RT_SIGQUEUEINFO 129 138, RT_TGSIGQUEUEINFO 297 240, RT_SIGRETURN 15 139, RT_SIGSUSPEND 130 133,
    RT_SIGTIMEDWAIT 128 137, SIGALTSTACK 131 132, PAUSE 34 NONE, SIGNALFD 282 NONE, SIGNALFD4 289 74, GETUID 102 174,
    GETEUID 107 175, GETGID 104 176, GETEGID 108 177, GETRESUID 118 148, GETRESGID 120 150, GETGROUPS 115 158,
    SETUID 105 146, SETGID 106 144, SETREUID 113 145, SETREGID 114 143, SETFSUID 122 151, SETFSGID 123 152,
    TIME 201 NONE, GETTIMEOFDAY 96 169, CLOCK_GETTIME 228 113, CLOCK_GETRES 229 114, CLOCK_NANOSLEEP 230 115,
    NANOSLEEP 35 101, ALARM 37 NONE, GETITIMER 36 102, SETITIMER 38 103, TIMES 100 153, TIMER_CREATE 222 107,
    TIMER_DELETE 226 111, TIMER_GETOVERRUN 225 109, TIMER_GETTIME 224 108, TIMER_SETTIME 223 110,
    TIMERFD_CREATE 283 85, TIMERFD_GETTIME 287 87, TIMERFD_SETTIME 286 86, SELECT 23 NONE, PSELECT6 270 72,
    POLL 7 NONE, PPOLL 271 73, EPOLL_CREATE 213 NONE, EPOLL_CREATE1 291 20, EPOLL_CTL 233 21, EPOLL_WAIT 232 NONE,
    EPOLL_PWAIT 281 22, EPOLL_PWAIT2 441 441, EVENTFD 284 NONE, EVENTFD2 290 19, BIND 49 200, LISTEN 50 201,
    ACCEPT 43 202, ACCEPT4 288 242, CONNECT 42 203, SHUTDOWN 48 210, GETSOCKNAME 51 204, GETPEERNAME 52 205,
    GETSOCKOPT 55 209, SETSOCKOPT 54 208, RECVFROM 45 207, RECVMSG 47 212, RECVMMSG 299 243, GETRLIMIT 97 163,
    SETRLIMIT 160 164, GETRUSAGE 98 165, GETPRIORITY 140 141, IOPRIO_GET 252 31, SCHED_YIELD 24 124,
    SCHED_GETAFFINITY 204 123, SCHED_GETSCHEDULER 145 120, SCHED_GETPARAM 143 121, SCHED_GETATTR 315 275,
    SCHED_GET_PRIORITY_MAX 146 125, SCHED_GET_PRIORITY_MIN 147 126, SCHED_RR_GET_INTERVAL 148 127, UNAME 63 160,
    SYSINFO 99 179, GETCPU 309 168, GETRANDOM 318 278, OPEN 2 NONE, OPENAT 257 56, CREAT 85 NONE, MKDIR 83 NONE,
    MKDIRAT 258 34, MKNOD 133 NONE, MKNODAT 259 33, INOTIFY_INIT 253 NONE, INOTIFY_INIT1 294 26,
    INOTIFY_ADD_WATCH 254 27, INOTIFY_RM_WATCH 255 28, PROCESS_MRELEASE 448 448, FANOTIFY_MARK 301 263,
    VMSPLICE 278 75, SHMAT 30 196, SHMCTL 31 195, SHMDT 67 197, SEMOP 65 193, SEMTIMEDOP 220 192, SEMCTL 66 191,
    MSGSND 69 189, MSGRCV 70 188, MSGCTL 71 187, MQ_UNLINK 241 181,
}

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
    pub fn shutdown(fd: c_int, how: c_int) -> c_int;
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
