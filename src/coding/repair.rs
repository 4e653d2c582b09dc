//! Repairs a line that is nearly JSON: bytes that are not UTF-8, and halves of surrogate pairs.
//! Programs make both when they cut a text, and a result with such a cut must not be lost.

use crate::squeeze::unit;

/// `line` with replacement characters, or `None` if there is nothing to repair.
pub(crate) fn repaired(line: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(line);
    let mut whole = Vec::with_capacity(text.len());
    let (bytes, mut at) = (text.as_bytes(), 0);
    let mut changed = text.len() != line.len() || text.as_bytes() != line;
    while at < bytes.len() {
        let end = (at + unit(bytes, at)).min(bytes.len());
        match surrogate(bytes, at) {
            Some(Half::First) if surrogate(bytes, end) == Some(Half::Second) => {
                whole.extend_from_slice(&bytes[at..end + 6]);
                at = end + 6;
                continue;
            }
            Some(_) => {
                whole.extend_from_slice(b"\\ufffd");
                changed = true;
            }
            None => whole.extend_from_slice(&bytes[at..end]),
        }
        at = end;
    }
    changed.then_some(whole)
}

/// A half of a character that needs two escapes.
#[derive(PartialEq)]
enum Half {
    First,
    Second,
}

/// Which half the escape at `at` is, if it is one.
fn surrogate(bytes: &[u8], at: usize) -> Option<Half> {
    let [b'\\', b'u', b'd' | b'D', second, third, fourth] = bytes.get(at..at + 6)? else { return None };
    match second {
        _ if !third.is_ascii_hexdigit() || !fourth.is_ascii_hexdigit() => None,
        b'8' | b'9' | b'a' | b'b' | b'A' | b'B' => Some(Half::First),
        b'c'..=b'f' | b'C'..=b'F' => Some(Half::Second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    #[test]
    fn halves_and_invalid_bytes_are_replaced() {
        let repaired = |line: &[u8]| serde_json::from_slice::<Value>(&super::repaired(line).unwrap()).unwrap();
        assert_eq!(repaired(br#"["a\ud83d","\ude00b","\uD83D\uDE00"]"#), json!(["a\u{fffd}", "\u{fffd}b", "😀"]));
        assert_eq!(repaired(b"[\"a\xff\xfe\"]"), json!(["a\u{fffd}\u{fffd}"]));
        assert_eq!(repaired(br#"["\ud83dx\\ud83d"]"#), json!(["\u{fffd}x\\ud83d"]));
        assert_eq!(super::repaired(br#"["\ud83d\ude00 \u00e9 ok"]"#), None);
        assert_eq!(super::repaired(br#"["\ud8"#), None);
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(whole) = super::repaired(&bytes) {
                prop_assert!(String::from_utf8(whole).is_ok());
            }
        }
    }
}
