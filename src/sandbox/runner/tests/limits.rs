//! Limits of processes, memory, disk, output.

use std::fs;
use std::os::unix::fs::chown;
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
