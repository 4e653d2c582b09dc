//! Redaction: replaces secrets in text that leaves the daemon or is stored for people and models to
//! read.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Shapes of well-known tokens: a prefix, and the smallest number of token characters after it.
const SHAPES: &[(&str, usize)] = &[
    ("sk-", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghs_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("AKIA", 16),
    ("AIza", 30),
    ("eyJhbGciOi", 20),
    ("Bearer ", 12),
];

/// Minimum bytes of a known value to be redacted, or of the part of it before a truncation. A
/// shorter text could be an ordinary word.
const KNOWN_LEAST: usize = 6;
/// The part before a truncation must also be at least this fraction (1/4) of the value. Long values
/// can begin alike, for example addresses.
const CUT_PART: usize = 4;

/// Marks of a truncated text (see [`crate::text`]).
const CUTS: [&str; 2] = ["…", "\n[cut: "];

/// One line of a secret with several lines is redacted from this many bytes.
const LINE_LEAST: usize = 10;
/// The same for a line with spaces, which may be an ordinary setting.
const SPACED_LEAST: usize = 40;

/// The text that replaces a secret.
pub const MARK: &str = "[redacted]";

/// Replaces known values and token shapes in text.
///
/// All clones share their known values, so a reload adds a new secret to all of them.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<Arc<Vec<String>>>>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} known values)", self.known().len())
    }
}

impl Redactor {
    /// A redactor for these values and the token shapes. Values below 6 bytes are ignored: they
    /// could be parts of ordinary words.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let redactor = Self::default();
        redactor.learn(secrets);
        redactor
    }

    /// Adds these values. Values are never removed: a key that was replaced may still work
    /// elsewhere. If a value has several lines, such as a private key, each long line is also a
    /// value of its own.
    pub fn learn(&self, secrets: impl IntoIterator<Item = String>) {
        let mut known = Vec::clone(&self.known());
        for secret in secrets {
            known.extend(lines(&secret).map(str::to_owned));
            known.push(secret);
        }
        known.retain(|secret| secret.len() >= KNOWN_LEAST);
        // Longest first, so that a secret which contains another one is replaced completely.
        known.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        known.dedup();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
    }

    /// The length of the longest known value, in bytes; 0 if none is known.
    pub fn longest(&self) -> usize {
        self.known().first().map_or(0, String::len)
    }

    fn known(&self) -> Arc<Vec<String>> {
        // The lock protects only a pointer, so the value is complete even if the lock is poisoned.
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// `text` without secrets.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for secret in self.known().iter() {
            if out.contains(secret.as_str()) {
                out = out.replace(secret.as_str(), MARK);
            }
        }
        if let Some(whole) = without_cut(&out, &self.known()) {
            out = whole;
        }
        if may_hold_shape(&out) {
            for (prefix, least) in SHAPES {
                if out.contains(prefix) {
                    out = redact_shape(&out, prefix, *least);
                }
            }
        }
        out
    }

    /// `value` without secrets. Like [`redact_json`](Self::redact_json), but a value without
    /// secrets is not copied.
    pub fn clean_json(&self, value: serde_json::Value) -> serde_json::Value {
        if self.is_clean(&value) { value } else { self.redact_json(&value) }
    }

    /// Whether no string and no key of `value` contains a secret.
    fn is_clean(&self, value: &serde_json::Value) -> bool {
        use serde_json::Value;
        let known = self.known();
        let clean = |text: &str| {
            !known.iter().any(|secret| text.contains(secret.as_str()))
                && !may_hold_shape(text)
                && without_cut(text, &known).is_none()
        };
        match value {
            Value::String(text) => clean(text),
            Value::Array(items) => items.iter().all(|item| self.is_clean(item)),
            Value::Object(map) => map.iter().all(|(key, item)| clean(key) && self.is_clean(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
        }
    }

    /// `value` without secrets in any of its strings and keys.
    #[must_use]
    pub fn redact_json(&self, value: &serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::String(text) => Value::String(self.redact(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.redact_json(item)).collect()),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(key, item)| (self.redact(key), self.redact_json(item))).collect())
            }
            other => other.clone(),
        }
    }
}

/// The lines of a secret with several lines, if they are long enough. Omits the first and last line
/// of a private key, which are the same in all keys. A single line with a line break at its end
/// gives that line.
fn lines(secret: &str) -> impl Iterator<Item = &str> {
    let several = secret.contains('\n');
    let least = if secret.trim().contains('\n') { LINE_LEAST } else { KNOWN_LEAST };
    let whole = secret.lines().map(str::trim).filter(move |line| {
        let least = if least == LINE_LEAST && line.contains(' ') { SPACED_LEAST } else { least };
        line.len() >= least && !line.starts_with("-----")
    });
    whole.filter(move |_| several)
}

/// `text` without the beginnings of known values before a truncation mark. `None` if there are
/// none. Many texts are truncated before they are redacted, and a large part of a secret must not
/// remain.
fn without_cut(text: &str, known: &[String]) -> Option<String> {
    if !CUTS.iter().any(|cut| text.contains(cut)) {
        return None;
    }
    let mut out = None;
    for secret in known {
        let least = KNOWN_LEAST.max(secret.len() / CUT_PART);
        let Some(head) = (least..secret.len()).find(|end| secret.is_char_boundary(*end)) else { continue };
        let from: &str = out.as_deref().unwrap_or(text);
        let (mut clean, mut rest) = (String::new(), from);
        while let Some(start) = rest.find(&secret[..head]) {
            let found = &rest[start..];
            let length = found.bytes().zip(secret.bytes()).take_while(|(a, b)| a == b).count();
            let cut = CUTS.iter().any(|cut| found.as_bytes()[length..].starts_with(cut.as_bytes()));
            clean.push_str(&rest[..start]);
            clean.push_str(if cut { MARK } else { &found[..head] });
            // A mark begins at a character boundary, so this slice does, too.
            rest = &found[if cut { length } else { head }..];
        }
        if !clean.is_empty() {
            clean.push_str(rest);
            if clean != from {
                out = Some(clean);
            }
        }
    }
    out
}

/// Whether `text` may contain a token shape. A quick check in one pass, because every string of
/// every event is checked and nearly none contains one.
fn may_hold_shape(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().any(|(at, byte)| {
        matches!(byte, b's' | b'g' | b'x' | b'A' | b'e' | b'B')
            && SHAPES.iter().any(|(prefix, least)| {
                bytes.len() - at >= prefix.len() + least && bytes[at..].starts_with(prefix.as_bytes())
            })
    })
}

/// `text` without tokens that begin with `prefix` and have at least `least` further characters.
fn redact_shape(text: &str, prefix: &str, least: usize) -> String {
    let token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | '=');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(prefix) {
        let (before, from) = rest.split_at(start);
        let tail = &from[prefix.len()..];
        let length = tail.find(|c| !token(c)).unwrap_or(tail.len());
        // Inside a word the prefix is not a token: `task-` contains `sk-`.
        let inside_word = before.chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric());
        out.push_str(before);
        if length >= least && !inside_word {
            out.push_str(MARK);
        } else {
            out.push_str(prefix);
            out.push_str(&tail[..length]);
        }
        rest = &tail[length..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // covers: TOOL-24
    #[test]
    fn known_values_and_shapes_are_replaced() {
        let redactor = Redactor::new(["hunter2-hunter2".to_owned(), "abc".to_owned()]);
        let text = "key hunter2-hunter2, sk-ABCDEFGHIJKLMNOPQRST; abc task-ABCDEFGHIJKLMNOPQRST stays";
        assert_eq!(redactor.redact(text), "key [redacted], [redacted]; abc task-ABCDEFGHIJKLMNOPQRST stays");
        let json = serde_json::json!({ "a": ["Bearer abcdefghijklmnop"], "n": 1 });
        assert_eq!(redactor.redact_json(&json), serde_json::json!({ "a": ["[redacted]"], "n": 1 }));
        assert_eq!(redactor.clean_json(json.clone()), redactor.redact_json(&json));
        let clean = serde_json::json!({ "a": ["Bearer of news", null], "sk-": true });
        assert_eq!(redactor.clean_json(clean.clone()), clean);
    }

    #[test]
    fn every_shape_is_replaced() {
        for (prefix, least) in SHAPES {
            let token = format!("{prefix}{}", "a".repeat(*least));
            assert_eq!(Redactor::default().redact(&format!("x {token}")), format!("x {MARK}"), "{prefix}");
            assert!(!may_hold_shape(&token[..token.len() - 1]), "{prefix}");
        }
    }

    #[test]
    fn clones_share_values_that_are_added_later() {
        let first = Redactor::default();
        let second = first.clone();
        first.learn(["a-new-key-of-ours".to_owned()]);
        assert_eq!(second.redact("it is a-new-key-of-ours"), "it is [redacted]");
        assert_eq!(second.longest(), 17);
    }

    #[test]
    fn long_lines_of_a_secret_are_replaced_on_their_own() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n  kqhkiG9w0BAQEF\n{\nAAAA\n-----END KEY-----\n";
        let redactor = Redactor::new([key.to_owned(), "one-line\n".to_owned()]);
        assert_eq!(redactor.redact(&format!("<{key}>")), "<[redacted]>");
        assert_eq!(redactor.redact("its kqhkiG9w0BAQEF, AAAA and one-line"), "its [redacted], AAAA and [redacted]");
        assert_eq!(redactor.redact("-----BEGIN KEY-----\n{"), "-----BEGIN KEY-----\n{");
        // Of a file of settings, only the lines that are long enough.
        let settings = format!("apiVersion: v1\nkind: Config\ntoken: {}\n", "a1B2".repeat(12));
        let redactor = Redactor::new([settings]);
        let text = format!("kind: Config, apiVersion: v1, token: {}", "a1B2".repeat(12));
        assert_eq!(redactor.redact(&text), "kind: Config, apiVersion: v1, [redacted]");
    }

    #[test]
    fn the_part_of_a_secret_that_a_cut_left_is_replaced() {
        let redactor = Redactor::new(["hunter2-Pass=wörd".to_owned(), "hunter2-other".to_owned()]);
        let cut = |text: &str| redactor.redact(text);
        assert_eq!(
            cut("no tool `x.hunter2-Pa…`, hunter2-oth…, `hunter…`"),
            "no tool `x.[redacted]…`, [redacted]…, `[redacted]…`"
        );
        assert_eq!(cut("hunter2-Pass=w\n[cut: 14 of 99 bytes shown]"), "[redacted]\n[cut: 14 of 99 bytes shown]");
        for kept in ["hunt…", "hunter2-P, hunter3…", "the hunters …", "hunter2-Px…"] {
            assert_eq!(cut(kept), kept);
        }
        // The common beginning of many addresses is not a secret.
        let address = Redactor::new(["https://user:s3cr3t@host.example/path".to_owned()]);
        assert_eq!(address.redact("see https://…, https://user:s3cr…"), "see https://…, [redacted]…");
        let json = serde_json::json!({ "error": "no `hunter2-P…`" });
        assert_eq!(redactor.clean_json(json), serde_json::json!({ "error": "no `[redacted]…`" }));
    }

    proptest! {
        #[test]
        fn no_prefix_of_a_secret_survives_a_clip(before in ".{0,30}", secret in "[A-Za-z0-9é]{8,30}", at in 0usize..60) {
            let redactor = Redactor::new([secret.clone()]);
            let clean = redactor.redact(&crate::text::clip(&format!("{before}{secret}"), at));
            // Here a character has two bytes at most.
            let head: String = secret.chars().take(secret.chars().count() / 2 + 7).collect();
            prop_assert!(!clean.contains(&head) || MARK.contains(&head) || before.contains(&head));
        }

        #[test]
        fn no_known_secret_survives(before in ".{0,30}", secret in "[A-Za-z0-9]{6,30}", after in ".{0,30}") {
            let redactor = Redactor::new([secret.clone()]);
            let clean = redactor.redact(&format!("{before}{secret}{after}"));
            prop_assert!(!clean.contains(&secret) || MARK.contains(&secret));
        }
    }
}
