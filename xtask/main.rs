//! Developer commands of this workspace. `cargo verify` (an alias in `.cargo/config.toml`) runs the checks in order and
//! stops at the first failure. `cargo xtask covers` prints which tests prove which requirement.
//!
//! This crate must never depend on another crate, because it must build within a second. It must
//! never do anything beyond the commands that it prints.

// A command-line tool: it reports to the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod covers;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The checks of `verify`: name and arguments of `cargo`, cheapest first.
const VERIFY: [(&str, &[&str]); 5] = [
    ("formatting", &["fmt", "--all", "--check"]),
    ("requirements and their tests", &["xtask", "covers", "--check"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    // Black-box tests start these programs and build them with this same command if needed. Building them first means
    // that no test spends its time on compilation.
    (
        "programs that tests start",
        &[
            "build",
            "--package",
            "ghostctl",
            "--package",
            "ghost-testkit",
            "--package",
            "ghost-toolbox",
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
                "usage:\n  cargo verify                  runs formatting, lints and all tests; stops at the first \
                 failure\n  cargo xtask covers            prints which tests prove which requirement\n  cargo xtask \
                 covers --check    fails if a comment names an unknown requirement"
            );
            ExitCode::from(2)
        }
    }
}

fn requirements(check: bool) -> ExitCode {
    // Cargo sets the variable at run time. The compile-time value serves a program that is started without Cargo.
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    match covers::run(&PathBuf::from(package).join(".."), check) {
        Ok(problems) if problems.is_empty() => ExitCode::SUCCESS,
        Ok(problems) => {
            problems.iter().for_each(|problem| eprintln!("covers: {problem}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("covers: cannot read the sources or the catalogue: {error}");
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
                eprintln!("verify: cannot start cargo: {error}");
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
    // Tests that were skipped have said so. `.ci/run` sets these variables, so that there they fail instead.
    for (variable, what) in [
        ("GHOST_SANDBOX", "the sandbox"),
        ("GHOST_POSTGRES", "PostgreSQL"),
        ("GHOST_DOCKER", "containers"),
        ("GHOST_CHROMIUM", "the browser"),
        ("GHOST_CLIENTS", "clients"),
    ] {
        if std::env::var_os(variable).is_none() {
            println!("verify: tests of {what} may have been skipped; {variable}=required lets them fail instead");
        }
    }
}

/// Runs `cargo` with `arguments`. Returns whether it succeeded.
#[allow(
    clippy::disallowed_methods,
    reason = "the rule concerns processes that ghostd starts; this is a developer tool"
)]
fn run(arguments: &[&str]) -> std::io::Result<bool> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    // The step before the tests has built the programs that tests start, so tests need not build them again.
    command.args(arguments).env("GHOST_PROGRAMS_BUILT", "1");
    // `cargo run` sets variables that describe this package. Build scripts that depend on them (such as ring's) would
    // run again and cause a rebuild of all dependent crates.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO_BIN_NAME" {
            command.env_remove(&name);
        }
    }
    Ok(command.status()?.success())
}
