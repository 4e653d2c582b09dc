//! Reads one word of bash: its quotes, its expansions and what is known of its value before it runs.
//!
//! It must never guess: what bash, its versions and other shells may read differently is a fault.

use crate::refusal::Cause;

/// What is wrong, and at which byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub cause: Cause,
    pub at: usize,
}

/// What the word can become. A later one is less certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Shape {
    /// Exactly [`Word::text`].
    #[default]
    Static,
    /// One word or more, each of which begins with [`Word::text`].
    Prefixed,
    /// Any number of any words.
    Wild,
}

/// A word after quotes are removed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Word {
    /// The value, or its known beginning.
    pub text: String,
    pub shape: Shape,
    /// Commands of substitutions.
    pub scripts: Vec<String>,
    /// Arithmetic expressions, subscripts and offsets.
    pub sums: Vec<String>,
}

impl Word {
    /// A word with a value that is known.
    pub fn fixed(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// A word about which nothing is known.
    pub fn unknown() -> Self {
        Self { shape: Shape::Wild, ..Self::default() }
    }

    /// The value, if it is known.
    pub fn into_value(self) -> Option<String> {
        (self.shape == Shape::Static).then_some(self.text)
    }

    /// The value, if it is known.
    pub fn value(&self) -> Option<&str> {
        (self.shape == Shape::Static).then_some(&*self.text)
    }

    pub fn becomes(&mut self, shape: Shape) {
        self.shape = self.shape.max(shape);
    }
}

/// Bytes without a meaning to the shell, anywhere in a word.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        plain[byte] = (byte as u8).is_ascii_alphanumeric()
            || matches!(byte as u8, b'_' | b'-' | b'.' | b'/' | b',' | b'+' | b'%' | b'@' | b'=' | b':');
        byte += 1;
    }
    plain
};

/// Where the scanner is inside a word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Bare,
    Double,
    Document,
}

/// A position in a line.
#[derive(Clone, Copy)]
pub(crate) struct Scan<'a> {
    pub src: &'a str,
    pub at: usize,
    pub depth: u8,
    /// Only the end of words is wanted, not what they hold.
    pub quiet: bool,
}

/// A value, or where and why there is none.
pub(crate) type Scanned<T> = Result<T, Fault>;

impl<'a> Scan<'a> {
    pub fn new(src: &'a str) -> Self {
        Self { src, at: 0, depth: 0, quiet: false }
    }

    pub fn rest(&self) -> &'a str {
        self.src.get(self.at..).unwrap_or_default()
    }

    pub fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub fn fault<T>(&self, cause: Cause) -> Scanned<T> {
        Err(Fault { cause, at: self.at })
    }

    pub fn push(&self, word: &mut Word, text: &str) {
        if !self.quiet && word.shape == Shape::Static {
            word.text.push_str(text);
        }
    }

    /// Takes the rest up to the byte, and the byte.
    pub fn until(&mut self, end: char) -> Scanned<&'a str> {
        let Some(len) = self.rest().find(end) else { return self.fault(Cause::Syntax) };
        let text = &self.rest()[..len];
        self.at += len + end.len_utf8();
        Ok(text)
    }

    pub fn eat(&mut self, text: &str) -> bool {
        let hit = self.rest().starts_with(text);
        self.at += if hit { text.len() } else { 0 };
        hit
    }

    /// Reads a bare word, up to a blank or an operator.
    pub fn word(&mut self) -> Scanned<Word> {
        let start = self.at;
        let mut word = Word::default();
        while let Some(c) = self.peek() {
            let run = self.rest().bytes().take_while(|b| PLAIN[usize::from(*b)]).count();
            if run > 0 {
                let text = &self.rest()[..run];
                self.at += run;
                self.push(&mut word, text);
                continue;
            }
            match c {
                ' ' | '\t' | '\n' | '&' | '|' | ';' | '<' | '>' | '(' | ')' => break,
                '\'' => {
                    self.at += 1;
                    let text = self.until('\'')?;
                    self.push(&mut word, text);
                }
                '"' => {
                    self.at += 1;
                    self.quoted(&mut word, Place::Double)?;
                }
                '\\' => self.escape(&mut word, Place::Bare)?,
                '$' | '`' => self.expansion(&mut word, Place::Bare)?,
                // A lone bracket is the name of a command, and a lone brace a word of the grammar.
                '*' | '?' | '[' if c != '[' || self.at > start + 1 || !lone_bracket(&self.src[start..]) => {
                    self.vague(&mut word, c)
                }
                '{' if !lone_brace(&self.src[start..], self.at - start) => self.vague(&mut word, c),
                '~' if self.at == start || self.src[..self.at].ends_with(['=', ':']) => {
                    self.push(&mut word, "~");
                    self.vague(&mut word, c);
                }
                _ => {
                    self.at += c.len_utf8();
                    self.push(&mut word, c.encode_utf8(&mut [0; 4]));
                }
            }
        }
        Ok(word)
    }

    fn vague(&mut self, word: &mut Word, c: char) {
        word.becomes(Shape::Prefixed);
        self.at += c.len_utf8();
    }

    /// Reads the body of an unquoted here-document.
    pub fn document(&mut self) -> Scanned<Word> {
        let mut word = Word::default();
        self.quoted(&mut word, Place::Document)?;
        Ok(word)
    }

    /// Reads double-quoted text and its end, or a here-document up to the end of the source.
    fn quoted(&mut self, word: &mut Word, place: Place) -> Scanned<()> {
        while let Some(c) = self.peek() {
            let run = self.rest().bytes().take_while(|b| !matches!(b, b'"' | b'\\' | b'$' | b'`')).count();
            if run > 0 {
                let text = &self.rest()[..run];
                self.at += run;
                self.push(word, text);
                continue;
            }
            match c {
                '"' if place == Place::Double => {
                    self.at += 1;
                    return Ok(());
                }
                '\\' => self.escape(word, place)?,
                '$' | '`' => self.expansion(word, place)?,
                _ => {
                    self.at += c.len_utf8();
                    self.push(word, c.encode_utf8(&mut [0; 4]));
                }
            }
        }
        if place == Place::Double { self.fault(Cause::Syntax) } else { Ok(()) }
    }

    fn escape(&mut self, word: &mut Word, place: Place) -> Scanned<()> {
        let Some(next) = self.rest()[1..].chars().next() else { return self.fault(Cause::Syntax) };
        self.at += 1 + next.len_utf8();
        let special = match place {
            Place::Bare => true,
            Place::Double => matches!(next, '$' | '`' | '"' | '\\' | '\n'),
            Place::Document => matches!(next, '$' | '`' | '\\'),
        };
        if !special {
            self.push(word, "\\");
        }
        if next != '\n' || !special {
            self.push(word, next.encode_utf8(&mut [0; 4]));
        }
        Ok(())
    }
}

/// True if the word is `[` or `[[`, up to a blank.
fn lone_bracket(word: &str) -> bool {
    let rest = word.trim_start_matches('[');
    word.len() - rest.len() < 3 && rest.chars().next().is_none_or(|c| matches!(c, ' ' | '\t' | '\n'))
}

/// True if the brace at this byte cannot begin a brace expansion.
fn lone_brace(word: &str, at: usize) -> bool {
    let after = word[at + 1..].chars().next();
    after == Some('}') || (at == 0 && after.is_none_or(|c| matches!(c, ' ' | '\t' | '\n')))
}
