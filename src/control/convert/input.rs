//! Checks of what requests say, each with the field's name and what to do: nothing bad goes further than this.

use std::str::FromStr;
use std::time::Duration;

use ghost_domain::text::clip;
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
        return Err(bad(field, format!("has {} entries; at most {most} are taken", texts.len())));
    }
    texts.iter().map(|text| parsed(field, text)).collect()
}

/// One line that people see: 1 to `most` characters, no control characters.
pub fn line(field: &str, text: &str, most: usize) -> Result<String, Refusal> {
    let text = text.trim();
    if text.is_empty() {
        return Err(bad(field, "is empty").hint(format!("say something in {field}, or leave it out")));
    }
    if text.chars().any(char::is_control) {
        return Err(bad(field, "holds a control character").hint("give one line of plain text"));
    }
    if text.chars().count() > most {
        return Err(bad(field, format!("has more than {most} characters")).hint("make it shorter"));
    }
    Ok(text.to_owned())
}

/// The same where the field may be absent.
pub fn line_if(field: &str, text: Option<&str>, most: usize) -> Result<Option<String>, Refusal> {
    text.map(|text| line(field, text, most)).transpose()
}

/// Text of several lines, at most `most` bytes, not blank. NUL is refused: no reader of it expects one.
pub fn prose(field: &str, text: &str, most: u32) -> Result<String, Refusal> {
    if text.trim().is_empty() {
        return Err(bad(field, "is empty").hint(format!("say something in {field}")));
    }
    prose_or_none(field, text, most)
}

/// The same, but it may be blank.
pub fn prose_or_none(field: &str, text: &str, most: u32) -> Result<String, Refusal> {
    if text.len() > most as usize {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("{field} has {} bytes; at most {most} are taken", text.len()),
        )
        .hint("write the long part to a workspace file and name its path")
        .details(json!({ "field": field })));
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
        return Err(Refusal::new(
            Code::TooLarge,
            format!("{field} has {} bytes; at most {most} are taken", text.len()),
        )
        .details(json!({ "field": field })));
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

/// Any JSON of at most `most` bytes whose objects name each key once; a deletion is the word `null`, never blank.
pub fn json(field: &str, text: &str, most: u32) -> Result<Value, Refusal> {
    if text.len() > most as usize {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("{field} has {} bytes; at most {most} are taken", text.len()),
        )
        .hint("split it up, or write a workspace file and name its path")
        .details(json!({ "field": field })));
    }
    super::json::strict(text)
        .map_err(|what| bad(field, what).hint("text is written in quotes, such as \"calm\"; null deletes"))
}

/// Workspace paths.
pub fn paths(field: &str, texts: &[String]) -> Result<Vec<String>, Refusal> {
    if texts.len() > ATTACHMENTS_MAX {
        return Err(bad(field, format!("names {} files; at most {ATTACHMENTS_MAX} are taken", texts.len())));
    }
    texts
        .iter()
        .map(|text| match WorkspacePath::parse(text, false) {
            Ok(path) => Ok(path.as_str().to_owned()),
            Err(refusal) => Err(of_field(field, refusal)),
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
            Err(bad(field, format!("is {} ms", wait.as_millis())).hint("give 1 to 86400000 ms, or leave it out"))
        }
    }
}

/// Rows of a page: 0 is the default, and no page is larger than [`PAGE_MAX`].
#[must_use]
pub fn page(limit: u32) -> usize {
    match usize::try_from(limit).unwrap_or(PAGE_MAX) {
        0 => PAGE,
        limit => limit.min(PAGE_MAX),
    }
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
    /// The cursor that stands for this place.
    #[must_use]
    pub fn cursor(self) -> String {
        format!("{}.{:032x}", self.at.0, self.id)
    }
}

/// A place from its cursor; an empty one is the beginning.
pub fn place(cursor: &str) -> Result<Option<Place>, Refusal> {
    if cursor.is_empty() {
        return Ok(None);
    }
    let place = cursor
        .split_once('.')
        .and_then(|(at, id)| Some(Place { at: Timestamp(at.parse().ok()?), id: u128::from_str_radix(id, 16).ok()? }));
    place.map(Some).ok_or_else(|| bad_cursor(cursor))
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
}
