//! Texts from standard input or a file. Wherever a command accepts a text or a value, `-` means standard input.
//!
//! A read must never be unlimited. Standard input must never be read twice.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;

/// The argument that means standard input.
const STANDARD_INPUT: &str = "-";
/// Largest text in bytes. It is larger than any world accepts.
pub const TEXT_MAX: u64 = 2 * 1024 * 1024;

/// Whether standard input was read already.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The text itself, or for `-` the content of standard input without its final line break.
pub fn text_or_stdin(text: String) -> Result<String, Failure> {
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

/// Like [`text_or_stdin`] for an optional text.
pub fn optional_text(text: Option<String>) -> Result<Option<String>, Failure> {
    text.map(text_or_stdin).transpose()
}

/// A document from an argument, from a file, or (for `-` as either) from standard input. It is not changed, so a final
/// line break stays.
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
        return Err(Failure::new("invalid_arguments", "`-` was given twice, but standard input can be read only once")
            .hint("pass one of the two as text"));
    }
    read(std::io::stdin(), "standard input", |error| {
        Failure::new("internal", format!("cannot read standard input: {error}")).hint("pipe a text into ghostctl")
    })
}

fn read(from: impl Read, name: &str, failed: impl Fn(&std::io::Error) -> Failure) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(TEXT_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > TEXT_MAX {
        return Err(Failure::new("too_large", format!("{name} holds more than {TEXT_MAX} bytes"))
            .hint("split it, or write it to a workspace file and send the path"));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::new("invalid_arguments", format!("{name} is not UTF-8")).hint("it must be text; save it as UTF-8")
    })
}

/// The failure for a local file that cannot be read. Exit code 3 if it is missing, 4 if access is denied, else 2.
pub fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let (code, hint) = match error.kind() {
        ErrorKind::NotFound => ("not_found", "name an existing file, or - for standard input"),
        ErrorKind::PermissionDenied => ("access_denied", "you need permission to read the file"),
        _ => ("invalid_arguments", "name a readable file"),
    };
    Failure::new(code, format!("cannot read {}: {error}", path.display())).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_must_be_text_within_the_size_limit() {
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
        assert_eq!(text_or_stdin("--".into()).unwrap(), "--");
        assert_eq!(optional_text(None).unwrap(), None);
    }
}
