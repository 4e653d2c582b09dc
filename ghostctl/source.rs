//! Texts that are too long for a command line: `-` stands for standard input wherever a text or a value is taken, and a
//! file is named.
//!
//! Must never: read without a bound, or read standard input twice.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

/// What stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Bytes that are read of a file or of standard input: more than any world takes.
pub const TEXT_MAX: u64 = 2 * 1024 * 1024;

/// Whether standard input was read.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The text itself, or for `-` what standard input holds, without the line break at its end.
pub fn words(text: String) -> Result<String, Failure> {
    if text != STANDARD_INPUT {
        return Ok(text);
    }
    let mut text = standard_input()?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// The same where the text may be absent.
pub fn words_if(text: Option<String>) -> Result<Option<String>, Failure> {
    text.map(words).transpose()
}

/// A document as it is, line break at its end and all: given as text, as `-`, or as a file, which may be `-`, too.
pub fn document(text: Option<String>, file: Option<&Path>) -> Result<String, Failure> {
    match (text, file) {
        (Some(text), _) if text != STANDARD_INPUT => Ok(text),
        (_, Some(path)) if path.as_os_str() != STANDARD_INPUT => {
            let file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
            read(file, &path.display().to_string(), |error| unreadable(path, error))
        }
        _ => standard_input(),
    }
}

fn standard_input() -> Result<String, Failure> {
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Err(Failure::new("invalid_arguments", "standard input holds one text, and `-` was given twice")
            .hint("give one of the two as text"));
    }
    read(std::io::stdin(), "standard input", |error| {
        Failure::new("internal", format!("cannot read standard input: {error}")).hint("pipe a text into it")
    })
}

fn read(from: impl Read, name: &str, failed: impl Fn(&std::io::Error) -> Failure) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(TEXT_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Failure::new("too_large", format!("{name} holds more than {TEXT_MAX} bytes"))
            .hint("split it up, or write a workspace file and name its path"));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::new("invalid_arguments", format!("{name} is not UTF-8")).hint("it must be text; save it as UTF-8")
    })
}

/// A file of this machine that cannot be read: not there 3, not allowed 4, something else 2.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let (code, hint) = match error.kind() {
        ErrorKind::NotFound => ("not_found", "name a file that is there, or - for standard input"),
        ErrorKind::PermissionDenied => ("access_denied", "the file must be readable to you"),
        _ => ("invalid_arguments", "name a readable file"),
    };
    Failure::new(code, format!("cannot read {}: {error}", path.display())).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_within_its_bound_and_only_if_it_is_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        assert_eq!(document(Some("as it is".into()), None).unwrap(), "as it is");
        assert_eq!(document(None, Some(&path("a", "äöü\n".as_bytes()))).unwrap(), "äöü\n");
        let large = vec![b'x'; usize::try_from(TEXT_MAX).unwrap() + 1];
        assert_eq!(document(None, Some(&path("b", &large))).unwrap_err().exit_code(), 8);
        assert_eq!(document(None, Some(&path("c", b"\xff"))).unwrap_err().exit_code(), 2);
        let missing = document(None, Some(&dir.path().join("none"))).unwrap_err();
        assert_eq!((missing.exit_code(), missing.message.contains("none"), missing.hint.is_some()), (3, true, true));
        assert_eq!(document(None, Some(dir.path())).unwrap_err().exit_code(), 2);
        assert_eq!(words("--".into()).unwrap(), "--");
        assert_eq!(words_if(None).unwrap(), None);
    }
}
