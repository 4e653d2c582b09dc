//! What the fields of the wire are called where somebody typed them. A refusal names the field that is wrong, and someone
//! who has never seen the wire must recognise in it what to write differently.
//!
//! Must never: change a word that somebody wrote; those stand in backticks.

/// `text` with each of the words that `name` knows replaced by what it gives, as far as they stand outside backticks. A
/// word is a run of letters, digits and underscores.
#[must_use]
pub fn renamed(text: &str, name: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, part) in text.split('`').enumerate() {
        if at > 0 {
            out.push('`');
        }
        // Between the first backtick and the second, the third and the fourth, and so on.
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

/// The same for the field that a refusal is about, which its message begins with, whatever it is called: there it is no
/// ordinary word.
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
