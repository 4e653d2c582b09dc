//! Shared state of the agents: JSON values with versions, by dotted key.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::party::Party;
use crate::refusal::{Code, Refusal, refusal};
use crate::time::Timestamp;

/// One value. If a key is deleted and set again, its version continues above all versions of
/// deleted keys. So no reader mistakes a new value for an old one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateEntry {
    /// Key of the value; see [`check_key`].
    pub key: String,
    /// The value.
    pub value: JsonText,
    /// Version. It rises by one with each write. The first is 1 if no key was ever deleted.
    pub version: i64,
    /// Party that wrote the value.
    pub writer: Party,
    /// When the value was written.
    pub updated_at: Timestamp,
}

/// A JSON value as text, as it was written, without white space around it. It is text because a
/// 64-bit number would lose digits: `12345678901234567890.123` would become another number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JsonText(String);

impl JsonText {
    /// Checks that `text` is JSON and keeps it.
    ///
    /// # Errors
    /// `InvalidArguments` if it is not JSON, or contains a number out of the range of a double,
    /// such as `1e999`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        match serde_json::from_str::<Value>(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(error) => Err(Refusal::new(Code::InvalidArguments, why_unread(&error)).hint(match is_beyond(&error) {
                true => BEYOND_HINT,
                false => "write a JSON value, for example \"calm\" or {\"n\": 2}",
            })),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The parsed value. Its numbers have 64 bits; see [`JsonText::is_exact`].
    pub fn value(&self) -> Value {
        // `parse` has checked the text.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.0 == "null"
    }

    /// Whether [`JsonText::value`] has all digits of all numbers. That is so for whole numbers of
    /// 64 bits, and for other numbers of up to 15 digits that are not too near to 0 (`1e-400` is).
    pub fn is_exact(&self) -> bool {
        let mut rest = self.0.as_str();
        while let Some(start) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
            rest = &rest[start..];
            let end = if rest.starts_with('"') { end_of_string(rest) } else { end_of_number(rest) };
            let (token, after) = rest.split_at(end);
            if !token.starts_with('"') && !fits_64_bits(token) {
                return false;
            }
            rest = after;
        }
        true
    }
}

/// Hint for a number that is out of range.
pub const BEYOND_HINT: &str =
    "numbers must be between about -1.8e308 and 1.8e308; write a greater one as text, in quotes";

/// Why a text could not be parsed: it is not JSON, or it contains a number out of range.
pub fn why_unread(error: &serde_json::Error) -> String {
    match is_beyond(error) {
        true => format!("has a number out of range, at line {} column {}", error.line(), error.column()),
        false => format!("is not JSON: {error}"),
    }
}

/// Whether parsing failed only because a number is out of range.
pub fn is_beyond(error: &serde_json::Error) -> bool {
    // The parser has no error code for this. A test checks that its text stays the same.
    error.to_string().starts_with("number out of range")
}

/// Length in bytes of the JSON string at the start of `text`.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length in bytes of the JSON number at the start of `text`.
fn end_of_number(text: &str) -> usize {
    text.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(text.len())
}

/// Whether a 64-bit integer or a double keeps all digits of `number`.
fn fits_64_bits(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    let digits = number.split(['e', 'E']).next().unwrap_or_default().replace(['-', '.'], "");
    let digits = digits.trim_matches('0');
    // A double keeps 15 digits unless it is subnormal.
    digits.is_empty() || (digits.len() <= 15 && number.parse::<f64>().is_ok_and(f64::is_normal))
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        Self(value.to_string())
    }
}

impl From<JsonText> for String {
    fn from(text: JsonText) -> Self {
        text.0
    }
}

impl TryFrom<String> for JsonText {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        Self::parse(&text)
    }
}

impl std::fmt::Display for JsonText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks a key: 1 to 128 characters, in parts of `a-z`, `A-Z`, `0-9`, `_`, `-`, joined by single
/// dots.
///
/// # Errors
/// `InvalidArguments` if it is not a key.
pub fn check_key(key: &str) -> Result<(), Refusal> {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if key.len() <= 128 && key.split('.').all(part) {
        return Ok(());
    }
    let shown = crate::text::one_line(&crate::text::clip(key, 80));
    Err(refusal!(InvalidArguments, "`{shown}` is not a state key")
        .hint("use 1 to 128 characters: parts of letters, digits, '_' and '-', joined by single dots"))
}

/// Checks a prefix of keys. The empty prefix matches all keys.
///
/// # Errors
/// `InvalidArguments` if no key can begin with it.
pub fn check_prefix(prefix: &str) -> Result<(), Refusal> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if prefix.len() <= 128 && prefix.bytes().all(allowed) {
        return Ok(());
    }
    let shown = crate::text::one_line(&crate::text::clip(prefix, 80));
    Err(refusal!(InvalidArguments, "no state key begins with `{shown}`")
        .hint("use letters, digits, '_', '-' and single dots, for example plan."))
}

/// Whether a key is under `system`, which agents may only read.
pub fn is_system(key: &str) -> bool {
    key == "system" || key.starts_with("system.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn json_text_keeps_all_digits_of_a_number() {
        for text in ["12345678901234567890.123", "[-0.10, 1E+2]", "{\"a\": 340282366920938463463374607431768211456}"] {
            let kept = JsonText::parse(&format!("\n {text} ")).unwrap();
            assert_eq!(kept.as_str(), text);
            let stored = serde_json::to_string(&kept).unwrap();
            assert_eq!(serde_json::from_str::<JsonText>(&stored).unwrap(), kept);
        }
        for bad in ["", "{", "1 2", "nul", "1e999", "NaN"] {
            assert!(JsonText::parse(bad).is_err(), "{bad}");
        }
        for (text, exact) in [
            ("18446744073709551615", true),
            ("18446744073709551616", false),
            ("9007199254740993", true),
            ("0.1", true),
            ("-12345678901234.5", true),
            ("1234567890123456.5", false),
            ("100000000000000000000000", true),
            ("0.000e-999", true),
            ("2.2250738585073e-308", true),
            ("2.2250738585072e-308", false),
            ("[5e-324]", false),
            ("-1e-400", false),
            ("[1, {\"x\": 12345678901234567890.123}]", false),
            ("\"12345678901234567890.123 \\\" 12345678901234567890.123\"", true),
        ] {
            assert_eq!(JsonText::parse(text).unwrap().is_exact(), exact, "{text}");
        }
    }

    #[test]
    fn a_number_out_of_range_and_invalid_json_are_refused() {
        for beyond in ["1e400", "-1e400", "[1, {\"n\": 1e999999999999999999999}]", &"9".repeat(400), "1.5e309"] {
            let refusal = JsonText::parse(beyond).unwrap_err();
            assert!(refusal.message.contains("line 1 column "), "{refusal}");
            assert!(refusal.hint.is_some(), "{beyond}");
        }
        for none in ["1e", "{1e400", "--1"] {
            assert_eq!(JsonText::parse(none).unwrap_err().code, Code::InvalidArguments, "{none}");
        }
        // A long number is not out of range; all its digits are kept.
        for kept in [&"9".repeat(300), &format!("0.{}", "1".repeat(5_000)), "1e-400", "0e999999999999999999999"] {
            assert_eq!(JsonText::parse(kept).unwrap().as_str(), kept);
        }
    }

    proptest! {
        #[test]
        fn an_exact_number_parses_to_the_same_double(whole in any::<i64>(), cents in 0..10_000_u32) {
            for text in [whole.to_string(), format!("{}.{cents:04}", whole % 10_000_000_000)] {
                let kept = JsonText::parse(&text).unwrap();
                prop_assert!(kept.is_exact());
                let read = kept.value().as_f64().unwrap();
                prop_assert_eq!(read, text.parse::<f64>().unwrap());
            }
        }

        #[test]
        fn no_json_causes_a_panic(text in "[\\[\\]{}\",:0-9a-z.eE+\\\\-]{0,40}") {
            if let Ok(kept) = JsonText::parse(&text) {
                let _ = (kept.is_exact(), kept.value());
            }
        }
    }

    // covers: STATE-02, STATE-04
    #[test]
    fn keys_are_dotted_parts() {
        for good in ["a", "plan.step-1.owner", "A_b.0"] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        let long = "x".repeat(129);
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\nb", "é", long.as_str()] {
            assert!(check_key(bad).is_err(), "{bad:?}");
        }
        assert!(check_prefix("").is_ok() && check_prefix("plan.").is_ok() && check_prefix("pl").is_ok());
        assert!(check_prefix("a b").is_err() && check_prefix(&long).is_err());
        assert!(is_system("system.load") && is_system("system") && !is_system("systems.x"));
    }
}
