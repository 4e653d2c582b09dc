//! The programs under test for which cargo sets no environment variable.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Path of the client.
#[must_use]
pub fn ghostctl() -> PathBuf {
    bin_dir().join("ghostctl")
}

/// Path of the daemon with tools for tests.
#[must_use]
pub fn ghostd_testing() -> PathBuf {
    bin_dir().join("ghostd_testing")
}

/// Path of the toolbox server.
#[must_use]
pub fn ghost_toolbox() -> PathBuf {
    bin_dir().join("ghost-toolbox")
}

/// The directory of the programs. The first call builds them with cargo, so that a test never runs an outdated
/// program. If they are up to date, this takes little time.
fn bin_dir() -> PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its own file");
        // target/<profile>/deps/<test>
        let dir = test.parent().and_then(|deps| deps.parent()).expect("cargo's layout").to_owned();
        if std::env::var_os("GHOST_PROGRAMS_BUILT").is_some() {
            // `cargo verify` has already built them.
            return dir;
        }
        let target = dir.parent().expect("cargo's layout").to_owned();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // Only this test support starts cargo.
        #[allow(clippy::disallowed_methods)]
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "--quiet",
            "--package",
            "ghostctl",
            "--package",
            "ghost-testkit",
            "--package",
            "ghost-toolbox",
            "--bins",
            "--features",
            "ghost-testkit/daemon",
        ]);
        build.arg("--target-dir").arg(target).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        // With the variables that cargo sets for this package, build scripts of other packages would run again.
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
