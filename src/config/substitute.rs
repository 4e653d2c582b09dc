//! Substitutes `${NAME}` and `${NAME:-default}` in scalars. `$$` stands for `$`; any
//! other `$` stays as it is.
//!
//! A message must never contain a value of a variable.

use crate::report::FileReport;

/// Looks up an environment variable by name.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The largest number of bytes that substitution may add to one file.
const ADDED_MAX: usize = 1024 * 1024;

/// The variables that `text` refers to, before substitution.
pub fn variables(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in text.replace("$$", "").split("${").skip(1) {
        let Some((inside, _)) = part.split_once('}') else { continue };
        found.push(inside.split_once(":-").map_or(inside, |(name, _)| name).to_owned());
    }
    found
}

/// Substitutes variables in one file.
pub struct Substitution<'a> {
    env: Env<'a>,
    added: usize,
}

impl<'a> Substitution<'a> {
    /// A substitution with variables from `env`.
    #[must_use]
    pub fn new(env: Env<'a>) -> Self {
        Self { env, added: 0 }
    }

    /// Replaces the references in `text`. Returns `None` if one of them cannot be replaced; each is
    /// reported at the line and field of `position`.
    pub fn apply(&mut self, text: &str, position: (usize, &str), report: &FileReport<'_>) -> Option<String> {
        if !text.contains('$') {
            return Some(text.to_owned());
        }
        let mut complete = true;
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("$$") {
                out.push('$');
                rest = after;
            } else if rest.starts_with("${") {
                let Some(end) = rest.find('}') else {
                    report.error(position.0, position.1, "`${` has no `}`", "write `$$` for a `$` that means itself");
                    return None;
                };
                let reference = &rest[..=end];
                match self.lookup(reference, position, report) {
                    Some(value) => out.push_str(&value),
                    None => complete = false,
                }
                rest = &rest[end + 1..];
            } else {
                out.push('$');
                rest = &rest[1..];
            }
        }
        out.push_str(rest);
        complete.then_some(out)
    }

    fn lookup(&mut self, reference: &str, (line, field): (usize, &str), report: &FileReport<'_>) -> Option<String> {
        let inside = &reference[2..reference.len() - 1];
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let starts = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !starts || name.len() > 128 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let message = format!("`{}` does not name a variable", ghost_domain::text::clip(reference, 60));
            let hint = "write ${NAME} or ${NAME:-default}, and `$$` for a `$` that means itself";
            report.error(line, field, message, hint);
            return None;
        }
        let value = (self.env)(name).filter(|value| !(value.is_empty() && default.is_some()));
        match (value, default) {
            (Some(value), _) => {
                self.added = self.added.saturating_add(value.len());
                if self.added > ADDED_MAX || value.contains('\0') {
                    let message = format!("the value of {name} is too long, or holds a NUL");
                    report.error(line, field, message, "set it to something shorter, of one line");
                    return None;
                }
                report.whole().substituted(&value, &format!("${{{name}}}"));
                Some(value)
            }
            (None, Some(default)) => Some(default.to_owned()),
            (None, None) => {
                let hint = format!("set it, or write ${{{name}:-default}}");
                report.error(line, field, format!("the environment variable {name} is not set"), hint);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use proptest::prelude::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/x".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn apply(text: &str) -> (Option<String>, String) {
        let report = Report::default();
        let out = Substitution::new(&env).apply(text, (7, "a.b"), &report.file("w.yaml"));
        (out, report.finish().to_string())
    }

    // covers: WORLD-09
    #[test]
    fn references_defaults_and_escapes_are_substituted() {
        for (text, expected) in [
            ("${HOME}/a", "/home/x/a"),
            ("${NONE:-d e}", "d e"),
            ("${EMPTY:-d}", "d"),
            ("${EMPTY}", ""),
            ("$${HOME} costs $5", "${HOME} costs $5"),
            ("${NONE:-}", ""),
        ] {
            assert_eq!(apply(text), (Some(expected.to_owned()), String::new()), "{text}");
        }
    }

    #[test]
    fn references_that_cannot_be_replaced_are_reported() {
        for (text, told) in
            [("${NONE}", "NONE"), ("${HOME}${NONE}${OTHER}", "OTHER"), ("${a b}", "${NAME}"), ("${HOME", "`}`")]
        {
            let (out, found) = apply(text);
            assert_eq!(out, None, "{text}");
            assert!(found.starts_with("error: w.yaml:7: a.b: ") && found.contains(told), "{text}: {found}");
        }
    }

    proptest! {
        #[test]
        fn it_never_panics_and_text_without_dollars_is_kept(text in "[a${}:\\-é]{0,40}") {
            let (out, told) = apply(&text);
            prop_assert_eq!(out.is_none(), !told.is_empty());
            prop_assert!(text.contains('$') || out == Some(text));
        }
    }
}
