//! Makes JSON text from outside readable. Programs cut texts between the two halves of a `\u` pair, and some put a byte
//! order mark in front; a parser refuses both. A stream can have the two halves in two of its parts.
//!
//! It must never change JSON without such faults, and never hold more than half a character.

use std::borrow::Cow;

use serde_json::Value;

const BYTE_ORDER_MARK: char = '\u{feff}';
/// In place of a half that stands alone.
const REPLACEMENT: char = '\u{fffd}';
/// A half in a part of a stream becomes one of these, and two characters from [`DIGITS`] on. All of them are
/// noncharacters of Unicode, so no text has them.
const FIRST: char = '\u{fffe}';
const SECOND: char = '\u{ffff}';
const DIGITS: u16 = 0xfdd0;
/// Bytes of the mark of a half.
const MARK_LEN: usize = 9;

/// `text` as a parser takes it: without a byte order mark, and with U+FFFD in place of each half of a pair that stands
/// alone. No copy is made if it has no such half.
pub fn readable(text: &str) -> Cow<'_, str> {
    rewritten(text, |_, whole| whole.push_str("\\ufffd"))
}

/// The same for bytes. What is not UTF-8 becomes U+FFFD too.
pub fn readable_bytes(bytes: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => readable(text),
        Cow::Owned(text) => Cow::Owned(readable(&text).into_owned()),
    }
}

/// Like [`readable`], for a part of a stream. A half that stands alone becomes a mark, so that it meets the other one
/// when the texts of the parts are put together. [`joined`], [`joined_value`] or [`Joiner`] takes the marks away.
pub fn readable_part(text: &str) -> Cow<'_, str> {
    rewritten(text, |half, whole| whole.extend(mark(half)))
}

/// `text` with a character in place of two marks that make one, and with U+FFFD in place of the others.
pub fn joined(text: &str) -> Cow<'_, str> {
    if !has_mark(text) {
        return Cow::Borrowed(text);
    }
    let (mut whole, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find([FIRST, SECOND]) {
        whole.push_str(&rest[..at]);
        rest = &rest[at..];
        let (first, second) = (marked(rest), rest.get(MARK_LEN..).and_then(marked));
        let (c, used) = match (first, first.zip(second).and_then(|(first, second)| pair(first, second))) {
            (_, Some(c)) => (c, 2 * MARK_LEN),
            (Some(_), None) => (REPLACEMENT, MARK_LEN),
            (None, None) if rest.starts_with(FIRST) => (FIRST, FIRST.len_utf8()),
            (None, None) => (SECOND, SECOND.len_utf8()),
        };
        whole.push(c);
        rest = &rest[used..];
    }
    whole.push_str(rest);
    Cow::Owned(whole)
}

/// [`joined`] for all texts and keys of a value.
pub fn joined_value(value: Value) -> Value {
    let text = |text: String| if has_mark(&text) { joined(&text).into_owned() } else { text };
    match value {
        Value::String(string) => Value::String(text(string)),
        Value::Array(items) => items.into_iter().map(joined_value).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, member)| (text(name), joined_value(member))).collect()
        }
        other => other,
    }
}

/// Joins the parts of one text as they come.
#[derive(Debug, Default)]
pub struct Joiner {
    half: Option<u16>,
}

impl Joiner {
    /// The next part, with the half that the one before it ended with. If it ends with a half itself, that is held.
    pub fn push<'t>(&mut self, part: &'t str) -> Cow<'t, str> {
        if part.is_empty() || self.half.is_none() && !has_mark(part) {
            return Cow::Borrowed(part);
        }
        let mut text: String = self.half.take().map(mark).into_iter().flatten().chain(part.chars()).collect();
        let last = text.len().checked_sub(MARK_LEN).and_then(|at| Some((at, marked(text.get(at..)?)?)));
        if let Some((at, half)) = last.filter(|(_, half)| is_first(*half)) {
            self.half = Some(half);
            text.truncate(at);
        }
        Cow::Owned(joined(&text).into_owned())
    }

    /// The end of the text: U+FFFD for a half that is still held.
    pub fn end(&mut self) -> Option<char> {
        self.half.take().map(|_| REPLACEMENT)
    }
}

/// The length in bytes of the character or escape at `at` of a JSON string. Of a character of several bytes, each byte
/// counts alone.
pub fn unit(json: &[u8], at: usize) -> usize {
    match (json[at], json.get(at + 1)) {
        (b'\\', Some(b'u')) => 6,
        (b'\\', _) => 2,
        _ => 1,
    }
}

fn rewritten(text: &str, alone: impl Fn(u16, &mut String)) -> Cow<'_, str> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let (json, mut whole, mut copied, mut at) = (text.as_bytes(), String::new(), 0, 0);
    while at < json.len() {
        let end = at + unit(json, at);
        let half = half(json, at);
        at = match half {
            None => end,
            Some(first) if self::half(json, end).is_some_and(|second| pair(first, second).is_some()) => end + 6,
            Some(half) => {
                whole.push_str(&text[copied..at]);
                alone(half, &mut whole);
                copied = end;
                end
            }
        };
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    whole.push_str(&text[copied..]);
    Cow::Owned(whole)
}

/// The half that the escape at `at` stands for, if it is one.
fn half(json: &[u8], at: usize) -> Option<u16> {
    let [b'\\', b'u', digits @ ..] = json.get(at..at + 6)? else { return None };
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok().filter(|code| (0xd800..=0xdfff).contains(code))
}

fn is_first(half: u16) -> bool {
    half < 0xdc00
}

/// The character of two halves.
fn pair(first: u16, second: u16) -> Option<char> {
    char::decode_utf16([first, second]).next()?.ok()
}

fn mark(half: u16) -> [char; 3] {
    let digit = |five: u16| char::from_u32(u32::from(DIGITS + (five & 31))).unwrap_or(REPLACEMENT);
    [if is_first(half) { FIRST } else { SECOND }, digit(half >> 5), digit(half)]
}

fn has_mark(text: &str) -> bool {
    // Searches for strings are faster than those for characters.
    text.contains("\u{fffe}") || text.contains("\u{ffff}")
}

/// The half whose mark `text` begins with.
fn marked(text: &str) -> Option<u16> {
    let mut chars = text.chars();
    let base = match chars.next()? {
        FIRST => 0xd800,
        SECOND => 0xdc00,
        _ => return None,
    };
    let mut digit = || u16::try_from(u32::from(chars.next()?)).ok()?.checked_sub(DIGITS).filter(|five| *five < 32);
    Some(base + (digit()? << 5) + digit()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn halves_alone_wrong_bytes_and_a_byte_order_mark_do_not_fail_a_parse() {
        for (text, expected) in [
            (&br#"["a\ud83d","\ude00b","\uD83D\uDE00"]"#[..], json!(["a\u{fffd}", "\u{fffd}b", "😀"])),
            (br#"{"\ud83d":"\ud83d\ud83d\ude00\ude00"}"#, json!({ "\u{fffd}": "\u{fffd}😀\u{fffd}" })),
            (b"[\"a\xff\xfe\"]", json!(["a\u{fffd}\u{fffd}"])),
            (br#"["\ud83dx\\ud83d"]"#, json!(["\u{fffd}x\\ud83d"])),
            ("\u{feff}[1]".as_bytes(), json!([1])),
            ("[\"\u{feff}é\\ud800é\"]".as_bytes(), json!(["\u{feff}é\u{fffd}é"])),
        ] {
            let readable = readable_bytes(text);
            assert_eq!(serde_json::from_str::<Value>(&readable).unwrap(), expected, "{readable}");
            let part = readable_part(std::str::from_utf8(text).unwrap_or("[\"a\u{fffd}\u{fffd}\"]")).into_owned();
            assert_eq!(joined_value(serde_json::from_str(&part).unwrap()), expected, "{part}");
        }
        for text in [r#"["\ud8"#, r#"["\ud83"#, "\\u", "\\", "\\udé\\ud83"] {
            assert!(matches!(readable(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn no_copy_is_made_of_text_without_faults() {
        for text in [r#"["\ud83d\ude00 \u00e9 \\ud83d ok"]"#, r#"{"a":"é😀"}"#, "no JSON \\"] {
            assert!(matches!(readable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
        assert_eq!(joined("\u{ffff}\u{fdd0}"), "\u{ffff}\u{fdd0}", "no mark");
    }

    #[test]
    fn halves_of_two_parts_meet_and_the_others_are_replaced() {
        let parts = |list: &[&str]| -> (String, String) {
            let read = |part: &&str| serde_json::from_str::<String>(&readable_part(&format!("\"{part}\""))).unwrap();
            let texts: Vec<String> = list.iter().map(read).collect();
            let mut joiner = Joiner::default();
            let mut shown: String = texts.iter().map(|text| joiner.push(text).into_owned()).collect();
            shown.extend(joiner.end());
            (joined(&texts.concat()).into_owned(), shown)
        };
        for (list, expected) in [
            (&["a\\ud83d", "\\ude00b"][..], "a😀b"),
            (&["\\ud83d", "", "\\ude00"], "😀"),
            (&["\\ud83d", "\\ude00\\ud83d", "\\ude00"], "😀😀"),
            (&["a\\ud83d", "b"], "a\u{fffd}b"),
            (&["\\ud83d", "\\ud83d", "\\ude00"], "\u{fffd}😀"),
            (&["\\ude00", "\\ud83d"], "\u{fffd}\u{fffd}"),
            (&["\\ud800", "\\udc00", "\\udbff", "\\udfff"], "\u{10000}\u{10ffff}"),
        ] {
            assert_eq!(parts(list), (expected.to_owned(), expected.to_owned()), "{list:?}");
        }
    }

    proptest! {
        #[test]
        fn valid_json_stays_as_it_is(text in any::<String>(), ascii in any::<bool>()) {
            let json = match ascii {
                true => format!("\"{}\"", text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>()),
                false => json!([text, { text.as_str(): 1 }]).to_string(),
            };
            let json = json.trim_start_matches(BYTE_ORDER_MARK);
            prop_assert_eq!(&*readable(json), json);
            prop_assert_eq!(&*readable_part(json), json);
            prop_assert_eq!(&*joined(&text), &text);
        }

        #[test]
        fn any_bytes_are_text_and_no_parse_fails_for_a_half(units in proptest::collection::vec(0xd700_u16..0xe100, 0..12)) {
            let json = format!("\"{}\"", units.iter().map(|unit| format!("\\u{unit:04X}")).collect::<String>());
            let expected = String::from_utf16_lossy(&units);
            prop_assert_eq!(&serde_json::from_str::<String>(&readable_bytes(json.as_bytes())).unwrap(), &expected);
            for at in 0..=units.len() {
                let (mut joiner, mut shown) = (Joiner::default(), String::new());
                for part in [&units[..at], &units[at..]] {
                    let json = format!("\"{}\"", part.iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>());
                    shown += &joiner.push(&serde_json::from_str::<String>(&readable_part(&json)).unwrap());
                }
                shown.extend(joiner.end());
                prop_assert_eq!(&shown, &expected);
            }
        }

        #[test]
        fn any_bytes_become_text(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = readable_bytes(&bytes);
        }
    }
}
