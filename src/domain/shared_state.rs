//! Shared state: versioned JSON values by dotted key (STATE-01..04).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::party::Party;
use crate::refusal::{Code, Refusal};
use crate::time::Timestamp;

/// A value. A key that is deleted and set again goes on above every version that a deleted key had, so that nobody takes
/// a new value for the one that it has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateEntry {
    /// Its key; see [`check_key`].
    pub key: String,
    /// The value.
    pub value: JsonText,
    /// Rises by one with every write, from 1 as long as no key was ever deleted.
    pub version: i64,
    /// Who wrote it.
    pub writer: Party,
    /// When.
    pub updated_at: Timestamp,
}

/// A JSON value as it was written, without the white space around it. Kept as text, because reading a number into the
/// usual 64 bits and writing it again loses digits: `12345678901234567890.123` would come back as another number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JsonText(String);

impl JsonText {
    /// Takes a text that is JSON.
    ///
    /// # Errors
    /// `invalid_arguments` when it is none, or has a number that no double is near to, such as `1e999`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        match serde_json::from_str::<Value>(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(error) => Err(Refusal::new(Code::InvalidArguments, why_unread(&error)).hint(match is_beyond(&error) {
                true => BEYOND_HINT,
                false => "write a JSON value, such as \"calm\" or {\"n\": 2}",
            })),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What it says, as far as 64 bits hold its numbers; see [`JsonText::is_exact`].
    #[must_use]
    pub fn value(&self) -> Value {
        // It was read before, so it can be read now.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.0 == "null"
    }

    /// Whether [`JsonText::value`] has every digit of its numbers: whole numbers that fit 64 bits, and others of up to 15
    /// digits that are not so near to 0 that a double loses some (`1e-400`).
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let mut rest = self.0.as_str();
        while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
            rest = &rest[at..];
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

/// What to do about a number that is beyond what is kept.
pub const BEYOND_HINT: &str =
    "numbers are kept up to about 1.8e308 either side of 0; write a greater one as text, in quotes";

/// Why a text could not be read as JSON: it is none, or it has a number that no double is near to.
#[must_use]
pub fn why_unread(error: &serde_json::Error) -> String {
    match is_beyond(error) {
        true => format!("has a number beyond what is kept, at line {} column {}", error.line(), error.column()),
        false => format!("is not JSON: {error}"),
    }
}

/// Whether a text was not read for a number alone that is too great.
#[must_use]
pub fn is_beyond(error: &serde_json::Error) -> bool {
    // The reader tells its errors apart in words only; a test holds it to these.
    error.to_string().starts_with("number out of range")
}

/// Bytes of the string that a JSON text begins with.
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

/// Bytes of the number that a JSON text begins with.
fn end_of_number(text: &str) -> usize {
    text.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(text.len())
}

fn fits_64_bits(number: &str) -> bool {
    if number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok() {
        return true;
    }
    let digits = number.split(['e', 'E']).next().unwrap_or_default().replace(['-', '.'], "");
    let digits = digits.trim_matches('0');
    // A double keeps any 15 digits, wherever the point is, unless it is subnormal.
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

/// Whether a text is a key: 1 to 128 characters in parts of `a-z`, `A-Z`, `0-9`, `_`, `-`, joined by single dots (STATE-02).
pub fn check_key(key: &str) -> Result<(), Refusal> {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if key.len() <= 128 && key.split('.').all(part) {
        return Ok(());
    }
    let shown = crate::text::one_line(&crate::text::clip(key, 80));
    Err(Refusal::new(Code::InvalidArguments, format!("`{shown}` is not a state key"))
        .hint("use 1 to 128 characters: parts of letters, digits, '_' and '-', joined by single dots"))
}

/// Whether a text can be the beginning of keys; the empty one is the beginning of all.
pub fn check_prefix(prefix: &str) -> Result<(), Refusal> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if prefix.len() <= 128 && prefix.bytes().all(fits) {
        return Ok(());
    }
    let shown = crate::text::one_line(&crate::text::clip(prefix, 80));
    Err(Refusal::new(Code::InvalidArguments, format!("no state key begins with `{shown}`"))
        .hint("use letters, digits, '_', '-' and single dots, such as plan."))
}

/// Whether a key is read-only to agents (STATE-04).
#[must_use]
pub fn is_system(key: &str) -> bool {
    key == "system" || key.starts_with("system.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_keeps_all_its_digits() {
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
    fn a_number_beyond_what_is_kept_is_told_from_what_is_no_json() {
        for beyond in ["1e400", "-1e400", "[1, {\"n\": 1e999999999999999999999}]", &"9".repeat(400), "1.5e309"] {
            let refusal = JsonText::parse(beyond).unwrap_err();
            assert!(refusal.message.starts_with("has a number beyond what is kept, at line 1 column "), "{refusal}");
            assert!(refusal.hint.unwrap().contains("as text"), "{beyond}");
        }
        for none in ["1e", "{1e400", "--1"] {
            assert!(JsonText::parse(none).unwrap_err().message.starts_with("is not JSON: "), "{none}");
        }
        // Long is not great: every digit of these is kept.
        for kept in [&"9".repeat(300), &format!("0.{}", "1".repeat(5_000)), "1e-400", "0e999999999999999999999"] {
            assert_eq!(JsonText::parse(kept).unwrap().as_str(), kept);
        }
    }

    proptest! {
        #[test]
        fn what_is_called_exact_reads_back_as_the_same_number(whole in any::<i64>(), cents in 0..10_000_u32) {
            for text in [whole.to_string(), format!("{}.{cents:04}", whole % 10_000_000_000)] {
                let kept = JsonText::parse(&text).unwrap();
                prop_assert!(kept.is_exact());
                let read = kept.value().as_f64().unwrap();
                prop_assert_eq!(read, text.parse::<f64>().unwrap());
            }
        }

        #[test]
        fn no_json_makes_it_panic(text in "[\\[\\]{}\",:0-9a-z.eE+\\\\-]{0,40}") {
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
