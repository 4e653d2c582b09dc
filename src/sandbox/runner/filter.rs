//! The seccomp filter of a command, and the system calls that it allows, in groups with the reason for each. A call is not allowed
//! because nobody thought of it: what is in neither list and has no rule is answered with ENOSYS, as a kernel without it
//! would, and libraries do without it.

use super::frame::{Exec, Network, flag};
use super::kernel::*;

/// What programs need. `docs/security.md` lists the same groups.
#[rustfmt::skip]
pub const ALLOWED: &[u32] = &[
    // Contents of files and other descriptors. Which files can be opened at all is the work of Landlock and the mounts.
    nr::READ, nr::WRITE, nr::READV, nr::WRITEV, nr::PREAD64, nr::PWRITE64, nr::PREADV, nr::PWRITEV, nr::PREADV2,
    nr::PWRITEV2, nr::CLOSE, nr::CLOSE_RANGE, nr::LSEEK, nr::FSYNC, nr::FDATASYNC, nr::SYNC, nr::SYNCFS,
    nr::SYNC_FILE_RANGE, nr::FTRUNCATE, nr::TRUNCATE, nr::FALLOCATE, nr::FADVISE64, nr::READAHEAD, nr::COPY_FILE_RANGE,
    nr::SENDFILE, nr::SPLICE, nr::TEE, nr::FCNTL, nr::FLOCK, nr::DUP, nr::DUP2, nr::DUP3, nr::PIPE, nr::PIPE2,
    // Names and directories. They lead nowhere that Landlock and the mounts do not allow.
    nr::ACCESS, nr::FACCESSAT, nr::FACCESSAT2, nr::STAT, nr::FSTAT, nr::LSTAT, nr::NEWFSTATAT, nr::STATX, nr::STATFS,
    nr::FSTATFS, nr::READLINK, nr::READLINKAT, nr::GETCWD, nr::CHDIR, nr::FCHDIR, nr::GETDENTS, nr::GETDENTS64,
    nr::RENAME, nr::RENAMEAT, nr::RENAMEAT2, nr::LINK, nr::LINKAT, nr::SYMLINK, nr::SYMLINKAT, nr::UNLINK,
    nr::UNLINKAT, nr::RMDIR, nr::UMASK,
    // Owners, times and attributes. Without a capability they change the command's own files alone, and give no right.
    nr::CHOWN, nr::FCHOWN, nr::LCHOWN, nr::FCHOWNAT, nr::UTIME, nr::UTIMES, nr::FUTIMESAT, nr::UTIMENSAT, nr::GETXATTR,
    nr::LGETXATTR, nr::FGETXATTR, nr::GETXATTRAT, nr::LISTXATTR, nr::LLISTXATTR, nr::FLISTXATTR, nr::LISTXATTRAT,
    nr::REMOVEXATTR, nr::LREMOVEXATTR, nr::FREMOVEXATTR, nr::REMOVEXATTRAT, nr::FILE_GETATTR,
    // The command's own memory. What it holds is counted.
    nr::BRK, nr::MMAP, nr::MUNMAP, nr::MPROTECT, nr::MREMAP, nr::MSYNC, nr::MADVISE, nr::MINCORE, nr::MLOCK,
    nr::MLOCK2, nr::MLOCKALL, nr::MUNLOCK, nr::MUNLOCKALL, nr::MSEAL, nr::PKEY_ALLOC, nr::PKEY_FREE, nr::PKEY_MPROTECT,
    nr::MAP_SHADOW_STACK, nr::MEMBARRIER,
    // Processes and threads of its own tree; new ones by `clone`, which has a rule.
    nr::FORK, nr::VFORK, nr::EXECVE, nr::EXECVEAT, nr::EXIT, nr::EXIT_GROUP, nr::WAIT4, nr::WAITID,
    nr::SET_TID_ADDRESS, nr::SET_ROBUST_LIST, nr::GET_ROBUST_LIST, nr::RSEQ, nr::FUTEX, nr::FUTEX_WAKE, nr::FUTEX_WAIT,
    nr::FUTEX_REQUEUE, nr::FUTEX_WAITV, nr::ARCH_PRCTL, nr::SET_THREAD_AREA, nr::GET_THREAD_AREA, nr::PRCTL,
    nr::SECCOMP, nr::LANDLOCK_CREATE_RULESET, nr::LANDLOCK_ADD_RULE, nr::LANDLOCK_RESTRICT_SELF, nr::RESTART_SYSCALL,
    nr::SETSID, nr::GETSID, nr::SETPGID, nr::GETPGID, nr::GETPGRP, nr::GETPID, nr::GETPPID, nr::GETTID, nr::PIDFD_OPEN,
    // Signals. Landlock or a PID namespace keeps them inside.
    nr::KILL, nr::TKILL, nr::TGKILL, nr::PIDFD_SEND_SIGNAL, nr::RT_SIGACTION, nr::RT_SIGPENDING, nr::RT_SIGPROCMASK,
    nr::RT_SIGQUEUEINFO, nr::RT_TGSIGQUEUEINFO, nr::RT_SIGRETURN, nr::RT_SIGSUSPEND, nr::RT_SIGTIMEDWAIT,
    nr::SIGALTSTACK, nr::PAUSE, nr::SIGNALFD, nr::SIGNALFD4,
    // Identity. Without a capability, and with no new privileges, nobody becomes another user.
    nr::GETUID, nr::GETEUID, nr::GETGID, nr::GETEGID, nr::GETRESUID, nr::GETRESGID, nr::GETGROUPS, nr::SETUID,
    nr::SETGID, nr::SETREUID, nr::SETREGID, nr::SETRESUID, nr::SETRESGID, nr::SETGROUPS, nr::SETFSUID, nr::SETFSGID,
    nr::CAPGET, nr::CAPSET,
    // Clocks and timers: to read and to wait, never to set.
    nr::TIME, nr::GETTIMEOFDAY, nr::CLOCK_GETTIME, nr::CLOCK_GETRES, nr::CLOCK_NANOSLEEP, nr::NANOSLEEP, nr::ALARM,
    nr::GETITIMER, nr::SETITIMER, nr::TIMES, nr::TIMER_CREATE, nr::TIMER_DELETE, nr::TIMER_GETOVERRUN,
    nr::TIMER_GETTIME, nr::TIMER_SETTIME, nr::TIMERFD_CREATE, nr::TIMERFD_GETTIME, nr::TIMERFD_SETTIME,
    // Waiting for descriptors.
    nr::SELECT, nr::PSELECT6, nr::POLL, nr::PPOLL, nr::EPOLL_CREATE, nr::EPOLL_CREATE1, nr::EPOLL_CTL, nr::EPOLL_WAIT,
    nr::EPOLL_PWAIT, nr::EPOLL_PWAIT2, nr::EVENTFD, nr::EVENTFD2,
    // Sockets that the network mode let it make; `socket`, `socketpair` and the calls that send have rules.
    nr::BIND, nr::LISTEN, nr::ACCEPT, nr::ACCEPT4, nr::CONNECT, nr::SHUTDOWN, nr::GETSOCKNAME, nr::GETPEERNAME,
    nr::GETSOCKOPT, nr::SETSOCKOPT, nr::SENDTO, nr::SENDMSG, nr::SENDMMSG, nr::RECVFROM, nr::RECVMSG, nr::RECVMMSG,
    // Limits and scheduling. No limit can be raised.
    nr::GETRLIMIT, nr::SETRLIMIT, nr::GETRUSAGE, nr::GETPRIORITY, nr::SETPRIORITY, nr::IOPRIO_GET, nr::IOPRIO_SET,
    nr::SCHED_YIELD, nr::SCHED_GETAFFINITY, nr::SCHED_SETAFFINITY, nr::SCHED_GETSCHEDULER, nr::SCHED_SETSCHEDULER,
    nr::SCHED_GETPARAM, nr::SCHED_SETPARAM, nr::SCHED_GETATTR, nr::SCHED_SETATTR, nr::SCHED_GET_PRIORITY_MAX,
    nr::SCHED_GET_PRIORITY_MIN, nr::SCHED_RR_GET_INTERVAL,
    // What every program may know of the machine.
    nr::UNAME, nr::SYSINFO, nr::GETCPU, nr::GETRANDOM,
];

/// Answered with EPERM, which programs understand better than ENOSYS: the kernel has the call, and they may not use it.
/// Tracing, io_uring (which makes calls that no filter sees), keys, mounts, namespaces, the kernel's own affairs, memory
/// that is in nobody's account (System V objects, message queues, secret and spliced pages), files by handle.
#[rustfmt::skip]
pub const REFUSED: &[u32] = &[
    nr::SETNS, nr::PTRACE, nr::PROCESS_VM_READV, nr::PROCESS_VM_WRITEV, nr::PROCESS_MADVISE, nr::PROCESS_MRELEASE,
    nr::PIDFD_GETFD, nr::KCMP, nr::IO_URING_SETUP, nr::IO_URING_ENTER, nr::IO_URING_REGISTER, nr::KEYCTL, nr::ADD_KEY,
    nr::REQUEST_KEY, nr::MOUNT, nr::UMOUNT2, nr::PIVOT_ROOT, nr::CHROOT, nr::OPEN_TREE, nr::MOVE_MOUNT, nr::FSOPEN,
    nr::FSCONFIG, nr::FSMOUNT, nr::FSPICK, nr::MOUNT_SETATTR, nr::OPEN_TREE_ATTR, nr::BPF, nr::PERF_EVENT_OPEN,
    nr::USERFAULTFD, nr::FANOTIFY_INIT, nr::FANOTIFY_MARK, nr::VMSPLICE, nr::MEMFD_SECRET, nr::MOVE_PAGES,
    nr::MIGRATE_PAGES, nr::SHMGET, nr::SHMAT, nr::SHMCTL, nr::SHMDT, nr::SEMGET, nr::SEMOP, nr::SEMTIMEDOP, nr::SEMCTL,
    nr::MSGGET, nr::MSGSND, nr::MSGRCV, nr::MSGCTL, nr::MQ_OPEN, nr::MQ_UNLINK, nr::KEXEC_LOAD, nr::KEXEC_FILE_LOAD,
    nr::INIT_MODULE, nr::FINIT_MODULE, nr::DELETE_MODULE, nr::CREATE_MODULE, nr::QUERY_MODULE, nr::GET_KERNEL_SYMS,
    nr::NAME_TO_HANDLE_AT, nr::OPEN_BY_HANDLE_AT, nr::QUOTACTL, nr::QUOTACTL_FD, nr::ACCT, nr::SWAPON, nr::SWAPOFF,
    nr::REBOOT, nr::SETTIMEOFDAY, nr::CLOCK_SETTIME, nr::CLOCK_ADJTIME, nr::ADJTIMEX, nr::SYSLOG, nr::SETHOSTNAME,
    nr::SETDOMAINNAME, nr::VHANGUP, nr::IOPL, nr::IOPERM, nr::MODIFY_LDT, nr::USELIB, nr::NFSSERVCTL,
    nr::LOOKUP_DCOOKIE,
];

/// They watch files of the whole machine, whatever may be read of them: only where nothing else is to be seen.
pub const WATCHES: &[u32] = &[nr::INOTIFY_INIT, nr::INOTIFY_INIT1, nr::INOTIFY_ADD_WATCH, nr::INOTIFY_RM_WATCH];

/// What changes mode, owner, times and attributes, which Landlock does not hold.
#[rustfmt::skip]
pub const METADATA: &[u32] = &[
    nr::CHMOD, nr::FCHMOD, nr::FCHMODAT, nr::FCHMODAT2, nr::CHOWN, nr::FCHOWN, nr::LCHOWN, nr::FCHOWNAT,
    nr::REMOVEXATTR, nr::LREMOVEXATTR, nr::FREMOVEXATTR, nr::REMOVEXATTRAT, nr::UTIME, nr::UTIMES, nr::FUTIMESAT,
    nr::UTIMENSAT, nr::FILE_SETATTR,
];

#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub value: u32,
}

pub const ALLOW: u32 = 0x7FFF_0000;
pub const KILL_PROCESS: u32 = 0x8000_0000;
pub const fn refuse_with(errno: Errno) -> u32 {
    0x0005_0000 | errno as u32
}
pub const fn load(offset: u32) -> Instruction {
    Instruction { code: 0x20, jump_true: 0, jump_false: 0, value: offset }
}
/// Loads the low half of an argument: every argument judged here is an int, of which the kernel reads no more.
pub const fn argument(index: u32) -> Instruction {
    load(16 + index * 8)
}
pub const fn mask(value: u32) -> Instruction {
    Instruction { code: 0x54, jump_true: 0, jump_false: 0, value }
}
pub const fn answer(value: u32) -> Instruction {
    Instruction { code: 0x06, jump_true: 0, jump_false: 0, value }
}
/// Returns `then` if the loaded word equals `value`, else goes on.
pub const fn if_equal(value: u32, then: u32) -> [Instruction; 2] {
    [Instruction { code: 0x15, jump_true: 0, jump_false: 1, value }, answer(then)]
}

/// What the filter says to one call.
#[derive(Clone, PartialEq)]
enum Verdict {
    Answer(u32),
    /// Instructions that look at the arguments. Each way through them ends in an answer.
    Rule(Vec<Instruction>),
}

/// The bits of a mode that let a file run as its owner or its group. Set by a command, they would give that user to
/// everybody on this machine who can reach the file. A set-group-ID directory gives nothing, but a call does not say what
/// its path is.
const SET_ID: u32 = 0o6000;
/// An open call looks at its mode only with O_CREAT or O_TMPFILE.
const CREATES: u32 = 0o100 | 0o20_000_000;

fn verdicts(exec: &Exec, inside: bool) -> Vec<Verdict> {
    let mut all = vec![Verdict::Answer(refuse_with(ENOSYS)); nr::END as usize];
    let mut set = |number: u32, verdict: Verdict| {
        if number != NONE {
            all[number as usize] = verdict;
        }
    };
    let (denied, no_access) = (refuse_with(EPERM), refuse_with(EACCES));
    ALLOWED.iter().for_each(|number| set(*number, Verdict::Answer(ALLOW)));
    REFUSED.iter().for_each(|number| set(*number, Verdict::Answer(denied)));
    if inside {
        WATCHES.iter().for_each(|number| set(*number, Verdict::Answer(ALLOW)));
    }
    set(nr::MEMFD_CREATE, Verdict::Answer(if exec.has(flag::MEMFD) { ALLOW } else { denied }));
    // One of them grants (security.capability), and their names are in memory. As from a file system without any.
    for number in [nr::SETXATTR, nr::LSETXATTR, nr::FSETXATTR, nr::SETXATTRAT] {
        set(number, Verdict::Answer(refuse_with(EOPNOTSUPP)));
    }
    // CLONE3 and OPENAT2 have their flags and modes in memory: as if unknown, so that libraries use the older calls.
    let mut on = |number: u32, body: &[Instruction]| set(number, Verdict::Rule(body.to_vec()));
    let [plain, plain_yes] = if_equal(0, ALLOW);
    for (number, mode) in [
        (nr::CHMOD, 1),
        (nr::FCHMOD, 1),
        (nr::FCHMODAT, 2),
        (nr::FCHMODAT2, 2),
        (nr::CREAT, 1),
        (nr::MKDIR, 1),
        (nr::MKDIRAT, 2),
        (nr::MKNOD, 1),
        (nr::MKNODAT, 2),
    ] {
        on(number, &[argument(mode), mask(SET_ID), plain, plain_yes, answer(denied)]);
    }
    for (number, flags) in [(nr::OPEN, 1), (nr::OPENAT, 2)] {
        let mode = [argument(flags + 1), mask(SET_ID), plain, plain_yes, answer(denied)];
        on(number, &[[argument(flags), mask(CREATES), plain, plain_yes].as_slice(), &mode].concat());
    }
    // Any new namespace: CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}; for unshare CLONE_NEWTIME, a signal bit in clone.
    for (number, flags) in [(nr::CLONE, 0x7E02_0000), (nr::UNSHARE, 0x7E02_0080)] {
        on(number, &[argument(0), mask(flags), plain, plain_yes, answer(denied)]);
    }
    let [stream, stream_yes] = if_equal(SOCK_STREAM, ALLOW);
    let [packet, packet_yes] = if_equal(SOCK_SEQPACKET, ALLOW);
    let not_equal = |value, skip| Instruction { code: 0x15, jump_true: 0, jump_false: skip, value };
    // Pairs of Unix datagram sockets are refused too: one of them can still be connected to a path.
    let pair = [argument(0), not_equal(AF_UNIX, 6), argument(1), mask(15), stream, stream_yes, packet, packet_yes];
    on(nr::SOCKETPAIR, &[pair.as_slice(), &[answer(no_access)]].concat());
    let unix = if exec.has(flag::UNIX) {
        let [unix, unix_yes] = if_equal(AF_UNIX, ALLOW);
        vec![argument(0), unix, unix_yes]
    } else {
        Vec::new()
    };
    let [four, four_yes] = if_equal(AF_INET, ALLOW);
    let [six, six_yes] = if_equal(AF_INET6, ALLOW);
    match exec.network {
        Network::None => on(nr::SOCKET, &[unix, vec![answer(no_access)]].concat()),
        Network::Private | Network::Open => {
            let network = vec![argument(0), four, four_yes, six, six_yes, answer(no_access)];
            on(nr::SOCKET, &[unix, network].concat());
        }
        Network::Ports => {
            // TCP alone: Landlock knows no ports of UDP, SCTP or MPTCP, nor a connection opened by a first send.
            let jump = |value, skip| Instruction { code: 0x15, jump_true: skip, jump_false: 0, value };
            let [tcp, tcp_yes] = if_equal(6, ALLOW);
            let family = vec![argument(0), jump(AF_INET, 1), not_equal(AF_INET6, 8), argument(1), mask(15)];
            let protocol = vec![not_equal(SOCK_STREAM, 5), argument(2), plain, plain_yes, tcp, tcp_yes];
            on(nr::SOCKET, &[unix, family, protocol, vec![answer(no_access)]].concat());
            for (number, flags) in [(nr::SENDTO, 3), (nr::SENDMSG, 2), (nr::SENDMMSG, 3)] {
                on(number, &[argument(flags), mask(0x2000_0000), plain, plain_yes, answer(no_access)]);
            }
        }
    }
    let (sti, linux) = (if_equal(0x5412, denied), if_equal(0x541C, denied));
    on(nr::IOCTL, &[argument(1), sti[0], sti[1], linux[0], linux[1], answer(ALLOW)]);
    let query = if_equal(u32::MAX, ALLOW);
    on(nr::PERSONALITY, &[argument(0), plain, plain_yes, query[0], query[1], answer(denied)]);
    // The daemon and the supervisor may have the same uid: their limits and scheduling are not the command's business.
    on(nr::PRLIMIT64, &[argument(0), plain, plain_yes, answer(denied)]);
    if !inside {
        for number in [nr::SCHED_SETAFFINITY, nr::SCHED_SETSCHEDULER, nr::SCHED_SETPARAM, nr::SCHED_SETATTR] {
            on(number, &[argument(0), plain, plain_yes, answer(denied)]);
        }
        // Their `who` may also name all processes of the user (2 and 3).
        for (number, which) in [(nr::SETPRIORITY, 2), (nr::IOPRIO_SET, 3)] {
            let user = if_equal(which, denied);
            on(number, &[argument(0), user[0], user[1], argument(1), plain, plain_yes, answer(denied)]);
        }
        if exec.has(flag::SEAL_METADATA) {
            METADATA.iter().for_each(|number| on(*number, &[answer(denied)]));
        }
    }
    all
}

/// Builds the filter: a search among ranges of calls with one answer, so that no call passes more than a dozen
/// comparisons. A refusal is an errno that programs understand; only a foreign ABI kills.
pub fn filter(exec: &Exec, inside: bool) -> Vec<Instruction> {
    let all = verdicts(exec, inside);
    let mut ranges: Vec<(u32, &Verdict)> = Vec::new();
    for (number, verdict) in all.iter().enumerate() {
        if ranges.last().is_none_or(|(_, last)| *last != verdict) {
            ranges.push((number as u32, verdict));
        }
    }
    let newer = Verdict::Answer(refuse_with(ENOSYS));
    ranges.push((nr::END, &newer));
    let foreign = Verdict::Answer(KILL_PROCESS); // the x32 ABI
    if cfg!(target_arch = "x86_64") {
        ranges.push((0x4000_0000, &foreign));
    }
    let mut out = Vec::with_capacity(768);
    let arch = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
    out.extend([load(4), Instruction { code: 0x15, jump_true: 1, jump_false: 0, value: arch }, answer(KILL_PROCESS)]);
    out.push(load(0));
    search(&ranges, &mut out);
    out
}

/// Appends the search for the number that is loaded among `ranges`, each given by its first number.
fn search(ranges: &[(u32, &Verdict)], out: &mut Vec<Instruction>) {
    match ranges {
        [] => {}
        [(_, Verdict::Answer(value))] => out.push(answer(*value)),
        [(_, Verdict::Rule(body))] => out.extend_from_slice(body),
        _ => {
            let (below, above) = ranges.split_at(ranges.len() / 2);
            out.push(Instruction { code: 0x35, jump_true: 0, jump_false: 1, value: above[0].0 }); // at least
            let jump = out.len();
            out.push(Instruction { code: 0x05, jump_true: 0, jump_false: 0, value: 0 }); // always
            search(below, out);
            out[jump].value = (out.len() - jump - 1) as u32;
            search(above, out);
        }
    }
}
