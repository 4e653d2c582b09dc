//! Redaction: secrets are taken out of everything that leaves the daemon or is kept to be read (TOOL-24).

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Shapes of well-known tokens: a prefix and the least number of token characters after it.
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

/// Bytes below which a known value, or what a cut has left of one, is too short to tell it from ordinary words.
const KNOWN_LEAST: usize = 6;
/// What a cut has left must be so large a part of the value, too: a long one may begin like many others, as addresses do.
const CUT_PART: usize = 4;

/// What stands where a text was cut (see [`crate::text`]).
const CUTS: [&str; 2] = ["…", "\n[cut: "];

/// Bytes below which one line of several is too short for that, and one with spaces, which may be a setting beside a secret.
const LINE_LEAST: usize = 10;
const SPACED_LEAST: usize = 40;

/// What stands where a secret stood.
pub const MARK: &str = "[redacted]";

/// Takes known values and token shapes out of text.
///
/// Clones share what they know: a reload that names a new secret teaches them all at once.
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
    /// A redactor that knows these values besides the shapes. Values shorter than 6 bytes are ignored: they would
    /// tear holes into ordinary words and protect nothing.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let redactor = Self::default();
        redactor.learn(secrets);
        redactor
    }

    /// Knows these values, too. What is known is never forgotten: a key that was replaced may still be used elsewhere. Of a
    /// value of several lines, such as a private key, each long line is known by itself.
    pub fn learn(&self, secrets: impl IntoIterator<Item = String>) {
        let mut known = Vec::clone(&self.known());
        for secret in secrets {
            known.extend(lines(&secret).map(str::to_owned));
            known.push(secret);
        }
        known.retain(|secret| secret.len() >= KNOWN_LEAST);
        // Longest first, so that a secret that contains another is replaced whole.
        known.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        known.dedup();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
    }

    /// The length of the longest known value, in bytes; 0 if none is known.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.known().first().map_or(0, String::len)
    }

    fn known(&self) -> Arc<Vec<String>> {
        // The lock is held for a pointer copy only, so a poisoned one still holds a whole value.
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

    /// Takes the secrets out of a value that is not needed as it was: what holds none, as nearly all do, is not copied.
    #[must_use]
    pub fn clean_json(&self, value: serde_json::Value) -> serde_json::Value {
        if self.is_clean(&value) { value } else { self.redact_json(&value) }
    }

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

/// The lines of a value of more than one, as far as they can be told from ordinary words. The borders of a private key are
/// the same for all. A line break at its end makes no value longer.
fn lines(secret: &str) -> impl Iterator<Item = &str> {
    let several = secret.contains('\n');
    let least = if secret.trim().contains('\n') { LINE_LEAST } else { KNOWN_LEAST };
    let whole = secret.lines().map(str::trim).filter(move |line| {
        let least = if least == LINE_LEAST && line.contains(' ') { SPACED_LEAST } else { least };
        line.len() >= least && !line.starts_with("-----")
    });
    whole.filter(move |_| several)
}

/// `text` without the beginnings of known values that a cut has left, if there are any: many texts are cut before they are
/// redacted, and most of a secret is a secret still.
fn without_cut(text: &str, known: &[String]) -> Option<String> {
    if !CUTS.iter().any(|cut| text.contains(cut)) {
        return None;
    }
    let mut out = None;
    for secret in known {
        let least = KNOWN_LEAST.max(secret.len() / CUT_PART);
        let Some(head) = (least..secret.len()).find(|at| secret.is_char_boundary(*at)) else { continue };
        let from: &str = out.as_deref().unwrap_or(text);
        let (mut clean, mut rest) = (String::new(), from);
        while let Some(at) = rest.find(&secret[..head]) {
            let found = &rest[at..];
            let length = found.bytes().zip(secret.bytes()).take_while(|(a, b)| a == b).count();
            let cut = CUTS.iter().any(|cut| found.as_bytes()[length..].starts_with(cut.as_bytes()));
            clean.push_str(&rest[..at]);
            clean.push_str(if cut { MARK } else { &found[..head] });
            // What a cut begins with is the beginning of a character.
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

/// Whether any shape begins in `text` with room for its token: one pass, because nearly no text holds any, and every
/// string of every event is looked at.
fn may_hold_shape(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().any(|(at, byte)| {
        matches!(byte, b's' | b'g' | b'x' | b'A' | b'e' | b'B')
            && SHAPES.iter().any(|(prefix, least)| {
                bytes.len() - at >= prefix.len() + least && bytes[at..].starts_with(prefix.as_bytes())
            })
    })
}

fn redact_shape(text: &str, prefix: &str, least: usize) -> String {
    let token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | '=');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(prefix) {
        let (before, from) = rest.split_at(at);
        let tail = &from[prefix.len()..];
        let length = tail.find(|c| !token(c)).unwrap_or(tail.len());
        // Inside a word the prefix is no token: `task-` holds `sk-`.
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
    fn known_values_and_shapes_go() {
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
    fn every_shape_is_looked_for() {
        for (prefix, least) in SHAPES {
            let token = format!("{prefix}{}", "a".repeat(*least));
            assert_eq!(Redactor::default().redact(&format!("x {token}")), format!("x {MARK}"), "{prefix}");
            assert!(!may_hold_shape(&token[..token.len() - 1]), "{prefix}");
        }
    }

    #[test]
    fn what_is_learnt_later_is_known_to_every_clone() {
        let first = Redactor::default();
        let second = first.clone();
        first.learn(["a-new-key-of-ours".to_owned()]);
        assert_eq!(second.redact("it is a-new-key-of-ours"), "it is [redacted]");
        assert_eq!(second.longest(), 17);
    }

    #[test]
    fn the_lines_of_a_secret_are_secrets() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n  kqhkiG9w0BAQEF\n{\nAAAA\n-----END KEY-----\n";
        let redactor = Redactor::new([key.to_owned(), "one-line\n".to_owned()]);
        assert_eq!(redactor.redact(&format!("<{key}>")), "<[redacted]>");
        assert_eq!(redactor.redact("its kqhkiG9w0BAQEF, AAAA and one-line"), "its [redacted], AAAA and [redacted]");
        assert_eq!(redactor.redact("-----BEGIN KEY-----\n{"), "-----BEGIN KEY-----\n{");
        // Of a file of settings, what is long enough to be one.
        let settings = format!("apiVersion: v1\nkind: Config\ntoken: {}\n", "a1B2".repeat(12));
        let redactor = Redactor::new([settings]);
        let text = format!("kind: Config, apiVersion: v1, token: {}", "a1B2".repeat(12));
        assert_eq!(redactor.redact(&text), "kind: Config, apiVersion: v1, [redacted]");
    }

    #[test]
    fn what_a_cut_leaves_of_a_secret_goes_too() {
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
        // What many addresses begin with is no part of one.
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
            // A character has two bytes at most here.
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
