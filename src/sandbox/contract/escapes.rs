//! Attempts to get out, made from inside by Python. `docs/security.md` lists them with what stops each.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use ghost_sandbox::End;

use crate::machine::{self, mark, marked};
use crate::place::{Kind, Place, sh};

/// System calls that are refused everywhere: name, number on x86_64, number on aarch64, arguments.
const CALLS: &str = "\
arm = os.uname().machine == 'aarch64'
path = ctypes.c_char_p(b'/')
table = [
  ('ptrace', 101, 117, (0x4206, 1)), ('traceme', 101, 117, (0,)), ('process_vm_readv', 310, 270, (1,)),
  ('process_vm_writev', 311, 271, (1,)), ('pidfd_getfd', 438, 438, ()), ('kcmp', 312, 272, ()),
  ('process_madvise', 440, 440, ()), ('keyctl', 250, 219, (0, -3, 1)), ('add_key', 248, 217, ()),
  ('request_key', 249, 218, ()), ('io_uring_setup', 425, 425, (1,)), ('io_uring_enter', 426, 426, ()),
  ('io_uring_register', 427, 427, ()), ('mount', 165, 40, ()), ('umount', 166, 39, ()), ('pivot_root', 155, 41, ()),
  ('chroot', 161, 51, (path,)), ('open_tree', 428, 428, ()), ('move_mount', 429, 429, ()), ('fsopen', 430, 430, ()),
  ('mount_setattr', 442, 442, ()), ('unshare_user', 272, 97, (0x10000000,)), ('unshare_mount', 272, 97, (0x20000,)),
  ('unshare_net', 272, 97, (0x40000000,)), ('setns', 308, 268, ()), ('clone_user', 56, 220, (0x10000011,)),
  ('clone_pid', 56, 220, (0x20000011,)), ('bpf', 321, 280, ()), ('perf_event_open', 298, 241, ()),
  ('userfaultfd', 323, 282, ()), ('fanotify_init', 300, 262, ()), ('kexec_load', 246, 104, ()),
  ('finit_module', 313, 273, ()), ('name_to_handle_at', 303, 264, ()), ('open_by_handle_at', 304, 265, ()),
  ('personality', 135, 92, (0x400000,)), ('quotactl', 179, 60, ()), ('acct', 163, 89, ()), ('swapon', 167, 224, ()),
  ('reboot', 169, 142, ()), ('settimeofday', 164, 170, ()), ('syslog', 103, 116, (10,)),
  ('memfd_create', 319, 279, (path,)), ('memfd_secret', 447, 447, ()), ('tiocsti', 16, 29, (0, 0x5412)),
  ('tiocsti_high_bits', 16, 29, (0, 1 << 32 | 0x5412)), ('tioclinux', 16, 29, (0, 0x541C)),
  ('prlimit_of_another', 302, 261, (1, 7)), ('clone3', 435, 435, ()), ('unknown', 480, 480, ()),
]
for name, x86, aarch64, arguments in table:
    t(name, lambda: call(aarch64 if arm else x86, *arguments))
";

// covers: SBX-04
pub fn system_calls_are_refused(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let results = place.attempts("ada", CALLS);
    assert_eq!(results.len(), 50, "{results:?}");
    for (name, result) in results {
        let wanted = if matches!(name.as_str(), "clone3" | "unknown") { "ENOSYS" } else { "EPERM" };
        assert_eq!(result, wanted, "{name}");
    }
}

// covers: SBX-04
pub fn there_is_no_network(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let (tcp, unix) = (TcpListener::bind("0.0.0.0:0").unwrap(), place.workspace().join("socket"));
    let _listening = UnixListener::bind(&unix).unwrap();
    let abstract_name = format!("ghost-{}", mark());
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&abstract_name);
    let _abstract = UnixListener::bind_addr(&address.unwrap()).unwrap();
    let code = format!(
        "port, unix, name = {}, {:?}, {:?}\n\
         for host in ['127.0.0.1', '172.17.0.1', '169.254.169.254', '10.0.0.1', '192.168.0.1', '0.0.0.0', '1.1.1.1']:\n\
         \x20 t('tcp ' + host, lambda: socket.create_connection((host, port), 1))\n\
         \x20 t('udp ' + host, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (host, port)))\n\
         for host in ['::1', 'fe80::1', '::ffff:127.0.0.1']:\n\
         \x20 t('tcp ' + host, lambda: socket.create_connection((host, port), 1))\n\
         t('listen', lambda: socket.create_server(('127.0.0.1', 0)))\n\
         t('unix', lambda: socket.socket(socket.AF_UNIX).connect(unix))\n\
         t('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0' + name))\n\
         for family, kind in [('AF_NETLINK', 3), ('AF_PACKET', 3), ('AF_VSOCK', 1), ('AF_ALG', 5)]:\n\
         \x20 t(family, lambda: socket.socket(getattr(socket, family), kind, 0))\n\
         t('resolver', lambda: socket.getaddrinfo('example.org', 80))\n",
        tcp.local_addr().unwrap().port(),
        format!("{}/socket", place.inside()),
        abstract_name,
    );
    let results = place.attempts("ada", &code);
    assert_eq!(results.len(), 25, "{results:?}");
    for (name, result) in results {
        // The resolver has an error of its own.
        assert!(result == "EACCES" || name == "resolver" && result != "ok", "{name}: {result}");
    }
    tcp.set_nonblocking(true).unwrap();
    assert!(tcp.accept().is_err(), "somebody connected");
    assert_eq!(place.sh("ada", "true").end, End::Exited(0));
}

// covers: SBX-04
pub fn the_daemon_and_its_files_cannot_be_reached(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let data = place.data().canonicalize().unwrap();
    for name in ["ghost.db", "token"] {
        std::fs::write(data.join(name), "secret").unwrap();
    }
    let _socket = UnixListener::bind(data.join("ghostd.sock")).unwrap();
    let code = format!(
        "data, pid, inside = {:?}, {}, {:?}\n\
         def read(path): return open(path, 'rb').read(1)\n\
         for name in ['ghost.db', 'token', 'sandbox-runner']:\n\
         \x20 t('read ' + name, lambda: read(f'{{data}}/{{name}}'))\n\
         \x20 t('write ' + name, lambda: open(f'{{data}}/{{name}}', 'r+b'))\n\
         \x20 t('by .. ' + name, lambda: read(f'{{inside}}/../{{name}}'))\n\
         \x20 t('by the root of 1 ' + name, lambda: read(f'/proc/1/root{{data}}/{{name}}'))\n\
         t('list', lambda: os.listdir(data))\n\
         t('link', lambda: os.link(f'{{data}}/token', 'token'))\n\
         t('socket', lambda: socket.socket(socket.AF_UNIX).connect(f'{{data}}/ghostd.sock'))\n\
         for socket_of in ['/var/run/docker.sock', '/run/docker.sock', '/run/containerd/containerd.sock']:\n\
         \x20 t('connect ' + socket_of, lambda: socket.socket(socket.AF_UNIX).connect(socket_of))\n\
         for of in [1, pid, os.getppid()]:\n\
         \x20 for name in ['environ', 'mem', 'maps', 'root/etc/passwd', 'cwd/.', 'fd/0']:\n\
         \x20\x20 t(f'{{of}} {{name}}', lambda: read(f'/proc/{{of}}/{{name}}'))\n\
         t('signal', lambda: os.kill(pid, 0))\n\
         t('shadow', lambda: read('/etc/shadow'))\n\
         t('kernel memory', lambda: read('/proc/kcore'))\n\
         t('device', lambda: os.mknod('device', 0o60600, os.makedev(8, 0)))\n\
         t('disk', lambda: read('/dev/sda') and read('/dev/vda'))\n\
         t('sysrq', lambda: open('/proc/sysrq-trigger', 'w').write('h'))\n\
         t('cgroup', lambda: os.mkdir('/sys/fs/cgroup/memory/escape'))\n",
        data.display(),
        std::process::id(),
        place.inside(),
    );
    let results = place.attempts("ada", &code);
    assert!(results.len() > 35, "{results:?}");
    for (name, result) in results {
        // The runner may be run and read, not written.
        assert!(result != "ok", "{name}");
    }
    assert_eq!(std::fs::read_to_string(data.join("token")).unwrap(), "secret");
}

// covers: SBX-04
pub fn nothing_is_gained_by_being_privileged(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let status = place.sh("ada", "cat /proc/self/status").stdout.text;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name} in {status}")).trim().to_owned()
    };
    for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(field(name), "0000000000000000", "{name}");
    }
    assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1".to_owned(), "2".to_owned()));
    let user = place.user("ada").to_string();
    assert!(field("Uid").split_whitespace().all(|id| id == user), "{}", field("Uid"));
    // A program that belongs to root and has the set-user-id bit, put there by the operator, gives nothing.
    let own = place.workspace().join("agents/ada");
    std::fs::copy("/usr/bin/id", own.join("setuid")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o6755);
    std::fs::set_permissions(own.join("setuid"), mode).unwrap();
    let done = place.sh("ada", "./setuid -u");
    assert_eq!(done.stdout.text.trim(), user, "{}", done.stderr.text);
    for line in
        ["su root -c id", "mount -t tmpfs x /tmp", "unshare -r id", "nsenter -t 1 -m id", "chown 0 /tmp", "kill -9 1"]
    {
        assert_ne!(place.sh("ada", line).end, End::Exited(0), "{line}");
    }
    assert_eq!(place.sh("ada", "echo still").stdout.text, "still\n");
}

// covers: SBX-04
pub fn agents_see_nothing_of_each_other(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let (mark, begun) = (mark(), tokio::sync::Notify::new());
    let progress = |_: &[u8]| begun.notify_one();
    let script = format!("echo secret > /tmp/of-ada 2>/dev/null; echo ready; sleep {mark}; true");
    let mut of_ada = sh("ada", &script);
    of_ada.env.push(("SECRET".into(), "tiger".into()));
    place.runtime.block_on(async {
        let run = place.sandbox.run(of_ada, &progress);
        tokio::pin!(run);
        tokio::select! {
            biased;
            done = &mut run => panic!("it ended: {done:?}"),
            () = begun.notified() => {}
        }
        machine::until("the command sleeps", || !marked(&mark).is_empty());
        let target = *marked(&mark).last().unwrap();
        let code = format!(
            "import glob, signal\n\
             def seen(): return [p for p in glob.glob('/proc/[0-9]*/cmdline') if b'{mark}' in open(p, 'rb').read()]\n\
             print('RESULT seen=' + str(len(seen())))\n\
             def tiger():\n\
             \x20 for p in glob.glob('/proc/[0-9]*/environ'):\n\
             \x20\x20 try:\n\
             \x20\x20\x20 if b'tiger' in open(p, 'rb').read(): return\n\
             \x20\x20 except OSError: pass\n\
             \x20 raise OSError(13, 'x')\n\
             t('environment', tiger)\n\
             t('file', lambda: open('/tmp/of-ada').read())\n\
             t('kill', lambda: os.kill({target}, signal.SIGKILL))\n\
             t('all', lambda: call(62 if os.uname().machine != 'aarch64' else 129, -1, 0))\n\
             t('memory', lambda: open('/proc/{target}/mem', 'rb'))\n\
             t('queue', lambda: call(68 if os.uname().machine != 'aarch64' else 186, 77, 0))\n"
        );
        let mut of_bob = crate::place::command("bob", &["python3", "-I", "-"]);
        of_bob.stdin = format!("{}\n{code}", crate::place::ATTEMPTS).into_bytes();
        let done = place.sandbox.run(of_bob, &|_| {}).await.unwrap();
        let text = &done.stdout.text;
        assert_eq!(done.end, End::Exited(0), "{} {}", text, done.stderr.text);
        for held in ["seen=0", "environment=EACCES"] {
            assert!(text.contains(&format!("RESULT {held}\n")), "{held}: {text}");
        }
        for name in ["file", "kill", "memory", "queue"] {
            assert!(!text.contains(&format!("RESULT {name}=ok")) || name == "queue", "{name}: {text}");
        }
        assert!(!marked(&mark).is_empty(), "bob ended ada's command");
    });
    machine::gone(&mark);
}
