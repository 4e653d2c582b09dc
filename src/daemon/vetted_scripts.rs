//! The rule files that a start found good, kept in the data directory, so that the next start need not read them again.
//!
//! Must never: keep a world from starting. Without this file a start takes a few milliseconds longer, and nothing else.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use ghost_provider::scripted::Vetted;
use rustix::fs::{Mode, OFlags};

/// The file in the data directory.
const FILE: &str = "vetted-scripts";
/// Longest file that is read: a digest for each of some fifteen thousand rule files.
const SIZE_MAX: u64 = 1 << 20;

/// The files that need no reading; none if that cannot be told.
pub(crate) fn read(data_dir: &Path) -> Vetted {
    let read = || -> io::Result<Vetted> {
        let mut text = String::new();
        // Whatever else stands there, such as a pipe, must not make the start wait.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::File::from(rustix::fs::open(data_dir.join(FILE), flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        file.take(SIZE_MAX).read_to_string(&mut text)?;
        Ok(Vetted::parse(&text, &program()?))
    };
    match read() {
        Ok(vetted) => vetted,
        Err(error) => {
            tracing::debug!(%error, "every rule file is read");
            Vetted::default()
        }
    }
}

/// Keeps the rule files that are good, whole or not at all.
pub(crate) fn keep(data_dir: &Path, good: &Vetted) {
    let (file, new) = (data_dir.join(FILE), data_dir.join(format!("{FILE}.new")));
    let write = || -> io::Result<()> {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // New, so that nothing which stands there is written through.
        let mut made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        made.write_all(good.text(&program()?).as_bytes())?;
        fs::rename(&new, file)
    };
    if let Err(error) = write() {
        tracing::debug!(%error, "the next start reads every rule file");
    }
}

/// Which program this is: another build may find other things wrong.
fn program() -> io::Result<String> {
    let file = fs::metadata(std::env::current_exe()?)?;
    let (version, size) = (env!("CARGO_PKG_VERSION"), file.len());
    Ok(format!("ghostd {version}, {size} bytes of {}.{:09}", file.mtime(), file.mtime_nsec()))
}
