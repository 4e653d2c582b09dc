//! The system calls that a command may make, in groups with the reason for each, and those that are refused by name.
//!
//! A call must never be allowed because nobody thought of it: what is in neither list, and has no rule in `filter`, is
//! answered with ENOSYS, as a kernel without it would, and libraries do without it.

use super::numbers::nr;

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
