//! Bounds of time, memory, processes and disk; the end of whole process trees.

use std::time::Duration;

use ghost_sandbox::End;

use crate::machine::{self, gone, mark, marked};
use crate::place::{Kind, Place, command, sh};

/// Leaves processes behind by a double fork, a session of their own, and deaf ears.
fn escapees(mark: &str) -> String {
    format!("(setsid sh -c '(setsid sleep {mark} &) ; sleep {mark}' &) ; (trap '' TERM HUP INT; sleep {mark}) & ")
}

pub fn a_deadline_kills_the_whole_tree(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    place.sh("ada", "true");
    let mark = mark();
    let mut command = sh("ada", &format!("{} echo ready; sleep {mark}", escapees(&mark)));
    command.timeout = Duration::from_millis(700);
    let done = place.run(command).unwrap();
    assert_eq!((done.end, done.stdout.text.as_str()), (End::Deadline, "ready\n"));
    assert!(
        done.duration >= Duration::from_millis(700) && done.duration < Duration::from_secs(4),
        "{:?}",
        done.duration
    );
    // The result comes after the end of the last process.
    assert_eq!(marked(&mark), Vec::<i32>::new());
    assert_eq!(place.sh("ada", "echo next").stdout.text, "next\n");
}

pub fn the_end_of_a_command_ends_what_it_left(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let mark = mark();
    let done = place.sh("ada", &format!("{} exit 7", escapees(&mark)));
    assert_eq!(done.end, End::Exited(7));
    assert_eq!(marked(&mark), Vec::<i32>::new());
}

pub fn a_dropped_call_kills_the_whole_tree(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let mark = mark();
    let begun = tokio::sync::Notify::new();
    let progress = |_: &[u8]| begun.notify_one();
    place.runtime.block_on(async {
        let command = sh("ada", &format!("{} echo ready; sleep {mark}", escapees(&mark)));
        tokio::select! {
            biased;
            done = place.sandbox.run(command, &progress) => panic!("it ended: {done:?}"),
            () = begun.notified() => {}
        }
    });
    gone(&mark);
    assert_eq!(place.sh("ada", "echo next").stdout.text, "next\n");
}

pub fn too_much_memory(kind: Kind) {
    let Some(place) = Place::with(kind, |plan| plan.memory_bytes = 64 << 20) else { return };
    let hold = "import time\nheld = []\nfor n in range(60):\n  held.append(bytearray(b'x') * (2 << 20)); time.sleep(0.02)\ntime.sleep(20)";
    assert_eq!(place.run(command("ada", &["python3", "-c", hold])).unwrap().end, End::Memory);
    // Many small ones count together.
    let many = "import os, time\nfor n in range(8):\n  if os.fork() == 0:\n    held = bytearray(b'x') * (12 << 20); time.sleep(20); os._exit(0)\ntime.sleep(20)";
    assert_eq!(place.run(command("ada", &["python3", "-c", many])).unwrap().end, End::Memory);
    // What outruns the measuring is stopped by the kernel or the next measurement; it never ends well.
    let fast = "held = bytearray(b'x') * (3 << 30)\nimport time; time.sleep(20)";
    assert_ne!(place.run(command("ada", &["python3", "-c", fast])).unwrap().end, End::Exited(0));
    assert_eq!(place.sh("ada", "echo next").stdout.text, "next\n");
}

pub fn too_many_processes(kind: Kind) {
    let Some(place) = Place::with(kind, |plan| plan.processes = 32) else { return };
    let mark = mark();
    let done = place.sh("ada", &format!("for n in $(seq 400); do setsid sleep {mark} & done; wait"));
    assert_ne!(done.end, End::Exited(0));
    assert!(matches!(done.end, End::Processes | End::Exited(_)), "{:?}", done.end);
    assert_eq!(marked(&mark), Vec::<i32>::new());
    let done = place.sh("ada", &format!("for n in $(seq 40); do sleep {mark} & done; wait"));
    assert_eq!(done.end, End::Processes);
    assert_eq!(place.sh("ada", "echo next").stdout.text, "next\n");
    assert!(machine::marked(&mark).is_empty());
}

pub fn too_much_on_disk(kind: Kind) {
    let Some(place) = Place::with(kind, |plan| plan.disk_bytes = 8 << 20) else { return };
    let fill = "import time\nfor n in range(40):\n  with open(f'fill-{n}', 'wb') as f: f.write(bytes(1 << 20))\n  time.sleep(0.02)\ntime.sleep(20)";
    assert_eq!(place.run(command("ada", &["python3", "-c", fill])).unwrap().end, End::Disk);
    // One file has the same bound.
    let one = place.sh("ada", "rm -f fill-*; head -c 20000000 /dev/zero > one");
    assert_ne!(one.end, End::Exited(0));
    assert!(place.workspace().join("agents/ada/one").metadata().unwrap().len() <= 8 << 20);
    // A file system in memory counts too.
    let tmp = "import time\nfor n in range(40):\n  with open(f'/tmp/fill-{n}', 'wb') as f: f.write(bytes(1 << 20))\n  time.sleep(0.02)\ntime.sleep(20)";
    let done = place.run(command("ada", &["python3", "-c", tmp])).unwrap();
    assert_eq!(done.end, End::Disk, "{}", done.stderr.text);
}

pub fn a_deep_directory_stops_its_agent_alone(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    // Deeper than a path may be, in a directory that all agents write to.
    let deep =
        "import os\nos.chdir('../../output')\nfor n in range(800):\n  os.mkdir('0123456789'); os.chdir('0123456789')";
    assert_eq!(place.run(command("ada", &["python3", "-c", deep])).unwrap().end, End::Exited(0));
    let done = place.sh("bob", "echo of-bob > ../../output/of-bob; cat ../../output/of-bob");
    assert_eq!((done.end, done.stdout.text.as_str()), (End::Exited(0), "of-bob\n"), "{}", done.stderr.text);
    let refused = place.run(sh("ada", "true")).unwrap_err();
    assert_eq!(refused.code, ghost_domain::Code::TooLarge, "{refused}");
    assert!(refused.message.contains("`output/0123456789`"), "{refused}");
    if kind == Kind::Remote {
        // It is in the server's copy, and too deep to be sent.
        return;
    }
    let tree = ghost_sandbox::remote::tree::Tree::open(&place.workspace()).unwrap();
    assert!(tree.remove_tree("output/0123456789").unwrap());
    assert!(!place.workspace().join("output/0123456789").exists());
    assert_eq!(place.sh("ada", "echo next").stdout.text, "next\n");
}
