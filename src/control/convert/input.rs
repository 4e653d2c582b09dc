//! Checks of what requests say, each with the field's name and what to do: nothing bad goes further than this.

use std::str::FromStr;
use std::time::Duration;

use ghost_domain::refusal::not_blank;
use ghost_domain::schedule::words::duration_text;
use ghost_domain::shared_state::{BEYOND_HINT, JsonText};
use ghost_domain::text::clip;
use ghost_domain::text::is_bidi;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Refusal, Timestamp};
use serde_json::{Value, json};

/// Rows of a page, unless the request says otherwise.
const PAGE: usize = 100;
/// Rows of a page, at most.
pub const PAGE_MAX: usize = 500;
/// Paths that go with one message.
const ATTACHMENTS_MAX: usize = 32;
/// Longest wait that a request may ask for.
const WAIT_MAX: Duration = Duration::from_secs(86_400);
/// The last instant that is taken for one: the end of the year 9999.
const LATEST_MS: i64 = 253_402_300_799_999;

/// A refusal of one field.
pub fn bad(field: &str, what: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("{field} {what}")).details(json!({ "field": field }))
}

fn of_field(field: &str, mut refusal: Refusal) -> Refusal {
    refusal.message = format!("{field}: {}", refusal.message);
    refusal.code = Code::InvalidArguments;
    refusal.details = Some(json!({ "field": field }));
    refusal
}

/// An id, an enumeration or a scope from its text form.
pub fn parsed<T: FromStr<Err = Refusal>>(field: &str, text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|refusal| of_field(field, refusal))
}

/// The same where the field may be absent.
pub fn parsed_if<T: FromStr<Err = Refusal>>(field: &str, text: Option<&str>) -> Result<Option<T>, Refusal> {
    text.map(|text| parsed(field, text)).transpose()
}

/// Many ids.
pub fn parsed_all<T: FromStr<Err = Refusal>>(field: &str, texts: &[String], most: usize) -> Result<Vec<T>, Refusal> {
    if texts.len() > most {
        return Err(bad(field, format!("has {} entries; at most {most} are taken", texts.len())).hint("name fewer"));
    }
    texts.iter().map(|text| parsed(field, text)).collect()
}

/// One line that people see: 1 to `most` characters, no control characters.
pub fn line(field: &str, text: &str, most: usize) -> Result<String, Refusal> {
    let text = text.trim();
    if text.is_empty() {
        return Err(bad(field, "is empty").hint("say something in it"));
    }
    if text.chars().any(char::is_control) {
        return Err(bad(field, "holds a control character").hint("give one line of plain text"));
    }
    if text.contains(is_bidi) {
        return Err(bad(field, "holds a character that turns the order in which it is shown")
            .hint("leave out U+202A to U+202E, U+2066 to U+2069, U+200E and U+200F"));
    }
    if text.chars().count() > most {
        return Err(too_long(field, format!("has more than {most} characters")).hint("make it shorter"));
    }
    Ok(text.to_owned())
}

/// A text of one field that is longer than it may be: the same code for every text, short or long.
fn too_long(field: &str, what: impl std::fmt::Display) -> Refusal {
    Refusal { code: Code::TooLarge, ..bad(field, what) }
}

/// The same where the field may be absent.
pub fn line_if(field: &str, text: Option<&str>, most: usize) -> Result<Option<String>, Refusal> {
    let or_none = |refusal: Refusal| match refusal.hint.as_deref() {
        Some(hint @ "say something in it") => {
            let hint = format!("{hint}, or leave it out");
            refusal.hint(hint)
        }
        _ => refusal,
    };
    text.map(|text| line(field, text, most).map_err(or_none)).transpose()
}

/// Text of several lines, at most `most` bytes, not blank. NUL is refused: no reader of it expects one.
pub fn prose(field: &str, text: &str, most: u32) -> Result<String, Refusal> {
    not_blank(field, text)?;
    prose_or_none(field, text, most)
}

/// The same, but it may be blank.
pub fn prose_or_none(field: &str, text: &str, most: u32) -> Result<String, Refusal> {
    if text.len() > most as usize {
        return Err(too_long(field, format!("has {} bytes; at most {most} are taken", text.len()))
            .hint("write the long part to a workspace file and name its path"));
    }
    let strange = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    if let Some(at) = text.find(strange) {
        return Err(bad(field, format!("holds a control character at byte {at}")).hint("send plain text"));
    }
    Ok(text.to_owned())
}

/// A JSON object of at most `most` bytes that names no key twice; blank is null.
pub fn object(field: &str, text: &str, most: u32) -> Result<Value, Refusal> {
    if text.len() > most as usize {
        return Err(too_long(field, format!("has {} bytes; at most {most} are taken", text.len()))
            .hint("make it shorter, or write a workspace file and name its path"));
    }
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    let example = "write an object that names each key once, such as {\"path\": \"notes.md\"}";
    match super::json::strict(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(bad(field, "is not a JSON object").hint(example)),
        Err(what) => Err(bad(field, what).hint(example)),
    }
}

/// Any JSON of at most `most` bytes whose objects name each key once, as it was written; a deletion is the word `null`,
/// never blank.
pub fn json(field: &str, text: &str, most: u32) -> Result<JsonText, Refusal> {
    if text.len() > most as usize {
        return Err(too_long(field, format!("has {} bytes; at most {most} are taken", text.len()))
            .hint("split it up, or write a workspace file and name its path"));
    }
    let hint = "text is written in quotes, such as \"calm\"; null deletes";
    // First, because of a number that is too great it has more to say.
    let kept = JsonText::parse(text).map_err(|refusal| match refusal.hint {
        Some(own) if own == BEYOND_HINT => bad(field, refusal.message).hint(own),
        _ => bad(field, refusal.message).hint(hint),
    })?;
    super::json::strict(text).map_err(|what| bad(field, what).hint(hint))?;
    Ok(kept)
}

/// One JSON text whose objects name each key once.
///
/// # Errors
/// What is wrong with it, in words.
pub fn strict_json(text: &str) -> Result<Value, String> {
    super::json::strict(text)
}

/// Workspace paths.
pub fn paths(field: &str, texts: &[String]) -> Result<Vec<String>, Refusal> {
    if texts.len() > ATTACHMENTS_MAX {
        let what = format!("names {} files; at most {ATTACHMENTS_MAX} are taken", texts.len());
        return Err(bad(field, what).hint("attach fewer, or name the others in the text"));
    }
    texts
        .iter()
        .map(|text| match WorkspacePath::parse(text, false) {
            Ok(path) => Ok(path.as_str().to_owned()),
            // What is wrong with a path has its own code here as in the tools.
            Err(refusal) => Err(Refusal { code: Code::PathDenied, ..of_field(field, refusal) }),
        })
        .collect()
}

/// An instant: not before 1970, not after 9999.
pub fn instant(field: &str, ms: Option<i64>) -> Result<Option<Timestamp>, Refusal> {
    match ms {
        None => Ok(None),
        Some(ms) if (0..=LATEST_MS).contains(&ms) => Ok(Some(Timestamp(ms))),
        Some(ms) => Err(bad(field, format!("is {ms}")).hint("give milliseconds since 1970-01-01, 0 or more")),
    }
}

/// A wait: 1 ms to a day.
pub fn wait(field: &str, ms: Option<u64>) -> Result<Option<Duration>, Refusal> {
    match ms.map(Duration::from_millis) {
        None => Ok(None),
        Some(wait) if !wait.is_zero() && wait <= WAIT_MAX => Ok(Some(wait)),
        Some(wait) => {
            Err(bad(field, format!("is {}", duration_text(wait))).hint("give 1 ms to a day, or leave it out"))
        }
    }
}

/// Rows of a page: 0, which is what a request has that names none, is the default, and more than [`PAGE_MAX`] is that (AIP-158).
/// Whether a page is the last one says its cursor and not its length.
#[must_use]
pub fn page(limit: u32) -> usize {
    match usize::try_from(limit).unwrap_or(usize::MAX) {
        0 => PAGE,
        limit => limit.min(PAGE_MAX),
    }
}

/// Asking for no rows in so many words, which an address can and a message cannot.
pub fn no_rows() -> Refusal {
    bad("limit", format!("is 0; a page has 1 to {PAGE_MAX} rows")).hint("leave it out for the default")
}

/// A place in a list that is ordered by time and id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The row's time.
    pub at: Timestamp,
    /// The row's id, as a number.
    pub id: u128,
}

impl Place {
    /// The text that stands for this place, to be sealed into a cursor.
    #[must_use]
    pub fn cursor(self) -> String {
        format!("{}.{:032x}", self.at.0, self.id)
    }
}

/// A place as [`Place::cursor`] writes it; an empty text is the beginning.
pub fn place(cursor: &str) -> Result<Option<Place>, Refusal> {
    if cursor.is_empty() {
        return Ok(None);
    }
    let place = cursor
        .split_once('.')
        .and_then(|(at, id)| Some(Place { at: Timestamp(at.parse().ok()?), id: u128::from_str_radix(id, 16).ok()? }));
    place.map(Some).ok_or_else(|| bad_cursor(cursor))
}

/// What stands in a cursor of `list` for the place `inner`; an empty place is the end and has none.
///
/// The seal tells a cursor of another list, or one that was made up, from one that was given: such a cursor would most
/// often be a place past the last row, and an empty page would be taken for the end of the list. It keeps no secret.
#[must_use]
pub fn seal(list: &str, inner: &str) -> String {
    if inner.is_empty() { String::new() } else { format!("{inner}~{:08x}", checksum(list, inner)) }
}

/// The place in a cursor of `list`; an empty cursor is the beginning.
///
/// # Errors
/// When it is no cursor that this list gave.
pub fn unseal<'c>(list: &str, cursor: &'c str) -> Result<&'c str, Refusal> {
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

/// A cursor that this daemon did not give.
pub fn bad_cursor(cursor: &str) -> Refusal {
    bad("cursor", format!("`{}` is not one of this list", clip(cursor, 80)))
        .hint("send the next_cursor of the page before, or none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ghost_domain::AgentId;

    #[test]
    fn what_is_wrong_is_said_with_its_field() {
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
    fn cursors_read_back() {
        let at = Place { at: Timestamp(-5), id: u128::MAX };
        assert_eq!(place(&at.cursor()).unwrap(), Some(at));
        assert_eq!(place("").unwrap(), None);
        for bad in [".", "1", "1.", "1.x", "x.1", "é.1"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cursor_is_taken_only_where_it_was_given() {
        assert_eq!(unseal("agents", &seal("agents", "ada")).unwrap(), "ada");
        assert_eq!((unseal("agents", "").unwrap(), seal("agents", "").as_str()), ("", ""));
        let (other, made_up) = (seal("state", "ada"), seal("agents", "ada").replace("ada", "adb"));
        for bad in ["ada", "~", "ada~", "ada~00000000", other.as_str(), made_up.as_str(), "~00000000"] {
            let refusal = unseal("agents", bad).unwrap_err();
            assert_eq!((refusal.code, refusal.hint.is_some()), (Code::InvalidArguments, true), "{bad}");
        }
    }

    #[test]
    fn a_page_is_as_long_as_it_was_asked_to_be_within_its_bounds() {
        assert_eq!([0, 1, 500, 501, u32::MAX].map(page), [PAGE, 1, PAGE_MAX, PAGE_MAX, PAGE_MAX]);
    }
}
