//! Unwraps programs that run the command in their arguments: `env`, `timeout`, `nice`, `xargs` and the like.
//!
//! It must never skip a word whose meaning it does not know: an unknown option is a fault.

use crate::builtins::is_query;
use crate::refusal::Cause;
use crate::tables::{Wrapper, has};
use crate::variables::assignable;
use crate::walk::Walk;
use crate::word::{Shape, Word};

/// What the options of a wrapper said.
#[derive(Default)]
struct Found {
    /// `env -S`: more words before the rest.
    split: Option<String>,
    /// `xargs -I`: what is replaced in the words that follow.
    replaced: Option<String>,
    /// `xargs -n` or `-L`, which cancels `-I`.
    batch: bool,
}

impl Walk<'_> {
    /// Judges the command that the wrapper runs.
    pub fn unwrap_command(&mut self, wrapper: &Wrapper, args: Vec<Word>) {
        if wrapper.name == "command" && is_query(&args) {
            return self.shell("command", args);
        }
        let (rest, found) = match self.options(wrapper, &args[1..]) {
            Ok(parsed) => parsed,
            Err((cause, word)) => return self.fault(cause, &word),
        };
        let mut inner: Vec<Word> = rest.to_vec();
        if let Some(text) = &found.split {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b" _./=,:-".contains(&b);
            if !text.bytes().all(plain) {
                return self.fault(Cause::Ambiguous, text);
            }
            inner.splice(0..0, text.split_ascii_whitespace().map(Word::fixed));
        }
        if wrapper.name == "env" {
            while let Some((name, value)) = inner.first().and_then(|word| word.text.split_once('=')) {
                let (name, value) = (name.to_owned(), value.to_owned());
                let known = inner.first().is_some_and(|word| word.shape == Shape::Static);
                if inner.first().is_some_and(|word| word.shape == Shape::Wild) {
                    return self.fault(Cause::DynamicName, &name);
                }
                self.set(&name, known.then_some(&value), false, true);
                inner.remove(0);
            }
        }
        if inner.len() < wrapper.skip || inner.iter().take(wrapper.skip).any(|word| word.shape != Shape::Static) {
            return self.fault(Cause::DynamicName, wrapper.name);
        }
        inner.drain(..wrapper.skip);
        if wrapper.name == "xargs" {
            if found.batch && found.replaced.is_some() {
                return self.fault(Cause::UnknownOption, "xargs -I -n");
            }
            if inner.is_empty() {
                inner.push(Word::fixed("echo"));
            }
            self.fill(&mut inner, found.replaced.as_deref());
        }
        if inner.is_empty() {
            let shell = has("exec command builtin time", wrapper.name);
            return if shell { self.shell(wrapper.name, args) } else { self.program(wrapper.name, None, args) };
        }
        self.note(wrapper.name, &args);
        self.wrapped(wrapper.name, |walk| walk.invoke(inner, &[]));
    }

    /// What `xargs` puts into the words, which nobody knows.
    fn fill(&self, words: &mut Vec<Word>, replaced: Option<&str>) {
        let Some(replaced) = replaced else { return words.push(Word::unknown()) };
        replace(words, replaced);
    }

    fn options<'a>(&self, wrapper: &Wrapper, args: &'a [Word]) -> Result<(&'a [Word], Found), (Cause, String)> {
        let mut found = Found::default();
        let mut rest = args;
        while let Some((word, after)) = rest.split_first() {
            let Some(text) = word.value() else {
                // A word that is not known may be an option, or become several.
                let safe = word.shape == Shape::Prefixed && !word.text.is_empty() && !word.text.starts_with('-');
                return if safe { Ok((rest, found)) } else { Err((Cause::DynamicName, wrapper.name.to_owned())) };
            };
            if text == "--" {
                return Ok((after, found));
            }
            let unknown = || (Cause::UnknownOption, text.to_owned());
            // As `-i`.
            if text == "-" && wrapper.name == "env" {
                return Err(unknown());
            }
            if !text.starts_with('-') || text == "-" {
                return Ok((rest, found));
            }
            let (letter, value) = if let Some(long) = text.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                let takes = has(wrapper.long_values, name);
                if !takes && (!has(wrapper.long, name) || value.is_some()) {
                    return Err(unknown());
                }
                // The value of these two is optional and so must be attached.
                let optional = name == "replace" || name == "eof";
                (name, if takes && !optional { Some(value) } else { Some(Some(value.unwrap_or(""))).filter(|_| takes) })
            } else {
                let cluster = text[1..].trim_start_matches(|c| wrapper.flags.contains(c));
                let mut letters = cluster.chars();
                let Some(letter) = letters.next() else {
                    rest = after;
                    continue;
                };
                let len = letter.len_utf8();
                if wrapper.attached.contains(letter) {
                    (&cluster[..len], Some(Some(letters.as_str())))
                } else if wrapper.values.contains(letter) {
                    (&cluster[..len], Some(Some(letters.as_str()).filter(|value| !value.is_empty())))
                } else {
                    return Err(unknown());
                }
            };
            rest = after;
            let value = match value {
                None => continue,
                Some(Some(attached)) => attached,
                Some(None) => {
                    let Some((next, later)) = rest.split_first() else { return Err(unknown()) };
                    rest = later;
                    next.value().ok_or_else(unknown)?
                }
            };
            match (wrapper.name, letter) {
                ("env", "S" | "split-string") => {
                    found.split = Some(value.to_owned());
                    // What follows is appended to the words of the string, options included.
                    return if value.trim_start().starts_with('-') { Err(unknown()) } else { Ok((rest, found)) };
                }
                ("xargs", "I" | "i" | "replace") => {
                    found.replaced = Some(if value.is_empty() { "{}".to_owned() } else { value.to_owned() });
                }
                ("env", "u" | "unset") if assignable(value, None, true).is_err() => {
                    return Err((Cause::Variable, value.to_owned()));
                }
                ("xargs", "n" | "L" | "l" | "max-args" | "max-lines") => found.batch = true,
                _ => {}
            }
        }
        Ok((rest, found))
    }
}

/// Makes each word vague from where the placeholder stands.
pub(crate) fn replace(words: &mut [Word], placeholder: &str) {
    for word in words {
        if let Some(at) = word.text.find(placeholder) {
            word.text.truncate(at);
            word.shape = word.shape.max(Shape::Prefixed);
        }
    }
}
