//! Finds a Python interpreter for tests that use programs written in Python.
//!
//! CI must never skip a test because of a missing interpreter or module.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// A Python with these modules. `GHOST_PYTHON` names the interpreter; the default is `python3`.
///
/// # Errors
/// The missing program or module, as text. The caller then skips the test.
///
/// # Panics
/// If something is missing and `GHOST_CLIENTS` is `required`. CI sets this.
// It starts an interpreter of the system.
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
