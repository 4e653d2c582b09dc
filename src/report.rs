//! What `ghostd` prints: reports on configurations and failures, with their exit codes, and its log. Standard error may be on a
//! full disk: a line that cannot be written stops nothing.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

use ghost_daemon::{Failure, Overrides};
use ghost_domain::text::shown;
use ghost_domain::{Code, Refusal};
use tracing_subscriber::EnvFilter;

/// The exit code of a configuration with problems; also used for wrong arguments.
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
                tell(&format!("error: {error}"));
                return ExitCode::FAILURE;
            }
        }
    } else if !problems.is_empty() {
        tell(&problems.to_string());
    }
    let (errors, warnings) = problems.counts();
    if !json {
        if fine {
            out = format!("{} is a world that can be started. {}\n", world_dir.display(), counted(errors, warnings));
            out.push_str(&ghost_daemon::sandbox_check(world_dir, env).unwrap_or_default());
        } else {
            tell(&counted(errors, warnings));
        }
    }
    printed(&out, if fine { ExitCode::SUCCESS } else { of_problems(world_dir) })
}

/// `ghostd check --data`.
pub fn check_data(dir: &Path) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tell(&format!("error: the runtime cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(ghost_daemon::check_data(dir)) {
        Ok(text) => printed(&text, ExitCode::SUCCESS),
        Err(refusal) => refused(&refusal),
    }
}

/// Writes a line to standard error. An error is ignored, because it could be reported nowhere; `eprintln!` would panic.
pub fn tell(line: &str) {
    drop(io::stderr().write_all(format!("{line}\n").as_bytes()));
}

/// Writes `text` to standard output and returns `code`. A closed pipe is no failure; a full disk is one.
fn printed(text: &str, code: ExitCode) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            tell(&format!("error: cannot write the output: {error}"));
            ExitCode::FAILURE
        }
        _ => code,
    }
}

/// The number of problems as text.
fn counted(errors: usize, warnings: usize) -> String {
    let many = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}.", many(errors, "error"), many(warnings, "warning"))
}

/// `ghostd schema`. The command line accepts no file without one.
pub fn schema(file: &str) -> ExitCode {
    printed(&ghost_config::schema::of(file).unwrap_or_default(), ExitCode::SUCCESS)
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

/// The exit code of problems of the world at `world_dir`: 3 if the directory does not exist, else 2.
fn of_problems(world_dir: &Path) -> ExitCode {
    match world_dir.try_exists() {
        Ok(false) => ExitCode::from(exit_code(Code::NotFound)),
        _ => ExitCode::from(USAGE),
    }
}

/// Prints why the daemon did not start with the world at `world_dir`, or why it ended.
pub fn failure(failure: &Failure, world_dir: &Path) -> ExitCode {
    match failure {
        Failure::Problems(problems) => {
            tell(&problems.to_string());
            let (errors, warnings) = problems.counts();
            tell(&format!("{} Nothing was started.", counted(errors, warnings)));
            of_problems(world_dir)
        }
        Failure::Refused(refusal) => refused(refusal),
    }
}

/// Prints a refusal with its hint.
pub fn refused(refusal: &Refusal) -> ExitCode {
    tell(&format!("error: {}", refusal.message));
    if let Some(hint) = &refusal.hint {
        tell(&format!("  hint: {hint}"));
    }
    ExitCode::from(exit_code(refusal.code))
}

/// The exit code of a refusal. `ghostctl` uses the same codes.
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
        // The other side does not have a feature that it needs.
        Code::Unsupported => 1,
    }
}

/// The library that speaks to MCP servers.
const MCP: &str = "rmcp";

/// Starts logging to standard error, at level `warn` unless `GHOST_LOG` says otherwise.
pub fn begin_log() {
    let spec = std::env::var_os("GHOST_LOG").filter(|spec| !spec.is_empty()).unwrap_or_else(|| "warn".into());
    let spec = spec.to_string_lossy();
    // It logs what servers send, which nobody has redacted.
    let bounded = if spec.contains(MCP) { spec.to_string() } else { format!("{spec},{MCP}=error") };
    let filter = EnvFilter::try_new(&bounded).unwrap_or_else(|error| {
        tell(&format!(
            "warning: GHOST_LOG `{}` is not understood ({error}); warnings and worse are logged\n  \
             hint: write off, error, warn, info, debug or trace, or such as ghost_operations=debug",
            shown(&spec, 80)
        ));
        EnvFilter::new(format!("warn,{MCP}=error"))
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // By default a line that cannot be written is reported with `eprintln!`, which panics if that fails, too.
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .init();
}
