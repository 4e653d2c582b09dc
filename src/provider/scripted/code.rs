//! The code in templates, looked at as text: which names, filters, patterns and tools it mentions, and on which line.
//!
//! Must never: decide what a name means, or whether code can be compiled. That is the template language's.

/// Words of the language that are no names.
const KEYWORDS: [&str; 15] =
    ["and", "elif", "else", "endif", "false", "False", "if", "in", "is", "none", "None", "not", "or", "true", "True"];
/// Statements that give no name a meaning.
const PLAIN: [&str; 4] = ["if", "elif", "else", "endif"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'c> {
    Word(&'c str),
    /// The inside of a string literal, as it is written.
    Text(&'c str),
    Mark(char),
}

/// A regular expression that code hands to a filter.
#[derive(Debug, PartialEq)]
pub(super) enum Regex {
    /// Written out.
    Literal(String),
    /// The constant of that name under `vars`.
    Constant(String),
}

/// What code mentions, each with its place in bytes.
#[derive(Debug, Default)]
pub(super) struct Mentions<'c> {
    /// Names that are no attributes, filters, tests, arguments or words of the language.
    pub(super) names: Vec<(usize, &'c str)>,
    pub(super) filters: Vec<(usize, &'c str)>,
    /// Whether a statement may give names a meaning of its own (`for`, `set`).
    pub(super) binds: bool,
    tokens: Vec<Vec<(usize, Token<'c>)>>,
}

impl<'c> Mentions<'c> {
    /// Those of one expression.
    pub(super) fn of_expression(source: &'c str) -> Self {
        let mut mentions = Self::default();
        mentions.add(0, source);
        mentions
    }

    /// Those of a text with templates in it.
    pub(super) fn of_text(source: &'c str) -> Self {
        let mut mentions = Self::default();
        for (start, part) in parts(source) {
            let statement = source[..start].ends_with('%');
            let first = part.trim_start_matches('-').split_whitespace().next().unwrap_or_default();
            mentions.binds |= statement && !PLAIN.contains(&first);
            mentions.add(start, part);
        }
        mentions
    }

    fn add(&mut self, start: usize, code: &'c str) {
        let tokens = tokens(start, code);
        for (at, (place, token)) in tokens.iter().enumerate() {
            let Token::Word(word) = *token else { continue };
            let before = |back: usize| at.checked_sub(back).map(|at| tokens[at].1);
            let after = |ahead: usize| tokens.get(at + ahead).map(|(_, token)| *token);
            match before(1) {
                Some(Token::Mark('|')) => self.filters.push((*place, word)),
                Some(Token::Mark('.')) => {}
                _ if KEYWORDS.contains(&word) || word.starts_with(|c: char| c.is_ascii_digit()) => {}
                // The name of a test: `x is word`, `x is not word`.
                Some(Token::Word("is")) => {}
                Some(Token::Word("not")) if before(2) == Some(Token::Word("is")) => {}
                // The name of an argument: `word=x`.
                _ if after(1) == Some(Token::Mark('=')) && after(2) != Some(Token::Mark('=')) => {}
                _ => self.names.push((*place, word)),
            }
        }
        self.tokens.push(tokens);
    }

    /// The regular expressions that filters are given as they stand, by themselves or through `map`.
    pub(super) fn patterns(&self) -> Vec<(usize, Regex)> {
        let mut found = Vec::new();
        self.each_filter(|name, arguments| {
            let is_pattern = |name: &str| name.starts_with("regex_");
            let rest = match arguments {
                rest if is_pattern(name) => rest,
                [(_, Token::Text(name)), (_, Token::Mark(',')), rest @ ..] if is_pattern(name) => rest,
                _ => return,
            };
            match rest {
                [(place, Token::Text(raw)), (_, Token::Mark(',' | ')')), ..] => {
                    found.extend(unescaped(raw).map(|text| (*place, Regex::Literal(text))));
                }
                [
                    (place, Token::Word("vars")),
                    (_, Token::Mark('.')),
                    (_, Token::Word(key)),
                    (_, Token::Mark(',' | ')')),
                    ..,
                ] => {
                    found.push((*place, Regex::Constant((*key).to_owned())));
                }
                _ => {}
            }
        });
        found
    }

    /// The tools that the filter `of` is given as they stand.
    pub(super) fn tools(&self) -> Vec<(usize, &'c str)> {
        let mut found = Vec::new();
        self.each_filter(|name, arguments| {
            if let ("of", [(place, Token::Text(tool)), (_, Token::Mark(')')), ..]) = (name, arguments) {
                found.push((*place, *tool));
            }
        });
        found
    }

    /// Every filter that is given arguments, with what stands behind its bracket.
    fn each_filter(&self, mut look: impl FnMut(&str, &[(usize, Token<'c>)])) {
        for tokens in &self.tokens {
            for at in 0..tokens.len() {
                if let [(_, Token::Mark('|')), (_, Token::Word(name)), (_, Token::Mark('(')), rest @ ..] = &tokens[at..]
                {
                    look(name, rest);
                }
            }
        }
    }
}

/// The line of `source` that the byte `place` is on, from 1.
pub(super) fn line_at(source: &str, place: usize) -> usize {
    source.as_bytes().iter().take(place).filter(|byte| **byte == b'\n').count() + 1
}

/// The insides of `{{ }}` and `{% %}`, each with its place.
fn parts(source: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let mut at = 0;
    while let Some(start) = source[at..].find("{{").into_iter().chain(source[at..].find("{%")).min() {
        let start = at + start;
        let close = if source[start..].starts_with("{{") { "}}" } else { "%}" };
        let Some(length) = source[start + 2..].find(close) else { break };
        parts.push((start + 2, &source[start + 2..start + 2 + length]));
        at = start + length + 4;
    }
    parts
}

fn tokens(start: usize, code: &str) -> Vec<(usize, Token<'_>)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = code[at..].chars().next() {
        let rest = &code[at..];
        let length = if is_part(c) {
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            found.push((start + at, Token::Word(&rest[..length])));
            length
        } else if matches!(c, '\'' | '"') {
            let end = string_end(&rest[1..], c);
            found.push((start + at, Token::Text(&rest[1..1 + end])));
            (end + 2).min(rest.len())
        } else {
            if !c.is_whitespace() {
                found.push((start + at, Token::Mark(c)));
            }
            c.len_utf8()
        };
        at += length;
    }
    found
}

/// Where a string literal ends.
fn string_end(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at,
            _ => {}
        }
    }
    rest.len()
}

/// What a string literal means; nothing if it has an escape that is not read here.
fn unescaped(raw: &str) -> Option<String> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw.chars();
    while let Some(c) = rest.next() {
        let meant = match c {
            '\\' => match rest.next()? {
                same @ ('\\' | '\'' | '"' | '/') => same,
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                // These stand for characters by number; no pattern needs them.
                'u' | 'x' | '0'..='7' => return None,
                other => {
                    out.push('\\');
                    other
                }
            },
            other => other,
        };
        out.push(meant);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_told_from_everything_else() {
        let code = "a.b | f(c=d, e='x | y') if g is not defined and h is h2(i) else j[1:k] == 'l' ~ m(1e5)";
        let mentions = Mentions::of_expression(code);
        let names: Vec<&str> = mentions.names.iter().map(|(_, name)| *name).collect();
        assert_eq!(names, ["a", "d", "g", "h", "i", "j", "k", "m"]);
        assert_eq!(mentions.filters, [(6, "f")]);
        let text = "x | y\n{% if p %}\n{{ q | r }}{% endif %}";
        let mentions = Mentions::of_text(text);
        assert_eq!((mentions.names.len(), mentions.binds), (2, false));
        assert_eq!((mentions.filters[0].1, line_at(text, mentions.filters[0].0)), ("r", 3));
        assert!(Mentions::of_text("{% for a in b %}{% endfor %}").binds);
    }

    #[test]
    fn patterns_and_tools_are_found_where_they_are_written_out() {
        let code =
            r#"a | regex_find("\\d(") or b | regex_replace(vars.c, '(') | map("regex_findall", '[') | regex_find(d)"#;
        let found: Vec<Regex> = Mentions::of_expression(code).patterns().into_iter().map(|(_, found)| found).collect();
        let literal = |text: &str| Regex::Literal(text.to_owned());
        assert_eq!(found, [literal(r"\d("), Regex::Constant("c".to_owned()), literal("[")]);
        let mentions = Mentions::of_expression("results | of('a.b') | of(x) | of('c' ~ y)");
        assert_eq!(mentions.tools().iter().map(|(_, tool)| *tool).collect::<Vec<_>>(), ["a.b"]);
    }

    proptest! {
        #[test]
        fn any_code_is_looked_at(code in "([a-c|.(){}%'\"\\\\ =~é\n-]|is |not |vars|regex_find){0,40}") {
            for mentions in [Mentions::of_expression(&code), Mentions::of_text(&code)] {
                prop_assert!(mentions.names.iter().all(|(place, name)| code[*place..].starts_with(name)));
                mentions.patterns();
                mentions.tools();
            }
        }
    }
}
