//! Files: what commands read and write, and when rights change.

use std::os::unix::fs::symlink;

use ghost_config::plan::WorkspaceAccess;
use ghost_domain::Code;
use ghost_sandbox::End;
use rustix::fs::{CWD, RenameFlags};

use crate::place::{Kind, Place, sh};

pub fn writes_stay_within_the_prefixes(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    place.sh("bob", "echo of-bob > note");
    std::fs::write(place.workspace().join("shared.txt"), "shared").unwrap();
    std::fs::write(place.dir.path().join("outside"), "untouched").unwrap();
    let done = place.sh("ada", "echo mine > note; echo more > ../../output/report; cat ../bob/note ../../shared.txt");
    assert_eq!((done.end, done.stdout.text.as_str()), (End::Exited(0), "of-bob\nshared"), "{}", done.stderr.text);
    assert_eq!(std::fs::read_to_string(place.workspace().join("output/report")).unwrap(), "more\n");
    symlink(place.dir.path().join("outside"), place.workspace().join("agents/ada/out")).unwrap();
    symlink("../bob", place.workspace().join("agents/ada/bob")).unwrap();
    for (name, line) in [
        ("another agent's file", "echo x > ../bob/note"),
        ("another agent's directory", "touch ../bob/new"),
        ("through a link to it", "echo x > bob/note"),
        ("the workspace's root", "touch ../../new"),
        ("a file of the root", "echo x > ../../shared.txt"),
        ("a link out", "echo x > out"),
        ("a hard link to another's file", "ln ../bob/note linked && echo x > linked"),
        ("a moved directory", "mv ../bob ./taken"),
        ("a swapped own directory", "mv ../ada ../ada-old"),
        ("a name through the root of this process", "echo x > /proc/self/root/$AGENT_WORKSPACE/shared.txt"),
        ("an opened file, opened again for writing", "exec 5<../bob/note; echo x > /proc/self/fd/5"),
        ("a mode", "chmod 666 ../bob/note || chmod 666 ../../shared.txt"),
        ("the system", "touch /usr/bin/new || touch /etc/new || touch /new"),
        ("the kernel", "echo x > /proc/sys/kernel/core_pattern"),
    ] {
        let done = place.sh("ada", line);
        assert_ne!(done.end, End::Exited(0), "{name}: {line}");
    }
    assert_eq!(std::fs::read_to_string(place.workspace().join("agents/bob/note")).unwrap(), "of-bob\n");
    assert_eq!(std::fs::read_to_string(place.workspace().join("shared.txt")).unwrap(), "shared");
    assert_eq!(std::fs::read_to_string(place.dir.path().join("outside")).unwrap(), "untouched");
    assert!(!place.workspace().join("new").exists() && place.workspace().join("agents/bob").is_dir());
}

pub fn access_to_the_workspace_is_bounded(kind: Kind) {
    let script = "touch own; cat ../../shared.txt; ls ../bob";
    for (access, reads, writes) in [
        (WorkspaceAccess::None, false, true),
        (WorkspaceAccess::ReadOnly, true, false),
        (WorkspaceAccess::ReadWrite, true, true),
    ] {
        let Some(place) = Place::with(kind, |plan| plan.workspace_access = access) else { return };
        std::fs::create_dir_all(place.workspace().join("agents/bob")).unwrap();
        std::fs::write(place.workspace().join("agents/bob/secret"), "s").unwrap();
        std::fs::write(place.workspace().join("shared.txt"), "shared").unwrap();
        let done = place.sh("ada", script);
        assert_eq!(done.stdout.text == "sharedsecret\n", reads, "{access:?}: {:?}", done);
        assert_eq!(done.stdout.text.is_empty(), !reads, "{access:?}: {:?}", done);
        assert_eq!(place.workspace().join("agents/ada/own").exists(), writes, "{access:?}: {:?}", done);
    }
}

pub fn rights_hold_from_the_next_command(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let write = |prefixes: &[&str]| {
        let mut command = sh("ada", "echo x >> ../../projects/p/file");
        command.writable = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        place.run(command).unwrap().end == End::Exited(0)
    };
    std::fs::create_dir_all(place.workspace().join("projects/p")).unwrap();
    std::fs::create_dir_all(place.workspace().join("projects/q")).unwrap();
    assert!(!write(&["agents/ada/"]));
    assert!(write(&["agents/ada/", "projects/p/"]), "a grant");
    assert!(!write(&["agents/ada/", "projects/q/"]), "another grant");
    assert!(write(&["projects/"]));
    assert!(!write(&["agents/ada/"]), "no grant any more");
    // Another directory in its place is another directory: the old one is not written to.
    assert!(write(&["projects/p/"]));
    std::fs::rename(place.workspace().join("projects/p"), place.workspace().join("projects/old")).unwrap();
    assert!(write(&["projects/p/"]));
    assert_eq!(std::fs::read_to_string(place.workspace().join("projects/p/file")).unwrap(), "x\n");
}

pub fn a_link_in_place_of_a_prefix_is_refused(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let outside = place.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::set_permissions(&outside, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    symlink(&outside, place.workspace().join("output")).unwrap();
    let refused = place.run(sh("ada", "touch ../../output/new")).unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    assert!(refused.message.contains("output/"), "{refused}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

/// A link that is swapped in and out while commands start: they run in the real directory, or not at all.
pub fn a_link_that_comes_and_goes_leads_nowhere(kind: Kind) {
    let Some(place) = Place::with(kind, |plan| plan.workspace_access = WorkspaceAccess::None) else { return };
    let (workspace, outside) = (place.workspace(), place.dir.path().join("outside"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::set_permissions(&outside, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    place.sh("ada", "true");
    let (own, link) = (workspace.join("agents/ada"), workspace.join("agents/link"));
    symlink(&outside, &link).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut ran = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, &own, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for _ in 0..30 {
            // Each command has a container of its own.
            place.runtime.block_on(place.sandbox.close());
            match place.run(sh("ada", "touch new; true")) {
                Ok(done) => {
                    assert_eq!(done.end, End::Exited(0));
                    ran += 1;
                }
                Err(refused) => assert_eq!(refused.code, Code::Unavailable, "{refused}"),
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "a file was written outside");
    eprintln!("{kind:?}: {ran} of 30 ran");
}

/// What agents write is for the daemon, for commands, and for nobody else on this machine.
pub fn other_users_read_nothing(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    let done = place.sh("ada", "mkdir -p deep/er; echo x > note; echo x > deep/er/note; echo x > ../../output/report");
    assert_eq!(done.end, End::Exited(0), "{}", done.stderr.text);
    let mode = |path: &str| {
        let found = place.workspace().join(path).metadata().unwrap();
        std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o7777
    };
    if rustix::process::geteuid().is_root() {
        assert_eq!(mode(""), 0o751, "others pass through it, and list nothing");
    }
    for path in ["agents", "agents/ada", "agents/ada/deep/er", "output"] {
        assert_eq!(mode(path), 0o750, "{path}");
    }
    for path in ["agents/ada/note", "agents/ada/deep/er/note", "output/report"] {
        assert_eq!(mode(path), 0o640, "{path}");
    }
    // Agents read each other's files all the same.
    assert_eq!(place.sh("bob", "cat ../ada/note; ls ../.. | head -n 1").stdout.text, "x\nagents\n");
}
