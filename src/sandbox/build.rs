//! Compiles the runner into a static program, which the library embeds.

// A build script has no other way to report a failure than to end.
#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a build script runs the compiler, and ends the build if it fails"
)]

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let files = std::fs::read_dir("runner").expect("the runner's sources are in a folder of this package");
    for file in files {
        let path = file.expect("the folder of the runner can be read").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let target = env::var("TARGET").expect("Cargo sets TARGET");
    let mut command = Command::new(rustc);
    // Static, so that it runs in a container with any libc. Warnings of it are errors, because no lint of the workspace sees it.
    command.args([
        "--edition",
        "2024",
        "--crate-name",
        "runner",
        "--target",
        &target,
        "-C",
        "target-feature=+crt-static",
    ]);
    command.args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "strip=symbols", "-D", "warnings", "-o"]);
    let status = command.arg(out.join("runner")).arg("runner/runner.rs").status();
    let status = status.expect("rustc, which compiles this package, must also start for the runner");
    assert!(status.success(), "the runner does not compile; a static C library is needed (Debian: libc6-dev)");
    // The tests of the runner start it from there.
    println!("cargo:rustc-env=RUNNER_DIR={}", out.display());
}
