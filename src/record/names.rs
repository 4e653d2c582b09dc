//! Replaces the names of wire fields in messages. A refusal names the wrong field by its wire name;
//! a user of `ghostctl` needs the name of the option or argument instead.
//!
//! Must never: change text in backticks. That text was written by the user.

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
        let mut rest = part;
        while let Some(start) = rest.find(is_part) {
            let (before, from) = rest.split_at(start);
            let (word, after) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
            out.push_str(before);
            match name(word) {
                Some(name) => out.push_str(&name),
                None => out.push_str(word),
            }
            rest = after;
        }
        out.push_str(rest);
    }
    out
}

/// Replaces the field name that `message` begins with. Use this for the field that a refusal is
/// about: there the name is a field, even if it is an ordinary word such as `content`.
#[must_use]
pub fn about(message: &str, field: Option<&str>, name: impl Fn(&str) -> Option<String>) -> String {
    let begins = |field: &&str| message.strip_prefix(*field).is_some_and(|rest| !rest.starts_with(is_part));
    match field.filter(begins).and_then(|field| Some((field, name(field)?))) {
        Some((field, name)) => format!("{name}{}", &message[field.len()..]),
        None => message.to_owned(),
    }
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
            "content" => Some("TEXT".to_owned()),
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

    #[test]
    fn the_field_in_question_may_be_an_ordinary_word() {
        assert_eq!(about("content is empty", Some("content"), name), "TEXT is empty");
        assert_eq!(about("content: bad", Some("content"), name), "TEXT: bad");
        assert_eq!(about("content is empty", None, name), "content is empty");
        assert_eq!(about("contents are empty", Some("content"), name), "contents are empty");
        assert_eq!(about("the content is empty", Some("content"), name), "the content is empty");
    }
}
