//! Black-box tests of the runner: they start the compiled program and speak the protocol. Every test runs in five
//! configurations (root and unprivileged runner, with namespaces and without, and as in a container). They need root,
//! because each configuration has a user of its own; another user skips them, unless `GHOST_SANDBOX=required`.
//!
//! Attacks are run by this same binary inside the sandbox (`attack_main`), are bounded, and stay on loopback.

// A failure in a test is a panic with a message. The tests start programs and make system calls, as attackers do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::print_stdout
)]
#![allow(unsafe_code, reason = "the attacks are system calls, which the standard library does not offer")]

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Where the runner and this program are copied, so that every user can start them.
const FOLDER: &str = "/var/tmp/ghost-runner-tests";
static NEXT: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
    fn kill(pid: i32, signal: i32) -> i32;
    fn fork() -> i32;
    fn setsid() -> i32;
}
fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

// ----- A client of the protocol -----

#[derive(Debug, Clone)]
struct Frame {
    kind: u8,
    id: u32,
    body: Vec<u8>,
}
const STARTED: u8 = 0x82;
const DATA: u8 = 0x83;
const EOF: u8 = 0x84;
const CREDIT: u8 = 0x85;
const EXIT: u8 = 0x86;
const REFUSED: u8 = 0x87;
const OPENED: u8 = 0x88;
const ACCEPTED: u8 = 0x89;
const CLOSED: u8 = 0x8A;
const FATAL: u8 = 0x8F;

const SECCOMP: u32 = 1;
const FILES: u32 = 2;
const NETWORK: u32 = 4;
const SIGNALS: u32 = 8;
const TRACE: u32 = 16;
const TREE: u32 = 32;
const METADATA: u32 = 64;
const TASKS: u32 = 128;
const NAMESPACES: u32 = 256;
const NETNS: u32 = 512;
const UID: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Mode {
    root: bool,
    spaces: bool,
    /// Process 1 of a PID namespace, root with CAP_SETUID and CAP_SETGID alone: as in a container.
    contained: bool,
}
const MODES: [Mode; 5] = [
    Mode { root: true, spaces: true, contained: false },
    Mode { root: true, spaces: false, contained: false },
    Mode { root: false, spaces: true, contained: false },
    Mode { root: false, spaces: false, contained: false },
    Mode { root: true, spaces: false, contained: true },
];

struct Client {
    child: Child,
    to: Option<ChildStdin>,
    frames: Receiver<Frame>,
    hello: Frame,
    mode: Mode,
    uid: u32,
    dir: PathBuf,
    next: u32,
    kept: Vec<Frame>,
}

fn u32_at(body: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(body[at..at + 4].try_into().unwrap())
}
fn u64_at(body: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(body[at..at + 8].try_into().unwrap())
}
fn put(into: &mut Vec<u8>, text: &str) {
    into.extend((text.len() as u32).to_le_bytes());
    into.extend(text.as_bytes());
}

impl Client {
    fn new(mode: Mode) -> Client {
        Client::under(mode, &[])
    }
    fn under(mode: Mode, tracer: &[&str]) -> Client {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // An own uid for each client: limits by uid and signals stay apart from everything else on the machine.
        let uid = 61_000 + std::process::id() % 1000 * 3 + number % 3000;
        let dir = PathBuf::from(format!("/tmp/ghost-runner-{}-{number}", std::process::id()));
        fs::create_dir_all(dir.join("work/sub")).unwrap();
        fs::create_dir_all(dir.join("outside")).unwrap();
        fs::write(dir.join("outside/file"), "untouched").unwrap();
        for path in [dir.clone(), dir.join("work"), dir.join("work/sub"), dir.join("outside"), dir.join("outside/file")]
        {
            chown(&path, Some(uid), Some(uid)).unwrap();
        }
        let runner = format!("{FOLDER}/runner");
        let mut command = if let Some(program) = tracer.first() {
            let mut command = Command::new(program);
            command.args(&tracer[1..]).arg(runner);
            command
        } else if mode.contained {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "setpriv", "--inh-caps=-all"]);
            command.args(["--bounding-set=-all,+setuid,+setgid", &runner]);
            command
        } else if mode.root {
            Command::new(runner)
        } else {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into(), runner]);
            command
        };
        command.env_clear().env("PATH", "/usr/bin:/bin").env("DAEMON_SECRET", "tiger");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (to, mut from) = (child.stdin.take(), child.stdout.take().unwrap());
        let (send, frames) = channel();
        std::thread::spawn(move || {
            let mut header = [0; 9];
            while from.read_exact(&mut header).is_ok() {
                let mut body = vec![0; u32_at(&header, 0) as usize];
                if from.read_exact(&mut body).is_err() {
                    return;
                }
                if send.send(Frame { kind: header[4], id: u32_at(&header, 5), body }).is_err() {
                    return;
                }
            }
        });
        let hello = frames.recv_timeout(Duration::from_secs(5)).expect("hello");
        assert_eq!(hello.kind, 0x81);
        let mut client = Client { child, to, frames, hello, mode, uid, dir, next: 1, kept: Vec::new() };
        client.send(1, 0, &2u16.to_le_bytes());
        client
    }
    fn raw(&mut self, bytes: &[u8]) {
        let _ = self.to.as_mut().unwrap().write_all(bytes);
    }
    fn send(&mut self, kind: u8, id: u32, body: &[u8]) {
        let mut frame = (body.len() as u32).to_le_bytes().to_vec();
        frame.push(kind);
        frame.extend(id.to_le_bytes());
        frame.extend(body);
        self.to.as_mut().unwrap().write_all(&frame).unwrap();
    }
    fn credit(&mut self, id: u32, channel: u8, amount: u32) {
        let mut body = vec![channel];
        body.extend(amount.to_le_bytes());
        self.send(5, id, &body);
    }
    fn data(&mut self, id: u32, bytes: &[u8]) {
        let mut body = vec![0];
        body.extend(bytes);
        self.send(3, id, &body);
    }
    fn next(&mut self) -> Frame {
        self.frames.recv_timeout(Duration::from_secs(20)).expect("a frame within 20 s")
    }
    /// The next frame of one stream; others are kept.
    fn next_of(&mut self, id: u32) -> Frame {
        if let Some(at) = self.kept.iter().position(|frame| frame.id == id) {
            return self.kept.remove(at);
        }
        loop {
            let frame = self.next();
            if frame.id == id {
                return frame;
            }
            self.kept.push(frame);
        }
    }
    fn spec(&self, argv: &[&str]) -> Spec {
        let mut spec = Spec {
            flags: if self.mode.spaces { 4 | 8 } else { 0 },
            required: SECCOMP | FILES | NETWORK | SIGNALS | TRACE,
            vouched: 0,
            network: 0,
            uid: if self.mode.root { self.uid } else { u32::MAX },
            deadline_ms: 15_000,
            memory: 0,
            processes: 0,
            disk: 0,
            tmp: 8 << 20,
            limits: [256, 0, 0, 0, 0, 0],
            credit: 256 * 1024,
            cwd: self.dir.join("work").display().to_string(),
            argv: argv.iter().map(|word| word.to_string()).collect(),
            env: vec!["PATH=/usr/bin:/bin".into(), "ONLY=this".into()],
            paths: Vec::new(),
            connect: Vec::new(),
            tunnel: Vec::new(),
            wrapper: Vec::new(),
        };
        for path in ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/passwd", "/proc"] {
            spec.paths.push((1 | 4 | 64 | 128, path.into()));
        }
        spec.paths.push((1 | 4, format!("{FOLDER}/tests")));
        for path in ["/dev/null", "/dev/zero", "/dev/urandom"] {
            spec.paths.push((1 | 2, path.into()));
        }
        spec.paths.push((1 | 2 | 4, self.dir.join("work").display().to_string()));
        spec
    }
    fn attack(&self, name: &str, extra: &[(&str, String)]) -> Spec {
        let mut spec =
            self.spec(&[&format!("{FOLDER}/tests"), "--exact", "attack_main", "--nocapture", "--test-threads=1"]);
        spec.env.push(format!("ATTACK={name}"));
        spec.env.push(format!("OUTSIDE={}", self.dir.join("outside").display()));
        spec.env.extend(extra.iter().map(|(name, value)| format!("{name}={value}")));
        spec
    }
    fn start(&mut self, spec: &Spec) -> u32 {
        let id = self.next;
        self.next += 1;
        self.send(2, id, &spec.encode());
        id
    }
    fn finish(&mut self, id: u32) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            let frame = self.next_of(id);
            match frame.kind {
                STARTED => outcome.in_force = u32_at(&frame.body, 0),
                DATA => {
                    let amount = frame.body.len() as u32 - 1;
                    outcome.out[usize::from(frame.body[0]) - 1].extend(&frame.body[1..]);
                    self.credit(id, frame.body[0], amount);
                }
                EOF | CREDIT => {}
                EXIT => {
                    outcome.why = frame.body[0];
                    outcome.code = u32_at(&frame.body, 1) as i32;
                    outcome.signal = frame.body[5];
                    outcome.duration_us = u64_at(&frame.body, 6);
                    outcome.max_rss_kib = u64_at(&frame.body, 14);
                    outcome.totals = [u64_at(&frame.body, 30), u64_at(&frame.body, 38)];
                    return outcome;
                }
                REFUSED => {
                    outcome.refused = Some((frame.body[0], String::from_utf8_lossy(&frame.body[2..]).into()));
                    return outcome;
                }
                other => panic!("unexpected frame {other:#x}: {}", String::from_utf8_lossy(&frame.body)),
            }
        }
    }
    fn run(&mut self, spec: &Spec) -> Outcome {
        let id = self.start(spec);
        self.finish(id)
    }
    fn sh(&mut self, script: &str) -> Outcome {
        let spec = self.spec(&["sh", "-c", script]);
        self.run(&spec)
    }
    /// The runner's own process, which `unshare` starts as its child.
    fn pid(&self) -> i32 {
        let id = self.child.id();
        if !self.mode.contained {
            return id as i32;
        }
        fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap().trim().parse().unwrap()
    }
    fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }
}
impl Drop for Client {
    fn drop(&mut self) {
        self.to = None;
        let until = Instant::now() + Duration::from_secs(8);
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                if !std::thread::panicking() {
                    panic!("the runner outlived its input");
                }
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = fs::remove_dir_all(&self.dir);
        let left = processes_of(self.uid);
        if !std::thread::panicking() {
            assert!(left.is_empty(), "{:?}: left running: {left:?}", self.mode);
        }
    }
}

struct Spec {
    flags: u32,
    required: u32,
    vouched: u32,
    network: u8,
    uid: u32,
    deadline_ms: u32,
    memory: u64,
    processes: u32,
    disk: u64,
    tmp: u64,
    limits: [u64; 6],
    credit: u32,
    cwd: String,
    argv: Vec<String>,
    env: Vec<String>,
    paths: Vec<(u8, String)>,
    connect: Vec<u16>,
    tunnel: Vec<u16>,
    wrapper: Vec<String>,
}
impl Spec {
    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for number in [self.flags, self.required, self.vouched] {
            body.extend(number.to_le_bytes());
        }
        body.push(self.network);
        for number in [self.uid, self.uid, 0o22, self.deadline_ms] {
            body.extend(number.to_le_bytes());
        }
        body.extend(self.memory.to_le_bytes());
        body.extend(self.processes.to_le_bytes());
        for number in [self.disk, self.tmp].into_iter().chain(self.limits) {
            body.extend(number.to_le_bytes());
        }
        body.extend(self.credit.to_le_bytes());
        body.extend(self.credit.to_le_bytes());
        put(&mut body, &self.cwd);
        let list = |body: &mut Vec<u8>, list: &[String]| {
            body.extend((list.len() as u32).to_le_bytes());
            list.iter().for_each(|text| put(body, text));
        };
        list(&mut body, &self.argv);
        list(&mut body, &self.env);
        body.extend((self.paths.len() as u32).to_le_bytes());
        for (access, path) in &self.paths {
            body.push(*access);
            put(&mut body, path);
        }
        for ports in [&self.connect, &Vec::new(), &self.tunnel] {
            body.extend((ports.len() as u32).to_le_bytes());
            ports.iter().for_each(|port| body.extend(port.to_le_bytes()));
        }
        list(&mut body, &self.wrapper);
        body
    }
}

#[derive(Default, Debug)]
struct Outcome {
    in_force: u32,
    out: [Vec<u8>; 2],
    why: u8,
    code: i32,
    signal: u8,
    duration_us: u64,
    max_rss_kib: u64,
    totals: [u64; 2],
    refused: Option<(u8, String)>,
}
impl Outcome {
    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.out[0]).into()
    }
    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.out[1]).into()
    }
    /// The `name=value` lines that an attack printed.
    fn results(&self) -> HashMap<String, i32> {
        let text = self.stdout();
        let lines = text.lines().filter_map(|line| line.strip_prefix("RESULT ")?.split_once('='));
        lines.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }
}

fn processes_of(uid: u32) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(3);
    loop {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let owner = status.lines().find_map(|line| line.strip_prefix("Uid:"));
            if owner.is_some_and(|line| line.split_whitespace().any(|word| word == uid.to_string())) {
                found.push(status.lines().take(3).collect::<Vec<_>>().join(" "));
            }
        }
        if found.is_empty() || Instant::now() > until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the tests can run here. Copies the programs first.
fn ready() -> bool {
    static READY: OnceLock<bool> = OnceLock::new();
    *READY.get_or_init(|| {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            assert!(std::env::var("GHOST_SANDBOX").is_err(), "GHOST_SANDBOX=required, and this is not root");
            eprintln!("skipped: the tests of the runner need root");
            return false;
        }
        fs::create_dir_all(FOLDER).unwrap();
        fs::set_permissions(FOLDER, fs::Permissions::from_mode(0o755)).unwrap();
        let own = std::env::current_exe().unwrap();
        for (from, to) in [(Path::new(env!("RUNNER_DIR")).join("runner"), "runner"), (own, "tests")] {
            let new = format!("{FOLDER}/{to}-{}", std::process::id());
            fs::copy(from, &new).unwrap();
            fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(new, format!("{FOLDER}/{to}")).unwrap();
        }
        true
    })
}

fn each(test: impl Fn(&mut Client)) {
    if !ready() {
        return;
    }
    for mode in MODES {
        eprintln!("   {mode:?}");
        test(&mut Client::new(mode));
    }
}

// ----- Commands -----

#[test]
fn hello_reports_the_kernel() {
    each(|client| {
        let body = &client.hello.body;
        assert_eq!(u16::from_le_bytes([body[0], body[1]]), 2);
        let text = String::from_utf8_lossy(body);
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert!(text.contains(release.trim()), "{text}");
        let bits = u32_at(body, 6);
        for wanted in [SECCOMP, FILES, NETWORK, SIGNALS, TRACE, TREE, METADATA, TASKS, NAMESPACES, NETNS] {
            assert!(bits & wanted != 0, "{wanted} of {bits:#x}: {text}");
        }
        assert_eq!(bits & UID != 0, client.mode.root);
    });
}

/// What a kernel lacks, played by `strace` answering the runner's first question in its place.
#[test]
fn lesser_kernels_refuse_or_say_so() {
    if !ready() {
        return;
    }
    if !Path::new("/usr/bin/strace").exists() {
        eprintln!("skipped: no strace");
        return;
    }
    let all = SECCOMP | FILES | NETWORK | SIGNALS | TRACE;
    for (inject, missing, reason) in [
        ("landlock_create_ruleset:retval=1:when=1", FILES | SIGNALS, "landlock: version 1"),
        ("landlock_create_ruleset:retval=3:when=1", SIGNALS, "landlock: version 3"),
        ("landlock_create_ruleset:retval=4:when=1", SIGNALS, "landlock: version 4"),
        ("landlock_create_ruleset:error=ENOSYS:when=1", FILES | SIGNALS | TRACE, "landlock: version 0"),
        ("seccomp:error=ENOSYS:when=1", SECCOMP | NETWORK, "seccomp: the kernel has no filters"),
        ("clone:error=EPERM:when=1", NAMESPACES | NETNS | TREE, "namespaces: process: Operation not permitted"),
    ] {
        let mut client = Client::under(MODES[1], &["strace", "-o", "/dev/null", "-e", &format!("inject={inject}")]);
        let hello = String::from_utf8_lossy(&client.hello.body).into_owned();
        assert!(hello.contains(reason), "{inject}: {hello}");
        for bit in [SECCOMP, FILES, NETWORK, SIGNALS, TRACE, NAMESPACES, NETNS, TREE] {
            let mut spec = client.spec(&["cat", "/proc/self/status"]);
            (spec.flags, spec.required) = (0, bit);
            let outcome = client.run(&spec);
            let lacks = (missing | NAMESPACES | NETNS | TREE) & bit != 0;
            assert_eq!(outcome.refused.is_some(), lacks, "{inject} {bit}: {outcome:?}");
            assert_eq!(outcome.refused.map_or(1, |refused| refused.0), 1);
        }
        let mut spec = client.spec(&["sh", "-c", &format!("echo x > {}/outside/new", client.dir.display())]);
        (spec.flags, spec.required) = (4 | 8, 0);
        let outcome = client.run(&spec);
        assert_eq!(
            outcome.in_force & all,
            all & !missing | if missing & NAMESPACES == 0 { SIGNALS | TRACE } else { 0 },
            "{inject}"
        );
        let mut spec = client.spec(&["true"]);
        (spec.flags, spec.required, spec.network) = (0, 0, 1);
        assert_eq!(
            client.run(&spec).refused.is_some(),
            inject.starts_with("landlock") && !inject.contains("=4"),
            "{inject}"
        );
    }
}

#[test]
fn exit_codes_and_signals() {
    each(|client| {
        for code in [0, 1, 42, 255] {
            let outcome = client.sh(&format!("exit {code}"));
            assert_eq!((outcome.why, outcome.code, outcome.signal), (0, code, 0), "{outcome:?}");
        }
        let outcome = client.sh("kill -USR1 $$");
        assert_eq!((outcome.why, outcome.code, outcome.signal), (1, -1, 10), "{outcome:?}");
        let outcome = client.sh("echo out; echo err >&2");
        assert_eq!((outcome.stdout().as_str(), outcome.stderr().as_str()), ("out\n", "err\n"));
        assert!(outcome.max_rss_kib > 100 && outcome.duration_us > 100, "{outcome:?}");
    });
}

#[test]
fn environment_directory_and_identity() {
    each(|client| {
        let spec = client.spec(&["env"]);
        assert_eq!(client.run(&spec).stdout(), "PATH=/usr/bin:/bin\nONLY=this\n");
        let work = client.dir.join("work/sub");
        let mut spec =
            client.spec(&["sh", "-c", "pwd; id -u; id -g; id -G; umask; cat; ls /proc/self/fd | wc -l; ulimit -c -n"]);
        spec.cwd = work.display().to_string();
        let outcome = client.run(&spec);
        let id = client.uid;
        let expected = format!("{}\n{id}\n{id}\n{id}\n0022\n4\n", work.display()); // 0, 1, 2 and the one `ls` opens
        assert!(outcome.stdout().starts_with(&expected), "{outcome:?} {}", outcome.stdout());
        let outcome = client.sh("grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status");
        for line in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(outcome.stdout().contains(&format!("{line}:\t0000000000000000")), "{}", outcome.stdout());
        }
        assert!(outcome.stdout().contains("NoNewPrivs:\t1") && outcome.stdout().contains("Seccomp:\t2"), "{outcome:?}");
        // Emptying the bounding set takes CAP_SETPCAP; elsewhere no_new_privs does the same work.
        if (client.mode.root && !client.mode.contained) || client.mode.spaces {
            assert!(outcome.stdout().contains("CapBnd:\t0000000000000000"), "{}", outcome.stdout());
        }
    });
}

#[test]
fn refusals_are_typed() {
    each(|client| {
        let spec = client.spec(&["no-such-program"]);
        let refused = client.run(&spec).refused.unwrap();
        assert!(refused.0 == 5 && refused.1.contains("no-such-program"), "{refused:?}");
        let mut spec = client.spec(&["true"]);
        spec.cwd = "/no/such/folder".into();
        let refused = client.run(&spec).refused.unwrap();
        assert!(refused.0 == 4 && refused.1.contains("/no/such/folder"), "{refused:?}");
        let mut spec = client.spec(&["true"]);
        spec.paths.push((1, "/no/such/path".into()));
        let refused = client.run(&spec).refused.unwrap();
        assert!(refused.0 == 4 && refused.1.contains("/no/such/path"), "{refused:?}");
        let mut spec = client.spec(&["true"]);
        spec.uid = 0;
        assert_eq!(client.run(&spec).refused.unwrap().0, 2);
        let mut spec = client.spec(&["true"]);
        spec.uid = client.uid + 1;
        assert_eq!(client.run(&spec).refused.map(|refused| refused.0), if client.mode.root { None } else { Some(2) });
        let mut spec = client.spec(&["true"]);
        spec.required |= NAMESPACES | TREE;
        let refused = client.run(&spec).refused;
        assert_eq!(refused.is_some(), !client.mode.spaces, "{refused:?}");
        if let Some((code, text)) = refused {
            assert!(code == 1 && text.starts_with(if client.mode.contained { "namespaces" } else { "tree" }), "{text}");
        }
        let mut spec = client.spec(&["true"]);
        spec.required |= UID;
        assert_eq!(client.run(&spec).refused.is_some(), !client.mode.root);
        let mut spec = client.spec(&["true"]);
        spec.flags = 16;
        assert_eq!(client.run(&spec).refused.unwrap().0, 1);
        // A symbolic link in a writable path is not followed.
        symlink("/etc", client.dir.join("link")).unwrap();
        let mut spec = client.spec(&["true"]);
        spec.paths.push((3, client.dir.join("link").display().to_string()));
        assert_eq!(client.run(&spec).refused.unwrap().0, 4);
        assert_eq!(client.sh("true").code, 0);
    });
}

#[test]
fn stdin_in_windows() {
    each(|client| {
        let mut spec = client.spec(&["sha256sum"]);
        spec.flags |= 1;
        let id = client.start(&spec);
        let chunk = vec![b'x'; 64 * 1024];
        let mut allowed = u32_at(&client.hello.body, 22);
        let mut outcome = None;
        for _ in 0..64 {
            while allowed < chunk.len() as u32 {
                let frame = client.next_of(id);
                match frame.kind {
                    CREDIT => allowed += u32_at(&frame.body, 1),
                    STARTED => {}
                    other => panic!("{other:#x} {:?}", frame),
                }
            }
            client.data(id, &chunk);
            allowed -= chunk.len() as u32;
        }
        client.send(4, id, &[0]);
        outcome.get_or_insert(client.finish(id));
        let expected =
            Command::new("sh").args(["-c", "head -c 4194304 /dev/zero | tr '\\0' x | sha256sum"]).output().unwrap();
        assert_eq!(outcome.unwrap().out[0], expected.stdout);
        // A program that stops reading does not stop the stream.
        let mut spec = client.spec(&["sh", "-c", "exec <&-; sleep 0.2; echo done"]);
        spec.flags |= 1;
        let id = client.start(&spec);
        std::thread::sleep(Duration::from_millis(50));
        client.data(id, &chunk);
        assert_eq!(client.finish(id).stdout(), "done\n");
        let spec = client.spec(&["cat"]);
        assert_eq!(client.run(&spec).code, 0, "without stdin it is /dev/null");
    });
}

#[test]
fn large_output_in_constant_memory() {
    each(|client| {
        let mut spec = client.spec(&["head", "-c", "104857600", "/dev/zero"]);
        spec.credit = 0;
        let id = client.start(&spec);
        assert_eq!(client.next_of(id).kind, STARTED);
        assert!(client.frames.recv_timeout(Duration::from_millis(100)).is_err(), "output without credit");
        client.credit(id, 1, 1000);
        let mut got = 0;
        while got < 1000 {
            got += client.next_of(id).body.len() - 1;
        }
        assert_eq!(got, 1000);
        assert!(client.frames.recv_timeout(Duration::from_millis(50)).is_err(), "output beyond credit");
        client.credit(id, 1, 256 * 1024);
        client.credit(id, 2, 10);
        let begun = Instant::now();
        loop {
            let frame = client.next_of(id);
            match frame.kind {
                DATA => {
                    assert!(frame.body[1..].iter().all(|byte| *byte == 0));
                    got += frame.body.len() - 1;
                    client.credit(id, 1, frame.body.len() as u32 - 1);
                }
                EXIT => {
                    assert_eq!(u64_at(&frame.body, 30), 104857600);
                    break;
                }
                _ => {}
            }
        }
        assert_eq!(got, 104857600);
        eprintln!("      100 MB in {:?}, peak {} KiB", begun.elapsed(), client.peak_kib());
        assert!(client.peak_kib() < 8 * 1024, "{} KiB", client.peak_kib());
        // Discarded output is counted and not sent.
        let mut spec = client.spec(&["head", "-c", "104857600", "/dev/zero"]);
        spec.credit = u32::MAX;
        let outcome = client.run(&spec);
        assert_eq!((outcome.totals[0], outcome.out[0].len()), (104857600, 0));
    });
}

#[test]
fn many_commands_at_once() {
    each(|client| {
        let ids: Vec<u32> = (0..60)
            .map(|number| {
                let spec = client.spec(&["sh", "-c", &format!("sleep 0.1; echo {number}; exit {number}")]);
                client.start(&spec)
            })
            .collect();
        for (number, id) in ids.into_iter().enumerate() {
            let outcome = client.finish(id);
            assert_eq!((outcome.code, outcome.stdout()), (number as i32, format!("{number}\n")), "{outcome:?}");
        }
        let ids: Vec<u32> = (0..300)
            .map(|_| {
                let spec = client.spec(&["sleep", "1"]);
                client.start(&spec)
            })
            .collect();
        let refused =
            ids.into_iter().filter_map(|id| client.finish(id).refused).filter(|refused| refused.0 == 6).count();
        assert_eq!(refused, 300 - 256);
    });
}

// ----- Ends -----

const ESCAPEE: &str = "(setsid sh -c '(setsid sleep 999 &) ; sleep 999' &) ; (trap '' TERM HUP INT; sleep 999) & ";

#[test]
fn deadline_kills_the_whole_tree() {
    each(|client| {
        let mut spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]);
        spec.deadline_ms = 300;
        let outcome = client.run(&spec);
        assert_eq!((outcome.why, outcome.stdout().as_str()), (2, "ready\n"), "{outcome:?}");
        assert!((300_000..900_000).contains(&outcome.duration_us), "{outcome:?}");
        assert_eq!(processes_but_runner(client), Vec::<String>::new());
    });
}

/// A runner that is not root has its commands' uid itself.
fn processes_but_runner(client: &Client) -> Vec<String> {
    let own = format!("{}", client.child.id());
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let owner = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
            if owner.contains(&client.uid.to_string()) && entry.file_name().to_string_lossy() != own {
                found.push(status.lines().take(3).collect::<Vec<_>>().join(" "));
            }
        }
        if found.is_empty() || Instant::now() > until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_end_of_the_main_process_ends_the_rest_unless_background() {
    each(|client| {
        let outcome = client.sh(&format!("{ESCAPEE} exit 7"));
        assert_eq!((outcome.why, outcome.code), (0, 7), "{outcome:?}");
        assert!(outcome.duration_us < 1_000_000, "{outcome:?}");
        assert_eq!(processes_but_runner(client), Vec::<String>::new());
        let mut spec = client.spec(&["sh", "-c", "(sleep 0.4; echo late) & echo early; exit 3"]);
        spec.flags |= 2;
        let outcome = client.run(&spec);
        assert_eq!((outcome.code, outcome.stdout().as_str()), (3, "early\nlate\n"), "{outcome:?}");
        let mut spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo early")]);
        spec.flags |= 2;
        let id = client.start(&spec);
        std::thread::sleep(Duration::from_millis(200));
        client.send(7, id, &[]);
        let outcome = client.finish(id);
        assert_eq!((outcome.why, outcome.code, outcome.stdout().as_str()), (6, 0, "early\n"), "{outcome:?}");
        assert_eq!(processes_but_runner(client), Vec::<String>::new());
    });
}

#[test]
fn signals_and_kill() {
    each(|client| {
        let spec =
            client.spec(&["sh", "-c", "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.05; done"]);
        let id = client.start(&spec);
        while client.next_of(id).kind != DATA {}
        client.send(6, id, &[15]);
        let outcome = client.finish(id);
        assert_eq!((outcome.why, outcome.code, outcome.stdout().as_str()), (0, 9, "caught\n"), "{outcome:?}");
        let spec = client.spec(&["sleep", "999"]);
        let id = client.start(&spec);
        client.send(7, id, &[]);
        let outcome = client.finish(id);
        assert_eq!((outcome.why, outcome.signal), (6, 9), "{outcome:?}");
        // Frames for a stream that has ended are ignored.
        client.send(7, id, &[]);
        client.send(6, id, &[9]);
        client.data(id, b"late");
        assert_eq!(client.sh("true").code, 0);
    });
}

#[test]
fn the_end_of_the_stream_kills_everything() {
    each(|client| {
        let spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]);
        for _ in 0..3 {
            let id = client.start(&spec);
            while client.next_of(id).kind != DATA {}
        }
        client.to = None;
        let begun = Instant::now();
        assert!(client.child.wait().unwrap().success());
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(processes_of(client.uid), Vec::<String>::new());
    });
}

#[test]
fn a_silence_kills_everything_while_a_command_runs() {
    each(|client| {
        client.send(0x0B, 0, &1u16.to_le_bytes());
        // Nothing runs, so silence is no end; and every frame breaks it.
        std::thread::sleep(Duration::from_millis(1_300));
        let id = client.start(&client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]));
        while client.next_of(id).kind != DATA {}
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(400));
            client.send(0x0B, 0, &1u16.to_le_bytes());
        }
        assert!(client.child.try_wait().unwrap().is_none());
        let begun = Instant::now();
        assert!(client.child.wait().unwrap().success());
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert_eq!(processes_of(client.uid), Vec::<String>::new());
    });
}

#[test]
fn the_death_of_the_runner_kills_everything() {
    each(|client| {
        let spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]);
        for _ in 0..3 {
            let id = client.start(&spec);
            while client.next_of(id).kind != DATA {}
        }
        unsafe { kill(client.pid(), 9) };
        client.child.wait().unwrap();
        assert_eq!(processes_of(client.uid), Vec::<String>::new());
    });
}

#[test]
fn the_death_of_a_supervisor_is_a_lost_command() {
    each(|client| {
        let spec = client.spec(&["sh", "-c", &format!("{ESCAPEE} echo ready; sleep 999")]);
        let (other, id) =
            (client.start(&client.spec(&["sh", "-c", "echo up; sleep 1; echo fine"])), client.start(&spec));
        while client.next_of(id).kind != DATA {}
        let tasks = fs::read_to_string(format!("/proc/{0}/task/{0}/children", client.pid())).unwrap();
        let supervisor: i32 = tasks.split_whitespace().next_back().unwrap().parse().unwrap();
        unsafe { kill(supervisor, 9) };
        let outcome = client.finish(id);
        assert_eq!(outcome.why, 7, "{outcome:?}");
        assert_eq!(client.finish(other).stdout(), "up\nfine\n");
        assert_eq!(processes_but_runner(client), Vec::<String>::new());
    });
}

#[test]
fn malformed_frames_end_the_runner_with_a_reason() {
    let exec = |client: &Client| client.spec(&["sleep", "999"]).encode();
    type Case = (&'static str, fn(&mut Client));
    let cases: [Case; 9] = [
        ("at most", |client| client.raw(&[0xFF; 9])),
        ("unknown frame", |client| client.send(0x55, 1, &[])),
        ("unknown frame", |client| client.send(1, 0, &[2, 0])),
        ("too short", |client| client.send(2, 90, &[1, 2, 3])),
        ("longer than", |client| {
            let mut body = client.spec(&["true"]).encode();
            let at = body.len() - 4;
            body[at..].copy_from_slice(&u32::MAX.to_le_bytes());
            client.send(2, 90, &body);
        }),
        ("too long", |client| {
            let mut body = client.spec(&["true"]).encode();
            body.push(0);
            client.send(2, 90, &body);
        }),
        ("in use", |client| {
            let body = client.spec(&["true"]).encode();
            client.send(2, 1, &body);
        }),
        ("granted", |client| {
            let mut spec = client.spec(&["sleep", "999"]);
            spec.flags |= 1;
            client.send(2, 77, &spec.encode());
            for _ in 0..5 {
                client.data(77, &[0; 65536]);
            }
        }),
        ("no signal", |client| client.send(6, 1, &[65])),
    ];
    if !ready() {
        return;
    }
    for mode in MODES {
        for (expected, case) in cases {
            let mut client = Client::new(mode);
            let body = exec(&client);
            client.send(2, 1, &body);
            assert_eq!(client.next_of(1).kind, STARTED);
            case(&mut client);
            loop {
                let frame = client.next();
                if frame.kind == FATAL {
                    let text = String::from_utf8_lossy(&frame.body);
                    assert!(text.contains(expected), "{expected}: {text}");
                    break;
                }
            }
            assert_eq!(client.child.wait().unwrap().code(), Some(2));
            assert_eq!(processes_of(client.uid), Vec::<String>::new());
        }
    }
    // Random bytes: every prefix ends it or is waited for, and nothing hangs or runs.
    let mut seed = 12345u64;
    for _ in 0..40 {
        let mut client = Client::new(MODES[3]);
        let bytes: Vec<u8> = (0..400)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 40) as u8 & if seed >> 63 == 0 { 0x07 } else { 0xFF }
            })
            .collect();
        client.raw(&bytes);
    }
}

// ----- Limits -----

#[test]
fn fork_bomb() {
    each(|client| {
        let mut spec = client.attack("fork_bomb", &[]);
        (spec.processes, spec.limits[5]) = (64, if client.mode.spaces { 0 } else { 2500 });
        let outcome = client.run(&spec);
        assert_eq!(outcome.why, 4, "{outcome:?}");
        assert!(outcome.duration_us < 3_000_000, "{outcome:?}");
        assert_eq!(processes_but_runner(client), Vec::<String>::new());
        assert_eq!(client.sh("true").code, 0);
    });
}

#[test]
fn memory_bomb() {
    each(|client| {
        for kind in ["memory_bomb", "shared_memory_bomb", "memory_bomb_of_many"] {
            let mut spec = client.attack(kind, &[]);
            spec.memory = 128 << 20;
            let outcome = client.run(&spec);
            assert_eq!(outcome.why, 3, "{kind} {outcome:?} {}", outcome.stdout());
        }
        let mut spec = client.attack("memory_bomb", &[]);
        spec.limits[3] = 256 << 20;
        let outcome = client.run(&spec);
        assert_ne!((outcome.why, outcome.code), (0, 0), "RLIMIT_DATA: {outcome:?}");
    });
}

#[test]
fn disk_fill() {
    each(|client| {
        fs::write(client.dir.join("work/before"), vec![1; 30 << 20]).unwrap();
        chown(client.dir.join("work/before"), Some(client.uid), Some(client.uid)).unwrap();
        for kind in ["disk_fill", "disk_fill_unlinked", "disk_fill_hidden", "disk_fill_names"] {
            let mut spec = client.attack(kind, &[]);
            spec.disk = if kind == "disk_fill_names" { 1 << 20 } else { 16 << 20 };
            let outcome = client.run(&spec);
            assert_eq!(outcome.why, 5, "{kind} {outcome:?} {}", outcome.stdout());
            let _ = Command::new("sh")
                .args(["-c", &format!("chmod -R u+rwx {0}/work; rm -rf {0}/work/fill*", client.dir.display())])
                .status();
        }
        let mut spec = client.spec(&["sh", "-c", "rm before; head -c 20000000 /dev/zero > fill; sleep 0.2; rm fill"]);
        spec.disk = 16 << 20;
        let outcome = client.run(&spec);
        assert_eq!((outcome.why, outcome.code), (0, 0), "{outcome:?} {}", outcome.stderr());
        let mut spec = client.spec(&["sh", "-c", "head -c 20000000 /dev/zero > fill"]);
        spec.limits[1] = 1 << 20;
        let outcome = client.run(&spec);
        assert_ne!((outcome.why, outcome.code), (0, 0), "RLIMIT_FSIZE {outcome:?}");
    });
}

#[test]
fn endless_output_and_cpu() {
    each(|client| {
        let mut spec = client.spec(&["yes"]);
        (spec.deadline_ms, spec.credit) = (300, u32::MAX);
        let outcome = client.run(&spec);
        assert_eq!(outcome.why, 2, "{outcome:?}");
        assert!(outcome.totals[0] > 1 << 20);
        let mut spec = client.spec(&["yes"]);
        (spec.deadline_ms, spec.credit) = (300, 4096);
        let id = client.start(&spec);
        std::thread::sleep(Duration::from_millis(500));
        client.credit(id, 1, u32::MAX);
        let outcome = client.finish(id);
        assert_eq!(outcome.why, 2, "a command that waits for credit dies at its deadline too: {outcome:?}");
        let mut spec = client.spec(&["sh", "-c", "while :; do :; done"]);
        spec.limits[4] = 1;
        let outcome = client.run(&spec);
        assert_eq!(outcome.why, 1, "RLIMIT_CPU {outcome:?}");
    });
}

// ----- Escapes -----

const EPERM: i32 = 1;
const ESRCH: i32 = 3;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EROFS: i32 = 30;
const ENOSYS: i32 = 38;

#[test]
fn writes_outside() {
    each(|client| {
        let outside = client.dir.join("outside");
        symlink(&outside, client.dir.join("work/link")).unwrap();
        symlink(outside.join("file"), client.dir.join("work/file")).unwrap();
        let outcome = client.run(&client.attack("writes", &[]));
        let results = outcome.results();
        assert!(results.len() >= 12, "{} {}", outcome.stdout(), outcome.stderr());
        for (name, errno) in &results {
            let expected: &[i32] = match name.as_str() {
                "inside" => &[0],
                // Landlock does not cover metadata; the read-only mount does.
                "chmod" | "utimes" if client.mode.spaces => &[EROFS],
                "chmod" | "utimes" => &[0],
                "hard_link" | "rename_out" | "rename_in" => &[EACCES, EROFS, 18], // EXDEV
                _ => &[EACCES, EROFS],
            };
            assert!(expected.contains(errno), "{:?} {name}: {errno}", client.mode);
        }
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "untouched");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        let mut spec = client.attack("writes", &[]);
        spec.flags |= 64;
        spec.required |= METADATA;
        let outcome = client.run(&spec);
        let chmod = outcome.results()["chmod"];
        assert!([EPERM, EROFS].contains(&chmod), "{:?}", outcome.results());
        assert!(outcome.in_force & METADATA != 0);
    });
}

#[test]
fn system_calls() {
    each(|client| {
        let outcome = client.run(&client.attack("calls", &[]));
        let results = outcome.results();
        assert!(results.len() > 50, "{} {}", outcome.stdout(), outcome.stderr());
        for (name, errno) in results {
            let expected: &[i32] = match name.as_str() {
                "socketpair_stream" | "socketpair_seqpacket" | "personality_query" | "prlimit_self" | "clone_plain" => {
                    &[0]
                }
                "clone3" | "future" => &[ENOSYS],
                name if name.starts_with("socket") => &[EACCES],
                name if name.starts_with("outside_only_") && client.mode.spaces => continue,
                _ => &[EPERM],
            };
            assert!(expected.contains(&errno), "{:?} {name}: {errno}", client.mode);
        }
        let mut spec = client.attack("calls", &[]);
        spec.flags |= 128;
        assert_eq!(client.run(&spec).refused.unwrap().0, 1, "Unix sockets are no protected network");
        spec.required &= !NETWORK;
        let results = client.run(&spec).results();
        let sockets =
            ["socket_unix", "socket_inet", "socket_netlink", "socketpair_dgram", "keyctl"].map(|name| results[name]);
        assert_eq!(sockets, [0, EACCES, EACCES, EACCES, EPERM]);
        #[cfg(target_arch = "x86_64")]
        for attack in ["x32", "int80"] {
            let outcome = client.run(&client.attack(attack, &[]));
            assert_eq!((outcome.why, outcome.signal), (1, 31), "{attack} {outcome:?} {}", outcome.stdout());
        }
    });
}

#[test]
fn processes_outside() {
    each(|client| {
        // A process of the same user outside: as the daemon is to a local runner.
        let mut target = Command::new("setpriv")
            .args([format!("--reuid={}", client.uid), format!("--regid={}", client.uid), "--clear-groups".into()])
            .args(["sleep", "999"])
            .env("TARGET_SECRET", "tiger")
            .spawn()
            .unwrap();
        let sibling = client.start(&client.spec(&["sleep", "998"]));
        assert_eq!(client.next_of(sibling).kind, STARTED);
        let mut sibling_pids = processes_but_runner_now(client, "sleep\0998");
        let pids = [("TARGET", target.id() as i32), ("RUNNER", client.pid()), ("SIBLING", sibling_pids.pop().unwrap())];
        let extra: Vec<(&str, String)> = pids.iter().map(|(name, pid)| (*name, pid.to_string())).collect();
        let outcome = client.run(&client.attack("others", &extra));
        let alive = target.try_wait().unwrap().is_none();
        target.kill().unwrap();
        target.wait().unwrap();
        assert!(alive, "the target was hit");
        let results = outcome.results();
        assert!(results.len() >= 15, "{} {}", outcome.stdout(), outcome.stderr());
        for (name, errno) in &results {
            let good = match name.as_str() {
                "self_environ" => *errno == 0,
                // The parent is the supervisor, which cannot be dumped; 1 is the supervisor or init.
                _ => [EPERM, ESRCH, EACCES, ENOENT].contains(errno),
            };
            assert!(good, "{:?} {name}: {errno}", client.mode);
        }
        assert!(!outcome.stdout().contains("tiger"));
        client.send(7, sibling, &[]);
        assert_eq!(client.finish(sibling).why, 6);
        if client.mode.spaces {
            let outcome = client.sh("ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline | tr '\\0' ' '");
            assert!(outcome.stdout().split_whitespace().next().unwrap().parse::<u32>().unwrap() < 6, "{outcome:?}");
        }
    });
}

fn processes_but_runner_now(client: &Client, command: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if line.contains(command) && status.contains(&client.uid.to_string()) {
            found.push(entry.file_name().to_string_lossy().parse().unwrap());
        }
    }
    found
}

#[test]
fn setuid_programs_gain_nothing() {
    each(|client| {
        let path = client.dir.join("id");
        fs::copy("/usr/bin/id", &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        let mut spec = client.spec(&[path.to_str().unwrap(), "-u"]);
        spec.paths.push((5, path.display().to_string()));
        assert_eq!(client.run(&spec).stdout(), format!("{}\n", client.uid));
    });
}

#[test]
fn network_modes() {
    each(|client| {
        let (listener, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let extra = [("OPEN", port(&listener).to_string()), ("SHUT", port(&other).to_string())];
        let outcome = client.run(&client.attack("network", &extra));
        for (name, errno) in outcome.results() {
            assert_eq!(errno, EACCES, "none, {name}");
        }
        // The listed port alone. (Landlock judges ports; in a network namespace of its own nobody would listen.)
        let mut spec = client.attack("network", &extra);
        (spec.flags, spec.network, spec.connect) = (spec.flags & !8, 1, vec![port(&listener)]);
        let outcome = client.run(&spec);
        let results = outcome.results();
        assert_eq!(results["open"], 0, "{results:?}");
        for name in ["shut", "bind", "udp", "mptcp", "fast_open", "unix", "netlink", "packet"] {
            assert_eq!(results[name], EACCES, "ports, {name}: {results:?}");
        }
        let mut spec = client.attack("network", &extra);
        spec.network = 3;
        let outcome = client.run(&spec);
        let results = outcome.results();
        for name in ["open", "shut", "bind", "udp"] {
            assert_eq!(results[name], 0, "open, {name}: {results:?}");
        }
        assert_eq!((results["unix"], results["netlink"]), (EACCES, EACCES));
        let mut spec = client.attack("network", &extra);
        (spec.network, spec.tunnel) = (2, vec![port(&listener)]);
        let id = client.start(&spec);
        if !client.mode.spaces {
            assert_eq!(client.finish(id).refused.unwrap().0, 1);
            return;
        }
        assert_eq!(client.next_of(id).kind, STARTED);
        let outcome = loop {
            let frame = client.next_of(id);
            if frame.kind == ACCEPTED {
                assert_eq!(frame.body[4..], port(&listener).to_le_bytes());
            } else {
                client.kept.insert(0, frame);
                break client.finish_with_accepts(id);
            }
        };
        let results = outcome.results();
        assert_eq!((results["open"], results["shut"], results["udp"]), (0, 111, 0), "private: {results:?}");
    });
}

impl Client {
    fn finish_with_accepts(&mut self, id: u32) -> Outcome {
        let mut held = Vec::new();
        loop {
            let frame = self.next_of(id);
            let last = [EXIT, REFUSED].contains(&frame.kind);
            if frame.kind != ACCEPTED {
                held.push(frame);
            }
            if last {
                self.kept.extend(held);
                return self.finish(id);
            }
        }
    }
}

// ----- Connections -----

#[test]
fn dial_and_listen() {
    each(|client| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dial = |client: &mut Client, id: u32, host: &str, port: u16| {
            let mut body = Vec::new();
            put(&mut body, host);
            body.extend(port.to_le_bytes());
            client.send(8, id, &body);
        };
        dial(client, 500, "localhost", listener.local_addr().unwrap().port());
        assert_eq!(client.next_of(500).kind, OPENED);
        let (mut peer, _) = listener.accept().unwrap();
        // Both ways, half-closed in between, more than a window.
        let echo = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            peer.write_all(&all).unwrap();
        });
        client.credit(500, 0, 64 * 1024);
        let mut allowed = u32_at(&client.hello.body, 22);
        for number in 0..32u8 {
            while allowed < 65536 {
                let frame = client.next_of(500);
                assert_eq!(frame.kind, CREDIT);
                allowed += u32_at(&frame.body, 1);
            }
            client.data(500, &[number; 65536]);
            allowed -= 65536;
        }
        client.send(4, 500, &[0]);
        let mut back = Vec::new();
        loop {
            let frame = client.next_of(500);
            match frame.kind {
                DATA => {
                    back.extend_from_slice(&frame.body[1..]);
                    client.credit(500, 0, frame.body.len() as u32 - 1);
                }
                CLOSED => break,
                _ => {}
            }
        }
        echo.join().unwrap();
        assert!(
            back.len() == 32 * 65536
                && back.chunks(65536).enumerate().all(|(at, chunk)| chunk.iter().all(|byte| *byte == at as u8))
        );
        // Refusals.
        drop(listener);
        dial(client, 501, "127.0.0.1", 1);
        assert_eq!(client.next_of(501).kind, REFUSED);
        dial(client, 502, "example.com", 80);
        assert_eq!(client.next_of(502).kind, REFUSED);
        // Listen: two connections, one refused after the listener is closed.
        client.send(9, 600, &0u16.to_le_bytes());
        let opened = client.next_of(600);
        assert_eq!(opened.kind, OPENED);
        let port = u16::from_le_bytes([opened.body[0], opened.body[1]]);
        for _ in 0..2 {
            let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let accepted = client.next_of(600);
            assert_eq!(accepted.kind, ACCEPTED);
            let id = u32_at(&accepted.body, 0);
            assert!(id >> 31 == 1);
            peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            client.credit(id, 0, 4096);
            let frame = client.next_of(id);
            assert_eq!((frame.kind, &frame.body[1..]), (DATA, &b"GET / HTTP/1.1\r\n\r\n"[..]));
            client.data(id, b"HTTP/1.1 204 No Content\r\n\r\n");
            client.send(4, id, &[0]);
            let mut answer = String::new();
            peer.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 204"));
            drop(peer);
            while client.next_of(id).kind != CLOSED {}
        }
        client.send(10, 600, &[]);
        assert_eq!(client.next_of(600).kind, CLOSED);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    });
}

// ----- Private /tmp, wrapper -----

#[test]
fn private_tmp() {
    each(|client| {
        if !client.mode.spaces {
            return;
        }
        let mut spec = client.spec(&[
            "sh",
            "-c",
            "echo hello > /tmp/mine; ls /tmp; echo kept > kept; head -c 20000000 /dev/zero > /tmp/big",
        ]);
        spec.flags |= 16;
        spec.paths.push((7, "/tmp".into()));
        let outcome = client.run(&spec);
        let top = client.dir.file_name().unwrap().to_str().unwrap();
        assert_eq!(outcome.stdout(), format!("{top}\nmine\n"), "{outcome:?} {}", outcome.stderr());
        assert!(outcome.stderr().contains("No space left"), "{}", outcome.stderr());
        assert!(!Path::new("/tmp/mine").exists());
        assert_eq!(fs::read_to_string(client.dir.join("work/kept")).unwrap(), "kept\n");
    });
}

#[test]
fn wrapper_applies_the_policy_inside() {
    if !ready() {
        return;
    }
    if !Path::new("/usr/bin/bwrap").exists() {
        eprintln!("skipped: no bubblewrap");
        return;
    }
    for mode in [MODES[1], MODES[3]] {
        let mut client = Client::new(mode);
        let work = client.dir.join("work").display().to_string();
        let wrapper = [
            "bwrap",
            "--unshare-all",
            "--die-with-parent",
            "--ro-bind",
            "/",
            "/",
            "--bind",
            &work,
            &work,
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--",
            &format!("{FOLDER}/runner"),
            "--apply",
        ]
        .map(String::from)
        .to_vec();
        let mut spec = client.spec(&[
            "sh",
            "-c",
            &format!("echo $$; {ESCAPEE} echo x > {work}/f; echo y > {work}/../outside/g; exit 5"),
        ]);
        (spec.wrapper, spec.vouched) = (wrapper.clone(), NAMESPACES | NETNS | TREE);
        spec.required |= NAMESPACES | TREE;
        let outcome = client.run(&spec);
        assert_eq!((outcome.why, outcome.code), (0, 5), "{outcome:?} {}", outcome.stderr());
        assert!(client.dir.join("work/f").exists() && !client.dir.join("outside/g").exists());
        assert_eq!(processes_but_runner(&client), Vec::<String>::new());
        let mut spec = client.attack("calls", &[]);
        (spec.wrapper, spec.vouched) = (wrapper.clone(), NAMESPACES | NETNS | TREE);
        let outcome = client.run(&spec);
        assert_eq!(outcome.results()["unshare_user"], EPERM, "{} {}", outcome.stdout(), outcome.stderr());
        let mut spec = client.spec(&["no-such-program"]);
        (spec.wrapper, spec.vouched) = (wrapper, NAMESPACES);
        let refused = client.run(&spec).refused.unwrap();
        assert_eq!(refused.0, 5, "{refused:?}");
    }
}

// ----- The attacks, run inside the sandbox -----

fn report(name: &str, failed: bool) {
    println!("RESULT {name}={}", if failed { errno() } else { 0 });
}
fn io_report<T>(name: &str, result: std::io::Result<T>) {
    println!("RESULT {name}={}", result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1)));
}
fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

#[test]
fn attack_main() {
    let Ok(attack) = std::env::var("ATTACK") else { return };
    println!();
    match attack.as_str() {
        "calls" => calls(),
        "writes" => writes(),
        "others" => others(),
        "network" => network(),
        "fork_bomb" => {
            // Bounded by the tokens in a pipe.
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(&[1; 2000]).unwrap();
            drop(writer);
            while reader.read(&mut [0]).unwrap() == 1 {
                if unsafe { fork() } == 0 {
                    unsafe { setsid() };
                }
            }
            std::thread::sleep(Duration::from_secs(60));
        }
        "memory_bomb" => {
            let mut held = Vec::new();
            for _ in 0..64 {
                held.push(vec![1u8; 16 << 20]);
                std::thread::sleep(Duration::from_millis(4));
            }
            std::thread::sleep(Duration::from_secs(2));
            drop(held);
        }
        "memory_bomb_of_many" => {
            for _ in 0..10 {
                if unsafe { fork() } == 0 {
                    let held = vec![1u8; 24 << 20];
                    std::thread::sleep(Duration::from_secs(3));
                    drop(held);
                    std::process::exit(0);
                }
            }
            std::thread::sleep(Duration::from_secs(2));
        }
        "shared_memory_bomb" => {
            for _ in 0..64 {
                // mmap(0, 16 MB, READ|WRITE, SHARED|ANONYMOUS|POPULATE)
                let number = if cfg!(target_arch = "x86_64") { 9 } else { 222 };
                unsafe { syscall(number, 0usize, 16usize << 20, 3usize, 0x8021usize, usize::MAX, 0usize) };
                std::thread::sleep(Duration::from_millis(4));
            }
            std::thread::sleep(Duration::from_secs(2));
        }
        "disk_fill" | "disk_fill_unlinked" | "disk_fill_hidden" => {
            if attack == "disk_fill_hidden" {
                fs::create_dir("fill").unwrap();
            }
            let name = if attack == "disk_fill_hidden" { "fill/x" } else { "fill" };
            let mut file = fs::File::create(name).unwrap();
            match attack.as_str() {
                "disk_fill_unlinked" => fs::remove_file("fill").unwrap(),
                "disk_fill_hidden" => fs::set_permissions("fill", fs::Permissions::from_mode(0o000)).unwrap(),
                _ => {}
            }
            for _ in 0..64 {
                file.write_all(&vec![1; 1 << 20]).unwrap();
                std::thread::sleep(Duration::from_millis(4));
            }
            std::thread::sleep(Duration::from_secs(2));
        }
        "disk_fill_names" => {
            for number in 0..8_000 {
                if number % 1000 == 0 {
                    fs::create_dir(format!("fill{}", number / 1000)).unwrap();
                }
                fs::write(format!("fill{}/{number}", number / 1000), "").unwrap();
            }
            std::thread::sleep(Duration::from_secs(3));
        }
        #[cfg(target_arch = "x86_64")]
        "x32" => {
            unsafe { syscall(0x4000_0000 | 39) };
        }
        #[cfg(target_arch = "x86_64")]
        "int80" => unsafe {
            std::arch::asm!("int 0x80", inout("eax") 20 => _);
        },
        other => panic!("unknown attack {other}"),
    }
    use std::io::Write as _;
    std::io::stdout().flush().unwrap();
}

fn calls() {
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

fn writes() {
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

fn others() {
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

fn network() {
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
