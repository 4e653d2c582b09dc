//! Refuses the options by which a program runs another one or writes a file, and code for interpreters.
//!
//! It must never take a word that is not known for an operand.

use crate::refusal::Cause;
use crate::tables::{self, Facts, Options, Rule};
use crate::walk::Walk;
use crate::word::{Shape, Word};

impl Walk<'_> {
    /// Checks the options of a program against its rules.
    pub fn options_of(&mut self, facts: &Facts, args: &[Word]) {
        let family = facts.family;
        if facts.rules.is_empty() && !matches!(family, "find" | "fd" | "sed" | "awk" | "uniq") {
            return;
        }
        let mut ended = false;
        for word in &args[1..] {
            let text = &*word.text;
            if let Some(rule) = facts.rules.iter().find(|rule| rule.bare.iter().any(|name| begins(name, text))) {
                self.fault(rule.options.cause, text);
            }
            ended |= text == "--";
            if ended {
                continue;
            }
            if word.shape == Shape::Wild || (word.shape == Shape::Prefixed && may_be_option(text)) {
                self.fault(Cause::DynamicOption, &shown(word));
            }
            let refused = |rule: &&Rule| rule.dashed.iter().any(|name| hits(name, text)) || cluster(rule.options, text);
            if let Some(rule) = facts.rules.iter().filter(|_| text.starts_with('-')).find(refused) {
                self.fault(rule.options.cause, text);
            }
        }
        if family == "uniq" && operands(args) > 1 {
            self.fault(Cause::WriteOption, "uniq");
        }
        // The old style of tar: the first word is a cluster without its dash.
        let old =
            args.get(1).filter(|word| family == "tar" && word.text.contains(['I', 'F']) && !word.text.starts_with('-'));
        if let Some(word) = old {
            self.fault(Cause::RunOption, &word.text);
        }
    }
}

/// True if an interpreter gets its code from the command line or from standard input.
pub(crate) fn is_inline(letters: &str, long: &str, args: &[Word]) -> bool {
    for word in &args[1..] {
        let Some(text) = word.value() else { return true };
        let name = text.split('=').next().unwrap_or_default();
        if tables::has(long, name) || text == "-" {
            return true;
        }
        if !text.starts_with('-') {
            return false;
        }
        if !text.starts_with("--") && text.contains(|c| letters.contains(c)) {
            return true;
        }
        if matches!(name, "-V" | "--version" | "--help" | "-h" | "-m") {
            return false;
        }
    }
    true
}

/// A word that is not known, for a refusal.
fn shown(word: &Word) -> String {
    if word.text.is_empty() { "$…".to_owned() } else { format!("{}…", word.text) }
}

fn operands(args: &[Word]) -> usize {
    args[1..].iter().filter(|word| !word.text.starts_with('-') && !word.text.starts_with('+')).count()
}

/// True if a word with this beginning may become an option that matters.
fn may_be_option(start: &str) -> bool {
    start.is_empty() || (start.starts_with('-') && !(start.starts_with("--") && start.contains('=')))
}

/// True if the argument is the option or an abbreviation of it.
fn hits(name: &str, text: &str) -> bool {
    let given = text.split('=').next().unwrap_or_default();
    match (name.strip_prefix("--"), given.strip_prefix("--")) {
        (Some(long), Some(given)) => !given.is_empty() && long.starts_with(given),
        // Some programs take long names behind one dash.
        (Some(long), None) => given.strip_prefix('-') == Some(long),
        (None, _) => given == name,
    }
}

/// True if any argument may not begin so: `=START`, a scheme anywhere (`ext::`), or a whole word.
fn begins(name: &str, text: &str) -> bool {
    match name.strip_prefix('=') {
        Some(start) => text.starts_with(start),
        None if name.ends_with(':') => contains_ignoring_case(text, name),
        None => text == name,
    }
}

fn contains_ignoring_case(text: &str, part: &str) -> bool {
    text.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}

/// True if a cluster of short options holds one of the rule's letters.
fn cluster(rule: &Options, text: &str) -> bool {
    let Some(letters) = text.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else { return false };
    let end = letters.find(|c| rule.values.contains(c)).unwrap_or(letters.len());
    letters[..end].contains(|c| rule.short.contains(c))
}
