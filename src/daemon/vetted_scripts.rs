//! The rule files that a start found good, kept in the data directory, so that the next start need not read them again.
//!
//! Must never: keep a world from starting. Without this file a start takes a few milliseconds longer, and nothing else.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ghost_provider::scripted::Vetted;

/// The file in the data directory.
const FILE: &str = "vetted-scripts";
/// Longest file that is read: a digest for each of some fifteen thousand rule files.
const SIZE_MAX: u64 = 1 << 20;

/// The files that need no reading; none if that cannot be told.
pub(crate) fn read(data_dir: &Path) -> Vetted {
    let read = || -> io::Result<Vetted> {
        let mut text = String::new();
        fs::File::open(data_dir.join(FILE))?.take(SIZE_MAX).read_to_string(&mut text)?;
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
    let kept = program().and_then(|program| fs::write(&new, good.text(&program))).and_then(|()| fs::rename(new, file));
    if let Err(error) = kept {
        tracing::debug!(%error, "the next start reads every rule file");
    }
}

/// Which program this is: another build may find other things wrong.
fn program() -> io::Result<String> {
    let file = fs::metadata(std::env::current_exe()?)?;
    let (version, size) = (env!("CARGO_PKG_VERSION"), file.len());
    Ok(format!("ghostd {version}, {size} bytes of {}.{:09}", file.mtime(), file.mtime_nsec()))
}
