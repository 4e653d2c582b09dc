//! An engine that dies or stops during a command. Each case starts an engine of its own, for which it needs root, `dockerd`
//! and a static busybox.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ghost_domain::Code;
use rustix::process::Signal;

use crate::deaths::run_and;
use crate::machine::{containers, gone, mark, marked, signal, until};
use crate::place::{Kind, Place, plan, sh, skipped};

/// A Docker engine of a test.
struct Engine {
    dir: tempfile::TempDir,
    daemon: Child,
}

fn daemon(dir: &Path) -> Child {
    let at = |name: &str| dir.join(name).display().to_string();
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
    // In a network of its own: without a bridge, dockerd removes the one of the engine that runs here already.
    Command::new("unshare")
        .args(["--net", "dockerd", "--iptables=false", "--ip6tables=false", "--bridge=none"])
        .args(["--host", &format!("unix://{}", at("socket"))])
        .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Engine {
    /// `None`, with the reason on standard error, if this machine cannot have one and none is required.
    fn new() -> Option<Self> {
        let is_there = |program: &str| {
            std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|dir| dir.join(program).exists())
        };
        if !rustix::process::geteuid().is_root() || !is_there("dockerd") || !is_there("busybox") {
            skipped(Kind::Docker, "an engine of its own needs root, dockerd and busybox-static");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut engine = Self { daemon: daemon(dir.path()), dir };
        engine.wait();
        // A small image: one static program with many names.
        let root = engine.dir.path().join("root");
        for name in ["bin", "proc", "sys", "dev", "tmp", "etc", "workspace"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        let busybox = String::from_utf8(Command::new("which").arg("busybox").output().unwrap().stdout).unwrap();
        std::fs::copy(busybox.trim(), root.join("bin/busybox")).unwrap();
        for name in ["sh", "sleep", "echo", "true", "setsid"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        let tar = engine.dir.path().join("image.tar");
        assert!(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".").status().unwrap().success());
        assert!(engine.docker().arg("import").arg(&tar).arg("small").stdout(Stdio::null()).status().unwrap().success());
        Some(engine)
    }

    fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("socket").display())
    }

    fn docker(&self) -> Command {
        let mut command = Command::new("docker");
        command.env("DOCKER_HOST", self.host());
        command
    }

    fn wait(&mut self) {
        until("the engine answers", || {
            assert!(
                self.daemon.try_wait().unwrap().is_none(),
                "dockerd ended: {}",
                self.dir.path().join("log").display()
            );
            self.docker().arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
        });
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.daemon.id()).unwrap()
    }

    fn start_again(&mut self) {
        self.daemon.wait().unwrap();
        let _ = std::fs::remove_file(self.dir.path().join("pid"));
        self.daemon = daemon(self.dir.path());
        self.wait();
    }

    fn place(&self) -> Place {
        let plan = ghost_config::plan::SandboxPlan { image: "small".into(), ..plan(Kind::Docker) };
        Place::at(Kind::Docker, plan, Some(&self.host())).expect("a sandbox at the engine that runs")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        signal(self.pid(), Signal::TERM);
        self.daemon.wait().unwrap();
        // What it still has mounted would keep the directory.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let own = self.dir.path().display().to_string();
        for at in mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|at| at.starts_with(&own)) {
            let _ = Command::new("umount").args(["-l", at]).status();
        }
    }
}

fn long(mark: &str, timeout: Duration) -> ghost_sandbox::Command {
    let mut command = sh("ada", &format!("(setsid sleep {mark} &); echo ready; sleep {mark}"));
    command.timeout = timeout;
    command
}

#[test]
fn a_killed_engine_is_an_error_and_nothing_runs_on() {
    let Some(mut engine) = Engine::new() else { return };
    let place = engine.place();
    let (mark, begun) = (mark(), Instant::now());
    let refused = run_and(&place, long(&mark, Duration::from_secs(60)), || {
        until("the command sleeps", || marked(&mark).len() >= 2);
        signal(engine.pid(), Signal::KILL);
    });
    assert_eq!(refused.unwrap_err().code, Code::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(30), "it waited for the deadline");
    // The end of its input ends the runner, without an engine.
    gone(&mark);
    let refused = place.run(sh("ada", "true")).unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "there is no engine: {refused}");
    engine.start_again();
    assert_eq!(place.sh("ada", "echo next").stdout.text, "next\n");
    let (data, host) = (place.data(), engine.host());
    place.runtime.block_on(place.sandbox.close());
    until("no container is left", || containers(Some(&host), &data).is_empty());
}

#[test]
fn a_stopped_engine_is_an_error_after_the_deadline() {
    let Some(engine) = Engine::new() else { return };
    let place = engine.place();
    let mark = mark();
    let begun = Instant::now();
    let refused = run_and(&place, long(&mark, Duration::from_secs(2)), || {
        until("the command sleeps", || marked(&mark).len() >= 2);
        signal(engine.pid(), Signal::STOP);
    });
    assert_eq!(refused.unwrap_err().code, Code::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // The runner kills the tree at its deadline; it needs no engine for that.
    gone(&mark);
    signal(engine.pid(), Signal::CONT);
    assert_eq!(place.sh("ada", "echo next").stdout.text, "next\n");
    let (data, host) = (place.data(), engine.host());
    until("one container is left", || containers(Some(&host), &data).len() == 1);
}
