//! What `ghostd` says in the terminal about configurations and failures, and the exit codes that go with it.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use ghost_daemon::{Failure, Overrides};
use ghost_domain::{Code, Refusal};

/// The exit code of a configuration with problems: the same as of a misuse of the command line.
const USAGE: u8 = 2;

/// `ghostd check`.
pub fn check(world_dir: &Path, json: bool, env: &dyn Fn(&str) -> Option<String>) -> ExitCode {
    let problems = ghost_daemon::check(world_dir, &Overrides::default(), env, &[]);
    let fine = !problems.has_errors();
    let mut out = String::new();
    if json {
        match serde_json::to_string_pretty(&problems) {
            Ok(text) => out = format!("{text}\n"),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::FAILURE;
            }
        }
    } else if !problems.is_empty() {
        eprintln!("{problems}");
    }
    let (errors, warnings) = problems.counts();
    if !json {
        if fine {
            out = format!("{} is a world that can be started. {}\n", world_dir.display(), counted(errors, warnings));
        } else {
            eprintln!("{}", counted(errors, warnings));
        }
    }
    printed(&out, if fine { ExitCode::SUCCESS } else { ExitCode::from(USAGE) })
}

/// Writes `text` to standard output and gives `code`. Nobody who reads any more is no failure; a full disk is one.
fn printed(text: &str, code: ExitCode) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write the output: {error}");
            ExitCode::FAILURE
        }
        _ => code,
    }
}

/// How many problems there are, in words.
fn counted(errors: usize, warnings: usize) -> String {
    let many = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}.", many(errors, "error"), many(warnings, "warning"))
}

/// `ghostd init`.
pub fn init(dir: &Path) -> ExitCode {
    match ghost_config::init::write(dir) {
        Ok(files) => {
            let mut text: String = files.iter().map(|file| format!("wrote {}\n", file.display())).collect();
            text.push_str(&format!("Start it with: ghostd up {}\n", dir.display()));
            printed(&text, ExitCode::SUCCESS)
        }
        Err(refusal) => refused(&refusal),
    }
}

/// Why the daemon did not start.
pub fn failure(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Problems(problems) => {
            eprintln!("{problems}");
            let (errors, warnings) = problems.counts();
            eprintln!("{} Nothing was started.", counted(errors, warnings));
            ExitCode::from(USAGE)
        }
        Failure::Refused(refusal) => refused(refusal),
    }
}

/// Says what was refused, and what to do.
pub fn refused(refusal: &Refusal) -> ExitCode {
    eprintln!("error: {}", refusal.message);
    if let Some(hint) = &refusal.hint {
        eprintln!("  hint: {hint}");
    }
    ExitCode::from(exit_code(refusal.code))
}

/// The same codes that ghostctl gives (CP-09 as corrected).
fn exit_code(code: Code) -> u8 {
    match code {
        Code::InvalidArguments | Code::CursorAhead | Code::PayloadMismatch => USAGE,
        Code::NotFound | Code::UnknownTool | Code::CursorExpired => 3,
        Code::AccessDenied | Code::PathDenied | Code::PolicyDenied | Code::ApprovalDenied | Code::ApprovalPending => 4,
        Code::Unavailable => 5,
        Code::Timeout => 6,
        Code::Conflict => 7,
        Code::TooLarge
        | Code::RateLimited
        | Code::InboxFull
        | Code::HopLimit
        | Code::BudgetExhausted
        | Code::LoopGuard => 8,
        Code::Cancelled | Code::ExecFailed | Code::Internal | Code::OutcomeUnknown => 1,
        // The other side lacks something that must be there.
        Code::Unsupported => 1,
    }
}
