//! Replaces the names of wire fields in messages. A refusal names the wrong field by its wire name;
//! a user of `ghostctl` needs the name of the option or argument instead.
//!
//! This module must never change text in backticks. That text was written by the user.

/// Replaces each word of `text` for which `name` returns a replacement. Text in backticks stays as
/// it is. A word is a run of letters, digits and underscores.
#[must_use]
pub fn renamed(text: &str, name: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, part) in text.split('`').enumerate() {
        if at > 0 {
            out.push('`');
        }
        // Odd parts are inside backticks.
        if at % 2 == 1 {
            out.push_str(part);
            continue;
        }
        for piece in part.split_inclusive(|c| !is_part(c)) {
            let word = piece.trim_end_matches(|c| !is_part(c));
            match name(word) {
                Some(name) => out.push_str(&name),
                None => out.push_str(word),
            }
            out.push_str(&piece[word.len()..]);
        }
    }
    out
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(word: &str) -> Option<String> {
        match word {
            "after_seq" => Some("--after".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn words_are_replaced_whole_and_never_what_somebody_wrote() {
        for (text, wanted) in [
            ("after_seq is 9; read on with after_seq.", "--after is 9; read on with --after."),
            ("`after_seq` is no tool, my_after_seq neither", "`after_seq` is no tool, my_after_seq neither"),
            ("(after_seq)", "(--after)"),
            ("an open ` and after_seq", "an open ` and after_seq"),
            ("é after_seqs, äafter_seq", "é after_seqs, äafter_seq"),
            ("", ""),
        ] {
            assert_eq!(renamed(text, name), wanted);
        }
    }
}
