//! Checks the fields of requests. Every refusal names the field and says what to do. JSON with repeated keys is refused:
//! most parsers silently keep the last value of a repeated key, so a part of the request would be lost.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ghost_domain::refusal::not_blank;
use ghost_domain::schedule::words::duration_text;
use ghost_domain::shared_state::{BEYOND_HINT, JsonText, why_unread};
use ghost_domain::text::{clip, is_bidi};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Refusal, Timestamp};
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use uuid::Uuid;

/// Default number of rows in a page.
const PAGE: usize = 100;
/// Largest number of rows in a page.
pub(crate) const PAGE_MAX: usize = 500;
/// Largest number of attachments of one message.
const ATTACHMENTS_MAX: usize = 32;
/// Longest timeout that a request may ask for: one day.
const WAIT_MAX: Duration = Duration::from_secs(86_400);
/// The latest accepted instant: the end of the year 9999.
const LATEST_MS: i64 = 253_402_300_799_999;

/// A refusal of one field. The message is `field` followed by `what`.
pub(crate) fn bad(field: &str, what: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("{field} {what}")).details(json!({ "field": field }))
}

fn for_field(field: &str, mut refusal: Refusal) -> Refusal {
    refusal.message = format!("{field}: {}", refusal.message);
    refusal.code = Code::InvalidArguments;
    refusal.details = Some(json!({ "field": field }));
    refusal
}

/// Parses an id, an enumeration value or a scope.
pub(crate) fn parsed<T: FromStr<Err = Refusal>>(field: &str, text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|refusal| for_field(field, refusal))
}

/// The same for an optional field.
pub(crate) fn parsed_if<T: FromStr<Err = Refusal>>(field: &str, text: Option<&str>) -> Result<Option<T>, Refusal> {
    text.map(|text| parsed(field, text)).transpose()
}

/// Parses a list of at most `max` ids.
pub(crate) fn parsed_all<T: FromStr<Err = Refusal>>(
    field: &str,
    texts: &[String],
    max: usize,
) -> Result<Vec<T>, Refusal> {
    if texts.len() > max {
        return Err(bad(field, format!("has {} entries; the maximum is {max}", texts.len())).hint("name fewer"));
    }
    texts.iter().map(|text| parsed(field, text)).collect()
}

/// One line of display text: 1 to `max` characters, without control and text-direction characters.
pub(crate) fn line(field: &str, text: &str, max: usize) -> Result<String, Refusal> {
    let text = text.trim();
    if text.is_empty() {
        return Err(bad(field, "is empty").hint("write some text"));
    }
    if text.chars().any(char::is_control) {
        return Err(bad(field, "contains a control character").hint("give one line of plain text"));
    }
    if text.contains(is_bidi) {
        return Err(bad(field, "contains a character that changes the text direction")
            .hint("leave out U+202A to U+202E, U+2066 to U+2069, U+200E and U+200F"));
    }
    if text.chars().count() > max {
        return Err(too_long(field, format!("has more than {max} characters")).hint("make it shorter"));
    }
    Ok(text.to_owned())
}

/// The refusal for a text that is too long. All texts get the same code.
fn too_long(field: &str, what: impl std::fmt::Display) -> Refusal {
    Refusal { code: Code::TooLarge, ..bad(field, what) }
}

/// The same for an optional field.
pub(crate) fn line_if(field: &str, text: Option<&str>, max: usize) -> Result<Option<String>, Refusal> {
    let or_none = |refusal: Refusal| match refusal.hint.as_deref() {
        Some(hint @ "write some text") => {
            let hint = format!("{hint}, or leave it out");
            refusal.hint(hint)
        }
        _ => refusal,
    };
    text.map(|text| line(field, text, max).map_err(or_none)).transpose()
}

/// Text of several lines, at most `max` bytes, not blank. NUL is refused, because readers do not
/// expect it.
pub(crate) fn prose(field: &str, text: &str, max: u32) -> Result<String, Refusal> {
    not_blank(field, text)?;
    prose_or_none(field, text, max)
}

/// The same, but it may be blank.
pub(crate) fn prose_or_none(field: &str, text: &str, max: u32) -> Result<String, Refusal> {
    if text.len() > max as usize {
        return Err(too_long(field, format!("has {} bytes; the maximum is {max}", text.len()))
            .hint("write the long part to a workspace file and name its path"));
    }
    let strange = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    if let Some(at) = text.find(strange) {
        return Err(bad(field, format!("contains a control character at byte {at}")).hint("send plain text"));
    }
    Ok(text.to_owned())
}

/// A JSON object of at most `max` bytes without repeated keys. Blank text is null.
pub(crate) fn object(field: &str, text: &str, max: u32) -> Result<Value, Refusal> {
    if text.len() > max as usize {
        return Err(too_long(field, format!("has {} bytes; the maximum is {max}", text.len()))
            .hint("make it shorter, or write a workspace file and name its path"));
    }
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    let example = "write an object that names each key once, such as {\"path\": \"notes.md\"}";
    match strict_json(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(bad(field, "is not a JSON object").hint(example)),
        Err(what) => Err(bad(field, what).hint(example)),
    }
}

/// Any JSON of at most `max` bytes without repeated keys, exactly as written. The literal `null`
/// deletes; blank text is refused.
pub(crate) fn json(field: &str, text: &str, max: u32) -> Result<JsonText, Refusal> {
    if text.len() > max as usize {
        return Err(too_long(field, format!("has {} bytes; the maximum is {max}", text.len()))
            .hint("split it up, or write a workspace file and name its path"));
    }
    let hint = "text is written in quotes, such as \"calm\"; null deletes";
    // Checked first, because its refusal explains more about a number that is too large.
    let kept = JsonText::parse(text).map_err(|refusal| match refusal.hint {
        Some(own) if own == BEYOND_HINT => bad(field, refusal.message).hint(own),
        _ => bad(field, refusal.message).hint(hint),
    })?;
    strict_json(text).map_err(|what| bad(field, what).hint(hint))?;
    Ok(kept)
}

/// Checks attached workspace paths.
pub(crate) fn paths(field: &str, texts: &[String]) -> Result<Vec<String>, Refusal> {
    if texts.len() > ATTACHMENTS_MAX {
        let what = format!("names {} files; the maximum is {ATTACHMENTS_MAX}", texts.len());
        return Err(bad(field, what).hint("attach fewer, or name the others in the text"));
    }
    texts
        .iter()
        .map(|text| match WorkspacePath::parse(text, false) {
            Ok(path) => Ok(path.as_str().to_owned()),
            // An invalid path has its own refusal code here, as in the tools.
            Err(refusal) => Err(Refusal { code: Code::PathDenied, ..for_field(field, refusal) }),
        })
        .collect()
}

/// An instant between 1970 and 9999, in milliseconds.
pub(crate) fn instant(field: &str, ms: Option<i64>) -> Result<Option<Timestamp>, Refusal> {
    match ms {
        None => Ok(None),
        Some(ms) if (0..=LATEST_MS).contains(&ms) => Ok(Some(Timestamp(ms))),
        Some(ms) => Err(bad(field, format!("is {ms}")).hint("give milliseconds since 1970-01-01, 0 or more")),
    }
}

/// A timeout from 1 ms to one day.
pub(crate) fn wait(field: &str, ms: Option<u64>) -> Result<Option<Duration>, Refusal> {
    match ms.map(Duration::from_millis) {
        None => Ok(None),
        Some(wait) if !wait.is_zero() && wait <= WAIT_MAX => Ok(Some(wait)),
        Some(wait) => {
            Err(bad(field, format!("is {}", duration_text(wait))).hint("give 1 ms to a day, or leave it out"))
        }
    }
}

/// Number of rows in a page. 0, the value of an unset field, means the default; larger values than
/// [`PAGE_MAX`] mean [`PAGE_MAX`] (AIP-158). The cursor, not the length, tells whether a page is the
/// length.
pub(crate) fn page(limit: u32) -> usize {
    match usize::try_from(limit).unwrap_or(usize::MAX) {
        0 => PAGE,
        limit => limit.min(PAGE_MAX),
    }
}

/// The refusal of an explicit limit of 0. It is possible in a URL, but not in a message.
pub(crate) fn no_rows() -> Refusal {
    bad("limit", format!("is 0; a page has 1 to {PAGE_MAX} rows")).hint("leave it out for the default")
}

/// A position in a list that is ordered by time and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// Time of the row.
    pub at: Timestamp,
    /// Id of the row.
    pub id: Uuid,
}

impl Position {
    /// The position as text, to be sealed into a cursor.
    pub(crate) fn cursor(self) -> String {
        format!("{}.{}", self.at.0, self.id.simple())
    }
}

/// Parses [`Position::cursor`]. An empty text is the beginning.
pub(crate) fn position(cursor: &str) -> Result<Option<Position>, Refusal> {
    if cursor.is_empty() {
        return Ok(None);
    }
    let position = cursor.split_once('.').and_then(|(at, id)| {
        Some(Position { at: Timestamp(at.parse().ok()?), id: Uuid::from_u128(u128::from_str_radix(id, 16).ok()?) })
    });
    position.map(Some).ok_or_else(|| bad_cursor(cursor))
}

/// The key in a cursor of `list` that is ordered by it. `None` is the beginning.
pub(crate) fn after<T: std::str::FromStr>(list: &str, cursor: &str) -> Result<Option<T>, Refusal> {
    match unseal(list, cursor)? {
        "" => Ok(None),
        key => key.parse().map(Some).map_err(|_| bad_cursor(cursor)),
    }
}

/// The position in a cursor of `list`.
pub(crate) fn position_of(list: &str, cursor: &str) -> Result<Option<Position>, Refusal> {
    position(unseal(list, cursor)?)
}

/// The cursor of `list` for the position `inner`. An empty position is the end and has no cursor.
///
/// The checksum detects a cursor of another list and one that was made up. Such a cursor would mostly
/// point past the last row, and the empty page would look like the end of the list. The checksum is not
/// a secret.
pub(crate) fn seal(list: &str, inner: &str) -> String {
    if inner.is_empty() { String::new() } else { format!("{inner}~{:08x}", checksum(list, inner)) }
}

/// The position in a cursor of `list`. An empty cursor is the beginning.
///
/// # Errors
/// If this list did not issue the cursor.
pub(crate) fn unseal<'c>(list: &str, cursor: &'c str) -> Result<&'c str, Refusal> {
    if cursor.is_empty() {
        return Ok("");
    }
    match cursor.rsplit_once('~') {
        Some((inner, _)) if seal(list, inner) == cursor => Ok(inner),
        _ => Err(bad_cursor(cursor)),
    }
}

/// FNV-1a, 32 bits.
fn checksum(list: &str, inner: &str) -> u32 {
    let bytes = list.bytes().chain([b'/']).chain(inner.bytes());
    bytes.fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The refusal for a cursor that this daemon did not issue.
pub(crate) fn bad_cursor(cursor: &str) -> Refusal {
    bad("cursor", format!("`{}` is not a cursor of this list", clip(cursor, 80)))
        .hint("send the next_cursor of the previous page, or none")
}

/// Parses one JSON text.
///
/// # Errors
/// If the text is not JSON, contains a number that cannot be stored, or repeats a key in an object. The
/// message says which and where.
pub(crate) fn strict_json(text: &str) -> Result<Value, String> {
    serde_json::from_str::<UniqueKeys>(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => error.to_string(),
        _ => why_unread(&error),
    })?;
    serde_json::from_str(text).map_err(|error| why_unread(&error))
}

/// Accepts any JSON whose objects have no repeated keys. Keeps no values.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueKeysVisitor)
    }
}

struct UniqueKeysVisitor;

macro_rules! scalars {
    ($($visit:ident: $of:ty),*) => {
        $(fn $visit<E>(self, _: $of) -> Result<UniqueKeys, E> {
            Ok(UniqueKeys)
        })*
    };
}

impl<'de> Visitor<'de> for UniqueKeysVisitor {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E>(self) -> Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<UniqueKeys, A::Error> {
        while items.next_element::<UniqueKeys>()?.is_some() {}
        Ok(UniqueKeys)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<UniqueKeys, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if seen.contains(&key) {
                fields.next_value::<IgnoredAny>()?;
                return Err(A::Error::custom(format_args!("gives the key `{}` twice", clip(&key, 80))));
            }
            fields.next_value::<UniqueKeys>()?;
            seen.insert(key);
        }
        Ok(UniqueKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ghost_domain::AgentId;

    #[test]
    fn refusals_name_their_field() {
        let refusal = parsed::<AgentId>("owner", "../x").unwrap_err();
        assert_eq!(refusal.details, Some(json!({ "field": "owner" })));
        assert!(refusal.message.starts_with("owner: ") && refusal.hint.is_some());
        assert_eq!(line("name", "elevenchars", 10).unwrap_err().code, Code::TooLarge);
        for (text, fits) in [("a b", true), ("", false), ("a\nb", false), ("a\u{7}", false)] {
            assert_eq!(line("name", text, 10).is_ok(), fits, "{text:?}");
        }
        assert!(prose("body", "a\nb\tc", 10).is_ok());
        assert_eq!(prose("body", &"x".repeat(11), 10).unwrap_err().code, Code::TooLarge);
        assert!(prose("body", "a\0", 10).is_err() && prose("body", " \n", 10).is_err());
        assert!(object("arguments_json", "[1]", 10).is_err() && object("arguments_json", "{", 10).is_err());
        assert!(instant("due_at_ms", Some(-1)).is_err() && wait("timeout_ms", Some(0)).is_err());
    }

    #[test]
    fn a_position_can_be_read_from_its_cursor() {
        let at = Position { at: Timestamp(-5), id: Uuid::max() };
        assert_eq!(position(&at.cursor()).unwrap(), Some(at));
        assert_eq!(position("").unwrap(), None);
        for bad in [".", "1", "1.", "1.x", "x.1", "é.1"] {
            assert!(position(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cursor_is_accepted_only_by_its_own_list() {
        assert_eq!(unseal("agents", &seal("agents", "ada")).unwrap(), "ada");
        assert_eq!((unseal("agents", "").unwrap(), seal("agents", "").as_str()), ("", ""));
        let (other, made_up) = (seal("state", "ada"), seal("agents", "ada").replace("ada", "adb"));
        for bad in ["ada", "~", "ada~", "ada~00000000", other.as_str(), made_up.as_str(), "~00000000"] {
            let refusal = unseal("agents", bad).unwrap_err();
            assert_eq!((refusal.code, refusal.hint.is_some()), (Code::InvalidArguments, true), "{bad}");
        }
    }

    #[test]
    fn a_page_limit_is_clamped() {
        assert_eq!([0, 1, 500, 501, u32::MAX].map(page), [PAGE, 1, PAGE_MAX, PAGE_MAX, PAGE_MAX]);
    }
}

#[cfg(test)]
mod json_tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_repeated_key_is_reported_at_any_depth() {
        for text in
            [r#"{"path":"a","path":"b"}"#, r#"{"x":[{"path":1,"y":2,"path":1}]}"#, r#"{"p\u0061th":1,"path":2}"#]
        {
            let message = strict_json(text).unwrap_err();
            assert!(message.contains("`path`") && message.contains("line 1"), "{message}");
        }
        assert_eq!(strict_json(r#"{"a":{"x":1},"b":{"x":1}}"#).unwrap(), json!({ "a": { "x": 1 }, "b": { "x": 1 } }));
        assert!(strict_json("{").is_err());
        assert!(strict_json(&"[".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn json_without_repeated_keys_parses_as_usual(text in r#"[\[\]{}",:0-9a-z.eE+-]{0,40}"#) {
            let lenient: Result<Value, _> = serde_json::from_str(&text);
            match strict_json(&text) {
                Ok(value) => prop_assert_eq!(value, lenient.unwrap()),
                Err(message) => prop_assert!(lenient.is_err() || message.contains("twice"), "{message}"),
            }
        }
    }
}
