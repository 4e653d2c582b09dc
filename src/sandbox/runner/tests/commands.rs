//! Commands and their results.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::client::*;

#[test]
fn hello_reports_the_kernel() {
    each(|client| {
        let body = &client.hello.body;
        assert_eq!(u16::from_le_bytes([body[0], body[1]]), 4);
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
        let mut spec = client.spec(&["sh", "-c", "exec <&-; echo closed; sleep 0.2; echo done"]);
        spec.flags |= 1;
        let id = client.start(&spec);
        while client.next_of(id).kind != DATA {}
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
