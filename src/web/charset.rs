//! The text of a body, whatever its encoding. Pure.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Bytes at the start of a page in which it may name its encoding.
const PRESCAN: usize = 1_024;

/// The text of a body: by its mark, else by the `charset` of its header, else by what an HTML page says, else UTF-8 if
/// it is valid, else Windows-1252. `None` for a body that is no text.
#[must_use]
pub fn text(body: &[u8], charset: Option<&str>, html: bool) -> Option<String> {
    if let Some((encoding, _)) = Encoding::for_bom(body) {
        return Some(encoding.decode(body).0.into_owned());
    }
    let named = charset.and_then(|label| Encoding::for_label(label.as_bytes()));
    let named = named.or_else(|| html.then(|| declared(&body[..body.len().min(PRESCAN)])).flatten());
    if let Some(encoding) = named {
        let text = encoding.decode_without_bom_handling(body).0;
        return Some(text.into_owned()).filter(|text| html || !text.contains('\0'));
    }
    if body.contains(&0) {
        return None;
    }
    let encoding = if std::str::from_utf8(body).is_ok() { UTF_8 } else { WINDOWS_1252 };
    Some(encoding.decode_without_bom_handling(body).0.into_owned())
}

/// The encoding that the start of a page declares.
fn declared(start: &[u8]) -> Option<&'static Encoding> {
    let lower = start.to_ascii_lowercase();
    let at = lower.windows(8).position(|word| word == b"charset=")? + 8;
    let label: Vec<u8> = lower[at..]
        .iter()
        .copied()
        .skip_while(|byte| matches!(byte, b'"' | b'\'' | b' '))
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.'))
        .collect();
    let found = Encoding::for_label(&label)?;
    // A page that can be read up to here is not UTF-16, whatever it says (WHATWG's prescan).
    Some(if found == encoding_rs::UTF_16LE || found == encoding_rs::UTF_16BE { UTF_8 } else { found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_in_its_encoding() {
        let of = |body: &[u8], charset, html| text(body, charset, html);
        assert_eq!(of("grün".as_bytes(), None, false).as_deref(), Some("grün"));
        assert_eq!(of(b"gr\xfcn", None, false).as_deref(), Some("grün"));
        assert_eq!(of(b"\xcf\xf0\xe8", Some("windows-1251"), false).as_deref(), Some("При"));
        assert_eq!(
            of(b"<meta charset='windows-1251'>\xcf", None, true).as_deref(),
            Some("<meta charset='windows-1251'>П")
        );
        assert_eq!(of(b"<meta charset=utf-16>x", None, true).as_deref(), Some("<meta charset=utf-16>x"));
        assert_eq!(of(b"\xff\xfea\0b\0", Some("utf-8"), false).as_deref(), Some("ab"));
        assert_eq!(of(b"\xef\xbb\xbfa", None, false).as_deref(), Some("a"));
        assert_eq!(of(b"a", Some("no-such"), false).as_deref(), Some("a"));
        assert_eq!(of(b"PK\x03\x04\0\0", None, false), None);
        assert_eq!(of(b"a\0b", Some("utf-8"), false), None);
    }
}
