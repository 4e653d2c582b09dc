//! Python, for tests that need what other people wrote in it.
//!
//! Must never: let a test be skipped where CI wants it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// A Python that has these modules, or a reason why there is none. `GHOST_PYTHON` names another than `python3`.
///
/// # Errors
/// What is missing.
///
/// # Panics
/// When something is missing where nothing may be: `GHOST_CLIENTS=required`, as CI sets it.
// What is looked for is a program of the machine's own.
#[allow(clippy::disallowed_methods)]
pub fn python(modules: &[&str]) -> Result<PathBuf, String> {
    let python = PathBuf::from(std::env::var_os("GHOST_PYTHON").unwrap_or_else(|| "python3".into()));
    let wanted = format!("import sys{}", modules.iter().map(|name| format!(", {name}")).collect::<String>());
    let missing = match Command::new(&python).args(["-c", &wanted]).output() {
        Ok(there) if there.status.success() => return Ok(python),
        Ok(there) => String::from_utf8_lossy(&there.stderr).lines().last().unwrap_or_default().to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(
        std::env::var_os("GHOST_CLIENTS").as_deref() != Some(OsStr::new("required")),
        "{}: {missing}",
        python.display()
    );
    Err(missing)
}
