//! The developer's commands of this workspace. `cargo verify` (an alias in `.cargo/config.toml`) runs every check that CI
//! runs as its test command, in order, and stops at the first that fails. `cargo xtask covers` writes the column of tests in
//! `docs/requirements.md`.
//!
//! Must never: depend on another crate (it has to build in a second), or do anything that a person could not do by
//! typing the commands that it prints.

// What it does is told as it goes, to a person.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod covers;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The checks of `verify`: what each is for, and the arguments of `cargo`. Cheap ones first.
const VERIFY: [(&str, &[&str]); 5] = [
    ("formatting", &["fmt", "--all", "--check"]),
    ("requirements and their tests", &["xtask", "covers", "--check"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    // The black-box tests start these beside ghostd. Each sees to it that they are up to date with this very command, which
    // must not compile anything while a test is being timed.
    (
        "programs that tests start",
        &[
            "build",
            "--package",
            "ghostctl",
            "--package",
            "ghost-testkit",
            "--bins",
            "--features",
            "ghost-testkit/daemon",
        ],
    ),
    ("tests", &["test", "--workspace"]),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["verify"] => verify(),
        ["covers"] => requirements(false),
        ["covers", "--check"] => requirements(true),
        _ => {
            eprintln!(
                "usage:\n  cargo verify                  runs formatting, lints and every test, and stops at the first that \
                 fails\n  cargo xtask covers            writes the column of tests in docs/requirements.md\n  cargo xtask \
                 covers --check    fails if that column is stale or a comment names an unknown ID"
            );
            ExitCode::from(2)
        }
    }
}

fn requirements(check: bool) -> ExitCode {
    // Cargo sets it for a program that it runs; the path of the build is for a program that someone runs without Cargo.
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    match covers::run(&PathBuf::from(package).join(".."), check) {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            problems.iter().for_each(|problem| eprintln!("covers: {problem}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("covers: the sources or the catalogue cannot be read: {error}");
            ExitCode::FAILURE
        }
    }
}

fn verify() -> ExitCode {
    let mut passed = Vec::new();
    for (what, arguments) in VERIFY {
        println!("==> {what}: cargo {}", arguments.join(" "));
        match run(arguments) {
            Ok(true) => passed.push(what),
            Ok(false) => {
                summary(&passed);
                eprintln!("verify: FAILED at {what}: cargo {}", arguments.join(" "));
                return ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("verify: cargo cannot be started: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    summary(&passed);
    println!("verify: everything passed.");
    ExitCode::SUCCESS
}

fn summary(passed: &[&str]) {
    println!();
    for what in passed {
        println!("verify: ok       {what}");
    }
    // A test that needs a service of the machine has to be listed here, with whether that service was found.
    println!("verify: skipped  nothing: no test needs Docker, PostgreSQL or Chromium yet");
}

/// Runs `cargo` with `arguments`; whether it succeeded.
#[allow(
    clippy::disallowed_methods,
    reason = "the sandbox rule is about what ghostd starts; this is a developer's tool"
)]
fn run(arguments: &[&str]) -> std::io::Result<bool> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    // The step before the tests has built the programs that they start; building them again in the middle of a test would
    // only make it wait.
    command.args(arguments).env("GHOST_PROGRAMS_BUILT", "1");
    // `cargo run` describes this package in the environment. Build scripts that watch these variables (ring's does) would
    // run again, and everything above them would be compiled again.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO_BIN_NAME" {
            command.env_remove(&name);
        }
    }
    Ok(command.status()?.success())
}
