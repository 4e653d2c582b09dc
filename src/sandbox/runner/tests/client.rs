//! A client of the protocol, a runner under test, and what its tests share.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Where the runner and this program are copied, so that every user can start them.
pub const FOLDER: &str = "/var/tmp/ghost-runner-tests";
pub static NEXT: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    pub fn syscall(number: i64, ...) -> i64;
    pub fn kill(pid: i32, signal: i32) -> i32;
    pub fn fork() -> i32;
    pub fn setsid() -> i32;
}
pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[derive(Debug, Clone)]
pub struct Frame {
    pub kind: u8,
    pub id: u32,
    pub body: Vec<u8>,
}
pub const STARTED: u8 = 0x82;
pub const DATA: u8 = 0x83;
pub const EOF: u8 = 0x84;
pub const CREDIT: u8 = 0x85;
pub const EXIT: u8 = 0x86;
pub const REFUSED: u8 = 0x87;
pub const OPENED: u8 = 0x88;
pub const ACCEPTED: u8 = 0x89;
pub const CLOSED: u8 = 0x8A;
pub const FATAL: u8 = 0x8F;

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

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    pub root: bool,
    pub spaces: bool,
    /// Process 1 of a PID namespace, root with CAP_SETUID and CAP_SETGID alone: as in a container.
    pub contained: bool,
}
pub const MODES: [Mode; 5] = [
    Mode { root: true, spaces: true, contained: false },
    Mode { root: true, spaces: false, contained: false },
    Mode { root: false, spaces: true, contained: false },
    Mode { root: false, spaces: false, contained: false },
    Mode { root: true, spaces: false, contained: true },
];

pub struct Client {
    pub child: Child,
    pub to: Option<ChildStdin>,
    pub frames: Receiver<Frame>,
    pub hello: Frame,
    pub mode: Mode,
    pub uid: u32,
    pub dir: PathBuf,
    pub next: u32,
    pub kept: Vec<Frame>,
}

pub fn u32_at(body: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(body[at..at + 4].try_into().unwrap())
}
pub fn u64_at(body: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(body[at..at + 8].try_into().unwrap())
}
pub fn put(into: &mut Vec<u8>, text: &str) {
    into.extend((text.len() as u32).to_le_bytes());
    into.extend(text.as_bytes());
}

pub fn frame(kind: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.push(kind);
    frame.extend(id.to_le_bytes());
    frame.extend(body);
    frame
}

impl Client {
    pub fn new(mode: Mode) -> Client {
        Client::under(mode, &[])
    }
    pub fn under(mode: Mode, tracer: &[&str]) -> Client {
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
        client.send(1, 0, &4u16.to_le_bytes());
        client
    }
    /// Writes to a runner that may have ended: its frames say whether it did, and why.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.to.as_mut().unwrap().write_all(bytes);
    }
    pub fn send(&mut self, kind: u8, id: u32, body: &[u8]) {
        self.to.as_mut().unwrap().write_all(&frame(kind, id, body)).unwrap();
    }
    pub fn credit(&mut self, id: u32, channel: u8, amount: u32) {
        let mut body = vec![channel];
        body.extend(amount.to_le_bytes());
        self.send(5, id, &body);
    }
    pub fn data(&mut self, id: u32, bytes: &[u8]) {
        let mut body = vec![0];
        body.extend(bytes);
        self.send(3, id, &body);
    }
    pub fn next(&mut self) -> Frame {
        self.frames.recv_timeout(Duration::from_secs(20)).expect("a frame within 20 s")
    }
    /// The next frame of one stream; others are kept.
    pub fn next_of(&mut self, id: u32) -> Frame {
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
    pub fn spec(&self, argv: &[&str]) -> Spec {
        let mut spec = Spec {
            flags: if self.mode.spaces { 4 | 8 } else { 0 },
            required: SECCOMP | FILES | NETWORK | SIGNALS | TRACE,
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
    pub fn attack(&self, name: &str, extra: &[(&str, String)]) -> Spec {
        let mut spec =
            self.spec(&[&format!("{FOLDER}/tests"), "--exact", "attack_main", "--nocapture", "--test-threads=1"]);
        spec.env.push(format!("ATTACK={name}"));
        spec.env.push(format!("OUTSIDE={}", self.dir.join("outside").display()));
        spec.env.extend(extra.iter().map(|(name, value)| format!("{name}={value}")));
        spec
    }
    pub fn start(&mut self, spec: &Spec) -> u32 {
        let id = self.next;
        self.next += 1;
        self.send(2, id, &spec.encode());
        id
    }
    pub fn finish(&mut self, id: u32) -> Outcome {
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
                    outcome.found = String::from_utf8_lossy(&frame.body[46..]).into();
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
    pub fn run(&mut self, spec: &Spec) -> Outcome {
        let id = self.start(spec);
        self.finish(id)
    }
    pub fn sh(&mut self, script: &str) -> Outcome {
        let spec = self.spec(&["sh", "-c", script]);
        self.run(&spec)
    }
    /// The runner's own process, which `unshare` starts as its child.
    pub fn pid(&self) -> i32 {
        let id = self.child.id();
        if !self.mode.contained {
            return id as i32;
        }
        fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap().trim().parse().unwrap()
    }
    pub fn peak_kib(&self) -> u64 {
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

pub struct Spec {
    pub flags: u32,
    pub required: u32,
    pub network: u8,
    pub uid: u32,
    pub deadline_ms: u32,
    pub memory: u64,
    pub processes: u32,
    pub disk: u64,
    pub tmp: u64,
    pub limits: [u64; 6],
    pub credit: u32,
    pub cwd: String,
    pub argv: Vec<String>,
    pub env: Vec<String>,
    pub paths: Vec<(u8, String)>,
    pub connect: Vec<u16>,
    pub tunnel: Vec<u16>,
}
impl Spec {
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for number in [self.flags, self.required] {
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
        body
    }
}

#[derive(Default, Debug)]
pub struct Outcome {
    pub in_force: u32,
    pub out: [Vec<u8>; 2],
    pub why: u8,
    pub code: i32,
    pub signal: u8,
    pub duration_us: u64,
    pub max_rss_kib: u64,
    pub totals: [u64; 2],
    /// A directory that it left, and that nobody should walk.
    pub found: String,
    pub refused: Option<(u8, String)>,
}
impl Outcome {
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.out[0]).into()
    }
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.out[1]).into()
    }
    /// The `name=value` lines that an attack printed.
    pub fn results(&self) -> HashMap<String, i32> {
        let text = self.stdout();
        let lines = text.lines().filter_map(|line| line.strip_prefix("RESULT ")?.split_once('='));
        lines.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }
}

pub fn processes_of(uid: u32) -> Vec<String> {
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
pub fn ready() -> bool {
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

pub fn each(test: impl Fn(&mut Client)) {
    if !ready() {
        return;
    }
    for mode in MODES {
        eprintln!("   {mode:?}");
        test(&mut Client::new(mode));
    }
}

/// Leaves processes behind by double forks and sessions of their own.
pub const ESCAPEE: &str = "(setsid sh -c '(setsid sleep 999 &) ; sleep 999' &) ; (trap '' TERM HUP INT; sleep 999) & ";

/// A runner that is not root has its commands' uid itself.
pub fn processes_but_runner(client: &Client) -> Vec<String> {
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

pub const EPERM: i32 = 1;
pub const ESRCH: i32 = 3;
pub const ENOENT: i32 = 2;
pub const EACCES: i32 = 13;
pub const EROFS: i32 = 30;
pub const ENOSYS: i32 = 38;
pub const EOPNOTSUPP: i32 = 95;
