//! Limits of processes, memory, disk, output.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use std::time::Duration;

use super::client::*;

#[test]
fn fork_bomb() {
    each(|client| {
        let mut spec = client.attack("fork_bomb", &[]);
        (spec.processes, spec.limits[5]) = (64, if client.mode.spaces { 0 } else { 2500 });
        let outcome = client.run(&spec);
        assert_eq!(outcome.why, 4, "{outcome:?}");
        assert!(outcome.duration_us < 3_000_000, "{outcome:?}");
        if !client.mode.contained {
            // Never more than its bound: this counts those that live at one time, until none can be added.
            let mut spec = client.attack("count_processes", &[]);
            spec.processes = 40;
            let outcome = client.run(&spec);
            assert_eq!(outcome.why, 4, "{outcome:?}");
            // Without namespaces, what else the user runs is left out as it was at the start; some of it may have been ending.
            let (lived, most) = (outcome.results()["lived"], if client.mode.spaces { 40 } else { 43 });
            assert!((38..=most).contains(&lived), "{:?} {outcome:?}", client.mode);
        }
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

/// Trees that no path reaches are measured, and held against the command that made them alone.
#[test]
fn deep_and_closed_trees() {
    each(|client| {
        let mut spec = client.attack("deep", &[]);
        spec.disk = 64 << 20;
        let outcome = client.run(&spec);
        assert_eq!((outcome.why, outcome.code), (0, 0), "{outcome:?}");
        assert_eq!(outcome.found, client.dir.join("work/0123456789").display().to_string());
        // The next command is not held to what was there, but to what it adds, however deep.
        let mut spec = client.spec(&["sh", "-c", "echo fine > next"]);
        spec.disk = 4 << 20;
        let outcome = client.run(&spec);
        assert_eq!((outcome.why, outcome.code, outcome.found.as_str()), (0, 0, ""), "{outcome:?}");
        let deeper = "cd -P 0123456789; for n in $(seq 700); do cd -P 0123456789 || exit 9; done; head -c 9000000 /dev/zero > more";
        let mut spec = client.spec(&["sh", "-c", deeper]);
        spec.disk = 4 << 20;
        let outcome = client.run(&spec);
        assert_eq!(outcome.why, 5, "{outcome:?} {}", outcome.stderr());
        // What its owner closed to itself is measured too, and stops nobody.
        let mut spec = client.attack("closed", &[]);
        spec.disk = 2 << 20;
        assert_eq!(client.run(&spec).why, 5, "a directory that is closed hides nothing");
        let mut spec = client.spec(&["true"]);
        spec.disk = 1 << 20;
        assert_eq!(client.run(&spec).why, 0);
        let mut spec = client.attack("many", &[]);
        spec.disk = 16 << 20;
        assert_eq!(client.run(&spec).why, 5, "names of one file are entries");
    });
}

/// Bits that no call of a command sets, and that are there even so.
#[test]
fn a_set_id_bit_does_not_outlive_a_command() {
    each(|client| {
        let (own, foreign) = (client.dir.join("work/sub/own"), client.dir.join("work/foreign"));
        for (path, uid) in [(&own, client.uid), (&foreign, 0)] {
            fs::write(path, "x").unwrap();
            chown(path, Some(uid), Some(uid)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o6711)).unwrap();
        }
        let mut spec = client.spec(&["true"]);
        spec.disk = 1 << 20;
        assert_eq!(client.run(&spec).why, 0);
        let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&own), mode(&foreign)), (0o711, 0o6711), "only what is the command's own is changed");
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
