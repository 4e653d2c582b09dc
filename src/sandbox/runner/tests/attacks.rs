//! The attacks, run inside the sandbox. They are bounded, and stay on loopback.

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::client::*;

pub fn report(name: &str, failed: bool) {
    println!("RESULT {name}={}", if failed { errno() } else { 0 });
}
pub fn io_report<T>(name: &str, result: std::io::Result<T>) {
    println!("RESULT {name}={}", result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1)));
}
pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

pub fn calls() {
    // (name, x86_64, aarch64, arguments)
    let table: &[(&str, i64, i64, [usize; 4])] = &[
        ("socket_unix", 41, 198, [1, 1, 0, 0]),
        ("socket_unix_dgram", 41, 198, [1, 2, 0, 0]),
        ("socket_unix_high_bits", 41, 198, [1 << 32 | 1, 1, 0, 0]),
        ("socket_inet", 41, 198, [2, 1, 0, 0]),
        ("socket_inet_udp", 41, 198, [2, 2, 0, 0]),
        ("socket_inet6", 41, 198, [10, 1, 0, 0]),
        ("socket_netlink", 41, 198, [16, 3, 0, 0]),
        ("socket_packet", 41, 198, [17, 3, 0, 0]),
        ("socket_vsock", 41, 198, [40, 1, 0, 0]),
        ("socket_alg", 41, 198, [38, 5, 0, 0]),
        ("ptrace_traceme", 101, 117, [0, 0, 0, 0]),
        ("ptrace_seize", 101, 117, [0x4206, 1, 0, 0]),
        ("process_vm_readv", 310, 270, [1, 0, 0, 0]),
        ("process_vm_writev", 311, 271, [1, 0, 0, 0]),
        ("process_madvise", 440, 440, [0, 0, 0, 0]),
        ("io_uring_setup", 425, 425, [1, 0, 0, 0]),
        ("io_uring_enter", 426, 426, [0, 0, 0, 0]),
        ("io_uring_register", 427, 427, [0, 0, 0, 0]),
        ("keyctl", 250, 219, [0, -3isize as usize, 1, 0]),
        ("add_key", 248, 217, [0, 0, 0, 0]),
        ("request_key", 249, 218, [0, 0, 0, 0]),
        ("mount", 165, 40, [0, 0, 0, 0]),
        ("umount2", 166, 39, [0, 0, 0, 0]),
        ("pivot_root", 155, 41, [0, 0, 0, 0]),
        ("chroot", 161, 51, [c"/usr".as_ptr() as usize, 0, 0, 0]),
        ("open_tree", 428, 428, [0, 0, 0, 0]),
        ("move_mount", 429, 429, [0, 0, 0, 0]),
        ("fsopen", 430, 430, [0, 0, 0, 0]),
        ("fsconfig", 431, 431, [0, 0, 0, 0]),
        ("mount_setattr", 442, 442, [0, 0, 0, 0]),
        ("unshare_user", 272, 97, [0x1000_0000, 0, 0, 0]),
        ("unshare_net", 272, 97, [0x4000_0000, 0, 0, 0]),
        ("unshare_time", 272, 97, [0x80, 0, 0, 0]),
        ("setns", 308, 268, [0, 0, 0, 0]),
        ("clone_user", 56, 220, [0x1000_0011, 0, 0, 0]),
        ("clone_pid", 56, 220, [0x2000_0011, 0, 0, 0]),
        ("clone3", 435, 435, [0, 0, 0, 0]),
        ("bpf", 321, 280, [0, 0, 0, 0]),
        ("perf_event_open", 298, 241, [0, 0, 0, 0]),
        ("userfaultfd", 323, 282, [0, 0, 0, 0]),
        ("kexec_load", 246, 104, [0, 0, 0, 0]),
        ("finit_module", 313, 273, [0, 0, 0, 0]),
        ("name_to_handle_at", 303, 264, [0, 0, 0, 0]),
        ("open_by_handle_at", 304, 265, [0, 0, 0, 0]),
        ("personality", 135, 92, [0x0040_0000, 0, 0, 0]),
        ("quotactl", 179, 60, [0, 0, 0, 0]),
        ("acct", 163, 89, [0, 0, 0, 0]),
        ("swapon", 167, 224, [0, 0, 0, 0]),
        ("reboot", 169, 142, [0, 0, 0, 0]),
        ("settimeofday", 164, 170, [0, 0, 0, 0]),
        ("clock_settime", 227, 112, [99, 0, 0, 0]),
        ("pidfd_getfd", 438, 438, [0, 0, 0, 0]),
        ("kcmp", 312, 272, [0, 0, 0, 0]),
        ("syslog", 103, 116, [10, 0, 0, 0]),
        ("memfd_create", 319, 279, [c"x".as_ptr() as usize, 0, 0, 0]),
        ("tiocsti", 16, 29, [0, 0x5412, 0, 0]),
        ("tiocsti_high_bits", 16, 29, [0, 1 << 32 | 0x5412, 0, 0]),
        ("tioclinux", 16, 29, [0, 0x541C, 0, 0]),
        ("prlimit_parent", 302, 261, [1, 7, 0, 0]),
        ("prlimit_self", 302, 261, [0, 7, 0, 0]),
        ("future", 480, 480, [0, 0, 0, 0]),
        ("outside_only_shmget", 29, 194, [0, 4096, 0x3FF, 0]),
        ("outside_only_mq_open", 240, 180, [c"q".as_ptr() as usize, 0, 0, 0]),
        ("outside_only_setpriority", 141, 140, [2, 0, 19, 0]),
        ("outside_only_affinity", 203, 122, [1, 0, 0, 0]),
    ];
    for (name, x86, arm, arguments) in table {
        let number = if cfg!(target_arch = "x86_64") { *x86 } else { *arm };
        let [a, b, c, d] = *arguments;
        let result = unsafe { syscall(number, a, b, c, d, 0usize) };
        if name.starts_with("clone") && result == 0 {
            std::process::exit(0);
        }
        report(name, result < 0);
    }
    let query = unsafe { syscall(if cfg!(target_arch = "x86_64") { 135 } else { 92 }, 0xFFFF_FFFFusize) };
    report("personality_query", query < 0);
    let pair = if cfg!(target_arch = "x86_64") { 53 } else { 199 };
    let mut ends = [0i32; 2];
    for (name, family, kind) in [
        ("socketpair_stream", 1usize, 1usize),
        ("socketpair_seqpacket", 1, 0x8_0005),
        ("socketpair_dgram", 1, 2),
        ("socketpair_raw", 1, 3),
        ("socketpair_inet", 2, 1),
    ] {
        report(name, unsafe { syscall(pair, family, kind, 0usize, ends.as_mut_ptr()) } < 0);
    }
}

/// Calls that set a mode, with bits that let others run a file as its owner; and attributes that grant.
pub fn modes() {
    let (file, fresh) = (CString::new("mode").unwrap(), CString::new("fresh").unwrap());
    let (path, new) = (file.as_ptr() as usize, fresh.as_ptr() as usize);
    fs::write("mode", "x").unwrap();
    let opened = std::os::fd::IntoRawFd::into_raw_fd(fs::File::open("mode").unwrap()) as usize;
    let here = -100isize as usize;
    const CREATE: usize = 0o101;
    const NAMELESS: usize = 0o20_200_001 & !0o200_000 | if cfg!(target_arch = "x86_64") { 0o200_000 } else { 0o40_000 };
    for bits in [0o4755, 0o2755, 0o6755, 0o4000, 0o2010, 0o7777] {
        // (name, x86_64, aarch64, arguments)
        let table: &[(&str, i64, i64, [usize; 4])] = &[
            ("chmod", 90, -1, [path, bits, 0, 0]),
            ("fchmod", 91, 52, [opened, bits, 0, 0]),
            ("fchmodat", 268, 53, [here, path, bits, 0]),
            ("fchmodat2", 452, 452, [here, path, bits, 0]),
            ("open", 2, -1, [new, CREATE, bits, 0]),
            ("openat", 257, 56, [here, new, CREATE, bits]),
            ("openat_nameless", 257, 56, [here, c".".as_ptr() as usize, NAMELESS, bits]),
            ("creat", 85, -1, [new, bits, 0, 0]),
            ("mkdir", 83, -1, [new, bits, 0, 0]),
            ("mkdirat", 258, 34, [here, new, bits, 0]),
            ("mknod", 133, -1, [new, 0o100_000 | bits, 0, 0]),
            ("mknodat", 259, 33, [here, new, 0o100_000 | bits, 0]),
        ];
        for (name, x86, arm, [a, b, c, d]) in table {
            let number = if cfg!(target_arch = "x86_64") { *x86 } else { *arm };
            if number >= 0 {
                report(&format!("{name}_{bits:o}"), unsafe { syscall(number, *a, *b, *c, *d, 0usize) } < 0);
            }
        }
        let how = [0o101u64, bits as u64, 0];
        let result = unsafe { syscall(437, here, new, how.as_ptr(), 24usize, 0usize) };
        report(&format!("openat2_{bits:o}"), result < 0);
    }
    for name in [c"security.capability", c"user.note", c"system.posix_acl_access"] {
        let value = [1u32, 0, 0, 0, 0];
        for (call, x86, arm, target) in
            [("setxattr", 188, 5, path), ("lsetxattr", 189, 6, path), ("fsetxattr", 190, 7, opened)]
        {
            let number = if cfg!(target_arch = "x86_64") { x86 } else { arm };
            let result = unsafe { syscall(number, target, name.as_ptr(), value.as_ptr(), 20usize, 0usize) };
            report(&format!("{call}_{}", name.to_str().unwrap()), result < 0);
        }
    }
    // What stays: other modes, also when a file is made; the sticky bit.
    io_report("good_mode", fs::set_permissions("mode", fs::Permissions::from_mode(0o1751)));
    io_report("good_open", fs::write("made", "x"));
    io_report("good_folder", fs::create_dir("made-folder"));
}

/// Looks at names that are not listed.
pub fn sights() {
    let outside = variable("OUTSIDE");
    let (start, watch) = if cfg!(target_arch = "x86_64") { (294, 254) } else { (26, 27) };
    let watcher = unsafe { syscall(start, 0usize) };
    let file = format!("{outside}/file");
    for path in ["/root", "/home", "/boot", "/sys", "/run", "/var/log", "/var/lib", "/etc/shadow", "/etc/hostname"]
        .into_iter()
        .chain([outside.as_str(), file.as_str()])
    {
        io_report(&format!("stat_{path}"), fs::symlink_metadata(path));
        io_report(&format!("through_{path}"), fs::symlink_metadata(format!("/proc/self/root{path}")));
        let name = CString::new(path).unwrap();
        report(&format!("watch_{path}"), unsafe { syscall(watch, watcher, name.as_ptr(), 0x303usize) } < 0);
    }
    for path in ["/usr/bin", "/etc/passwd", "/dev/null", "."] {
        io_report(&format!("listed_{path}"), fs::metadata(path));
    }
}

pub fn writes() {
    let outside = PathBuf::from(variable("OUTSIDE"));
    let file = outside.join("file");
    let open = |path: PathBuf| fs::OpenOptions::new().write(true).open(path);
    io_report("inside", fs::write("sub/new", "x"));
    io_report("absolute", open(file.clone()));
    io_report("create", fs::write(outside.join("new"), "x"));
    io_report("symlink_file", open("file".into()));
    io_report("symlink_folder", fs::write("link/new", "x"));
    io_report("dots", open("../outside/file".into()));
    io_report("dots_through_link", open("link/../outside/file".into()));
    io_report("proc_cwd", open("/proc/self/cwd/../outside/file".into()));
    io_report("proc_root", open(format!("/proc/self/root{}", file.display()).into()));
    io_report("hard_link", fs::hard_link(&file, "linked"));
    io_report("rename_out", fs::rename("sub/new", outside.join("new")));
    io_report("rename_in", fs::rename(&file, "sub/taken"));
    io_report("remove", fs::remove_file(&file));
    io_report("remove_folder", fs::remove_dir(&outside));
    io_report("make_folder", fs::create_dir(outside.join("folder")));
    io_report("truncate", {
        let path = CString::new(file.to_str().unwrap()).unwrap();
        let number = if cfg!(target_arch = "x86_64") { 76 } else { 45 };
        if unsafe { syscall(number, path.as_ptr(), 0usize) } < 0 {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    });
    io_report("read", fs::read(&file));
    // A read-only descriptor reopened for writing.
    if let Ok(passwd) = fs::File::open("/etc/passwd") {
        use std::os::fd::AsRawFd;
        io_report("proc_fd", open(format!("/proc/self/fd/{}", passwd.as_raw_fd()).into()));
    }
    io_report("sysctl", open("/proc/sys/kernel/core_pattern".into()));
    io_report("chmod", fs::set_permissions(&file, fs::Permissions::from_mode(0o644)));
    io_report("utimes", {
        let (number, path) =
            (if cfg!(target_arch = "x86_64") { 280 } else { 88 }, CString::new(file.to_str().unwrap()).unwrap());
        if unsafe { syscall(number, -100i64, path.as_ptr(), 0usize, 0usize) } < 0 {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    });
}

pub fn others() {
    io_report("self_environ", fs::read("/proc/self/environ"));
    let parent = std::os::unix::process::parent_id() as i32;
    let mut targets = vec![("one".to_owned(), 1), ("parent".to_owned(), parent)];
    targets.extend(["TARGET", "RUNNER", "SIBLING"].map(|name| (name.to_lowercase(), variable(name).parse().unwrap())));
    for (name, pid) in targets {
        // Inside a PID namespace the numbers of the outside mean nothing, or us.
        for file in ["environ", "mem", "maps", "fd", "root", "cwd", "task/1/environ"] {
            let path = format!("/proc/{pid}/{file}");
            // The numbers of descriptors can be listed; where they lead cannot be read.
            let result = if file == "fd" {
                fs::read_link(format!("{path}/0")).map(|_| ())
            } else if matches!(file, "root" | "cwd") {
                fs::read_link(path).map(|_| ())
            } else {
                fs::File::open(path)
                    .and_then(|mut file| {
                        let mut bytes = [0; 64];
                        file.read(&mut bytes)
                    })
                    .map(|_| ())
            };
            io_report(&format!("{name}_{}", file.replace('/', "_")), result);
        }
        if !(pid == 1 || pid == parent) {
            report(&format!("{name}_kill_0"), unsafe { kill(pid, 0) } < 0);
            report(&format!("{name}_kill_term"), unsafe { kill(pid, 15) } < 0);
            let open = unsafe { syscall(434, pid as usize, 0usize) };
            if open >= 0 {
                report(&format!("{name}_pidfd_kill"), unsafe { syscall(424, open, 15usize, 0usize, 0usize) } < 0);
            }
        }
    }
    // With every refusal this still answers 0; the test looks whether the others live.
    unsafe { kill(-1, 15) };
}

pub fn network() {
    let port = |name: &str| variable(name).parse::<u16>().unwrap();
    io_report("open", TcpStream::connect(("127.0.0.1", port("OPEN"))));
    io_report("shut", TcpStream::connect(("127.0.0.1", port("SHUT"))));
    io_report("bind", TcpListener::bind("127.0.0.1:0"));
    io_report("udp", std::net::UdpSocket::bind("127.0.0.1:0"));
    let socket = if cfg!(target_arch = "x86_64") { 41 } else { 198 };
    report("mptcp", unsafe { syscall(socket, 2usize, 1usize, 262usize) } < 0);
    report("unix", unsafe { syscall(socket, 1usize, 1usize, 0usize) } < 0);
    report("netlink", unsafe { syscall(socket, 16usize, 3usize, 0usize) } < 0);
    report("packet", unsafe { syscall(socket, 17usize, 3usize, 0usize) } < 0);
    let fd = unsafe { syscall(socket, 2usize, 1usize, 0usize) };
    let mut place = [0u8; 16];
    place[..2].copy_from_slice(&2u16.to_ne_bytes());
    place[2..4].copy_from_slice(&port("SHUT").to_be_bytes());
    place[4..8].copy_from_slice(&[127, 0, 0, 1]);
    let send = if cfg!(target_arch = "x86_64") { 44 } else { 206 };
    if fd >= 0 {
        report(
            "fast_open",
            unsafe { syscall(send, fd, place.as_ptr(), 0usize, 0x2000_4000usize, place.as_ptr(), 16usize) } < 0,
        );
    }
}
