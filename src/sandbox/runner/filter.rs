//! The seccomp filter of a command.

use super::kernel::*;
use super::numbers::{NONE, nr};
use super::request::{Exec, Network, flag};

#[repr(C)]
#[derive(Clone, Copy)]
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

/// Builds the filter. It is a list of what is refused: programs are many, dangerous calls are few and known, and a call
/// newer than the list does not exist. A refusal is an errno that programs understand; only a foreign ABI kills.
pub fn filter(exec: &Exec, inside: bool) -> Vec<Instruction> {
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
