//! What `ghostd` logs, and where to.
//!
//! Must never: panic or stop anything because a line cannot be written. Standard error may lie on the disk that is full.

use std::io::{self, IsTerminal as _};

use ghost_domain::text::shown;
use tracing_subscriber::EnvFilter;

use crate::report;

/// Logs go to standard error, warnings and worse unless `GHOST_LOG` says otherwise.
pub fn begin() {
    let spec = std::env::var_os("GHOST_LOG").filter(|spec| !spec.is_empty()).unwrap_or_else(|| "warn".into());
    let spec = spec.to_string_lossy();
    let filter = EnvFilter::try_new(&*spec).unwrap_or_else(|error| {
        report::tell(&format!(
            "warning: GHOST_LOG `{}` is not understood ({error}); warnings and worse are logged\n  \
             hint: write off, error, warn, info, debug or trace, or such as ghost_rules=debug",
            shown(&spec, 80)
        ));
        EnvFilter::new("warn")
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // It would tell of a line that could not be written by `eprintln!`, which panics where that cannot be written either.
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .init();
}
