//! The runner's program: embedded, and written to the data directory, from where it is started.

use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The program. `build.rs` compiles it.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runner"));
/// Its name in the data directory.
const NAME: &str = "sandbox-runner";
/// Other users may run it: in a container it is not the daemon's user that does.
const MODE: u32 = 0o555;

/// Writes the program to `data_dir`, unless it is there already. Returns its path.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn install(data_dir: &Path) -> std::io::Result<PathBuf> {
    let program = data_dir.join(NAME);
    if std::fs::read(&program).is_ok_and(|found| found == PROGRAM) {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(MODE))?;
        return Ok(program);
    }
    let new = program.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
    file.write_all(PROGRAM)?;
    // The daemon's umask may have taken bits away.
    file.set_permissions(std::fs::Permissions::from_mode(MODE))?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(new, &program)?;
    Ok(program)
}
