//! Texts and JSON values of a journal as short lines for people.

use serde_json::Value;

use crate::text::plural;

/// How much of one step is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Characters of one text, such as one message or one argument.
    pub text: usize,
    /// Characters of all texts of the step.
    pub step: usize,
}

impl Bounds {
    /// For a person who wants to know what happened and why.
    pub const BRIEF: Self = Self { text: 600, step: 2_000 };
    /// Everything.
    pub const NONE: Self = Self { text: usize::MAX, step: usize::MAX };
}

/// The first `max` characters of a text. If it has more, their number follows.
pub fn clip(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((at, _)) => {
            let cut = u64::try_from(text[at..].chars().count()).unwrap_or(u64::MAX);
            format!("{}… [{} cut]", &text[..at], plural(cut, "character"))
        }
    }
}

/// A value with each of its strings clipped.
pub fn clip_within(value: Value, max: usize) -> Value {
    match value {
        Value::String(text) => Value::String(clip(&text, max)),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| clip_within(item, max)).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, clip_within(value, max))).collect())
        }
        other => other,
    }
}

/// Writes a value over several indented lines. Texts keep their line breaks; empty fields are left out.
pub fn indented(value: &Value, by: usize, text: &mut String) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                match value {
                    Value::String(words) if words.contains('\n') => {
                        text.push_str(&format!("{:by$}{name}:\n", ""));
                        lines(words, by + 2, text);
                    }
                    Value::String(words) => text.push_str(&format!("{:by$}{name}: {words}\n", "")),
                    Value::Object(_) => {
                        text.push_str(&format!("{:by$}{name}:\n", ""));
                        indented(value, by + 2, text);
                    }
                    Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                        text.push_str(&format!("{:by$}{name}:\n", ""));
                        for item in items {
                            text.push_str(&format!("{:by$}  -\n", ""));
                            indented(item, by + 4, text);
                        }
                    }
                    other => text.push_str(&format!("{:by$}{name}: {other}\n", "")),
                }
            }
        }
        Value::Null => {}
        Value::String(words) => lines(words, by, text),
        other => text.push_str(&format!("{:by$}{other}\n", "")),
    }
}

/// Writes a text with each of its lines indented.
pub fn lines(words: &str, by: usize, text: &mut String) {
    for line in words.lines() {
        text.push_str(format!("{:by$}{line}", "").trim_end());
        text.push('\n');
    }
}

/// A value on few lines: a text as it is, an object by its fields. Each of its texts is clipped, and then the whole.
pub fn shown(value: Value, bounds: Bounds) -> String {
    let mut text = String::new();
    indented(&clip_within(value, bounds.text), 0, &mut text);
    text.truncate(text.trim_end().len());
    clip(&text, bounds.step)
}

/// How long something took: `12ms`, `2.3s`, `3m 5s`.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{}m {}s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_in_full_loses_nothing_and_keeps_its_line_breaks() {
        let long = "x".repeat(1_000);
        let fact = json!({ "text": "one\ntwo", "calls": [{ "tool": "t", "n": 1 }], "long": long, "none": null, "of": { "a": [1, 2] } });
        let mut text = String::new();
        indented(&fact, 2, &mut text);
        for part in
            ["  text:\n    one\n    two\n", "  calls:\n    -\n", "      tool: t\n", long.as_str(), "    a: [1,2]\n"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("none"), "{text}");
    }

    #[test]
    fn a_clipped_text_says_how_much_is_missing() {
        assert_eq!(clip("äöü", 3), "äöü");
        assert!(clip("äöüß", 1).starts_with("ä…") && clip("äöüß", 1).contains('3'));
        // The first long field does not hide the others.
        let value = json!({ "content": "x".repeat(5_000), "path": "a.md" });
        let text = shown(value.clone(), Bounds::BRIEF);
        assert!(text.contains("4400") && text.contains("path: a.md"), "{text}");
        assert!(shown(value, Bounds::NONE).contains(&"x".repeat(5_000)));
        let many = Value::Array(vec![json!("y".repeat(100)); 100]);
        assert!(shown(many, Bounds::BRIEF).chars().count() < 2_100);
    }

    #[test]
    fn a_duration_has_the_unit_that_fits() {
        assert_eq!([12, 2_345, 185_000].map(duration), ["12ms", "2.3s", "3m 5s"]);
    }
}
