//! Attempts to get out.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use super::client::*;

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
                // In a root of its own it does not exist. Landlock does not cover metadata.
                "chmod" | "utimes" if client.mode.spaces => &[ENOENT],
                "chmod" | "utimes" => &[0],
                "hard_link" | "rename_out" | "rename_in" => &[ENOENT, EACCES, EROFS, 18], // EXDEV
                _ if client.mode.spaces => &[ENOENT, EACCES, EROFS],
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
        assert!([EPERM, ENOENT].contains(&chmod), "{:?}", outcome.results());
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
fn what_is_not_listed_does_not_exist() {
    each(|client| {
        let outcome = client.run(&client.attack("sights", &[]));
        let results = outcome.results();
        assert!(results.len() > 20, "{} {}", outcome.stdout(), outcome.stderr());
        for (name, errno) in &results {
            let good = match name.as_str() {
                name if name.starts_with("listed_") => *errno == 0,
                // Landlock judges neither: without namespaces names and sizes can be seen, and nothing can be watched.
                name if name.starts_with("watch_") && !client.mode.spaces => *errno == ENOSYS,
                _ => *errno == ENOENT || !client.mode.spaces,
            };
            assert!(good, "{:?} {name}: {errno}", client.mode);
        }
    });
}

#[test]
fn no_file_runs_as_its_owner() {
    each(|client| {
        let outcome = client.run(&client.attack("modes", &[]));
        let results = outcome.results();
        assert!(results.len() > 70, "{} {}", outcome.stdout(), outcome.stderr());
        for (name, errno) in &results {
            let expected = match name.as_str() {
                name if name.starts_with("good_") => 0,
                name if name.starts_with("openat2_") => ENOSYS,
                name if name.contains("xattr") => EOPNOTSUPP,
                _ => EPERM,
            };
            assert_eq!(*errno, expected, "{:?} {name}", client.mode);
        }
        let mode = |name: &str| fs::metadata(client.dir.join("work").join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("mode"), mode("made"), mode("made-folder")), (0o1751, 0o644, 0o755));
        assert!(!client.dir.join("work/fresh").exists());
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
