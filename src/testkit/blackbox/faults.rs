//! Faults that a test asks a daemon for.

use std::path::PathBuf;

use rustix::process::{Signal, getpid, kill_process};

/// The environment variable with the path of a file. While it holds a number, the daemon is killed with SIGKILL as soon
/// as so many files of a patch are in their places. The file is removed first, so that the next daemon goes on.
pub const PATCH_KILL: &str = "GHOST_TEST_PATCH_KILL";

/// Sets the faults up, configured by environment variables.
pub fn test_faults(env: &dyn Fn(&str) -> Option<String>) {
    let Some(file) = env(PATCH_KILL).map(PathBuf::from) else { return };
    ghost_tools::workspace::fault::after_each(move |files| {
        let asked = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        if asked == Some(files) && std::fs::remove_file(&file).is_ok() {
            // It does not return if it succeeds, and the test fails if it does not.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    });
}
