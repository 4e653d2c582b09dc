//! The cases of `local` for a daemon that is not root. Root runs this program again as another user; anybody else has run
//! them already.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::place::open_dir;

/// The user, unless `GHOST_TEST_UID` names another. It needs no entry in the list of users.
const UID: &str = "61999";

// covers: SBX-04
#[test]
fn local_holds_for_a_user_that_is_not_root() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, uid) = (open_dir(), std::env::var("GHOST_TEST_UID").unwrap_or_else(|_| UID.to_owned()));
    // The directory of builds may be closed to others.
    let program = dir.path().join("contract");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]).arg(&program);
    command.args(["local::", "local_modes::", "--nocapture", "--test-threads=2"]);
    let done = command.current_dir(dir.path()).env("HOME", dir.path()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{text}");
    for line in text.lines().filter(|line| line.contains(" through of ")) {
        eprintln!("{line}");
    }
    if std::env::var("GHOST_SANDBOX").is_ok() {
        assert!(text.contains(&format!("Local, user {uid}: 0 through of ")), "{text}");
    }
}
