//! The programs under test that cargo does not hand to the tests by itself.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The client.
#[must_use]
pub fn ghostctl() -> PathBuf {
    bin_dir().join("ghostctl")
}

/// The daemon with test-only tools.
#[must_use]
pub fn ghostd_testing() -> PathBuf {
    bin_dir().join("ghostd_testing")
}

/// Where cargo puts the programs of this build. The first call of a process has cargo build them, which takes no time
/// if they are up to date, so that a test never runs against yesterday's client.
fn bin_dir() -> PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own file");
        // target/<profile>/deps/<test>
        let dir = test.parent().and_then(|deps| deps.parent()).expect("cargo's layout").to_owned();
        if std::env::var_os("GHOST_PROGRAMS_BUILT").is_some() {
            // `cargo verify` has built them just before.
            return dir;
        }
        let target = dir.parent().expect("cargo's layout").to_owned();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // The testkit starts the programs that it tests; nothing of this ships.
        #[allow(clippy::disallowed_methods)]
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "--quiet",
            "--package",
            "ghostctl",
            "--package",
            "ghost-testkit",
            "--bins",
            "--features",
            "ghost-testkit/daemon",
        ]);
        build.arg("--target-dir").arg(target).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        // What cargo tells this test about its own package would make other packages' build scripts run anew.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text == "OUT_DIR"
                || ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
                    .iter()
                    .any(|own| text.starts_with(own))
            {
                build.env_remove(&name);
            }
        }
        if dir.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        let built = build.output().expect("cargo can be started");
        assert!(built.status.success(), "building the programs: {}", String::from_utf8_lossy(&built.stderr));
        dir
    })
    .clone()
}
