//! Logging.
//!
//! This module must never panic or stop anything because a line cannot be written. Standard error
//! may be on a full disk.

use std::io::{self, IsTerminal as _};

use ghost_domain::text::shown;
use tracing_subscriber::EnvFilter;

use crate::report;

/// The library that speaks to MCP servers.
const MCP: &str = "rmcp";

/// Starts logging to standard error, at level `warn` unless `GHOST_LOG` says otherwise.
pub fn begin() {
    let spec = std::env::var_os("GHOST_LOG").filter(|spec| !spec.is_empty()).unwrap_or_else(|| "warn".into());
    let spec = spec.to_string_lossy();
    // It logs what servers send, which nobody has redacted.
    let bounded = if spec.contains(MCP) { spec.to_string() } else { format!("{spec},{MCP}=error") };
    let filter = EnvFilter::try_new(&bounded).unwrap_or_else(|error| {
        report::tell(&format!(
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
