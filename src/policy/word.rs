//! Reads one word of bash: its quotes, its expansions and what is known of its value before it runs.
//!
//! It never guesses: what bash, its versions and other shells may read differently is a fault. Of expansions it accepts plain
//! forms, and none that assigns, follows a name, or has quotes inside whose reading depends on the place or the version.

use crate::judgement::Cause;
use crate::variables;

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

/// The ASCII letters and digits, and `more`.
pub(crate) const fn byte_set(more: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut at = 0;
    while at < 128 {
        set[at] = (at as u8).is_ascii_alphanumeric();
        at += 1;
    }
    at = 0;
    while at < more.len() {
        set[more[at] as usize] = true;
        at += 1;
    }
    set
}

/// Bytes without a meaning to the shell, anywhere in a word.
const PLAIN: [bool; 256] = byte_set(b"_-./,+%@=:");

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

/// Substitutions inside one another, in one word.
const DEPTH_MAX: u8 = 6;

impl Scan<'_> {
    /// Reads what begins with `$` or a backquote.
    pub fn expansion(&mut self, word: &mut Word, place: Place) -> Scanned<()> {
        let one = if place == Place::Bare { Shape::Wild } else { Shape::Prefixed };
        if self.eat("`") {
            let text = self.until('`')?;
            if text.contains('\\') {
                return self.fault(Cause::Ambiguous);
            }
            word.scripts.push(text.to_owned());
            word.becomes(one);
            return Ok(());
        }
        let next = self.rest()[1..].chars().next();
        if self.rest().starts_with("$((") {
            return self.sum(word);
        }
        match next {
            Some('(') => {
                self.at += 2;
                let start = self.at;
                self.nested(Self::skip_script)?;
                if !self.quiet {
                    word.scripts.push(self.src[start..self.at - 1].to_owned());
                }
                word.becomes(one);
            }
            Some('{') => {
                self.at += 2;
                self.nested(|scan| scan.parameter(word, one))?;
            }
            Some('[') => return self.fault(Cause::Ambiguous),
            Some('"') if place == Place::Bare => return self.fault(Cause::Ambiguous),
            Some('\'') if place == Place::Bare => {
                self.at += 2;
                self.ansi(word)?;
            }
            Some('@') => {
                self.at += 2;
                word.becomes(Shape::Wild);
            }
            Some('*' | '#' | '?' | '-' | '$' | '!' | '0'..='9') => {
                self.at += 2;
                word.becomes(one);
            }
            _ => {
                let len = variables::name_len(&self.rest()[1..]);
                self.at += 1 + len;
                if len == 0 {
                    self.push(word, "$");
                } else {
                    word.becomes(one);
                }
            }
        }
        Ok(())
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Scanned<T>) -> Scanned<T> {
        if self.depth >= DEPTH_MAX {
            return self.fault(Cause::TooDeep);
        }
        self.depth += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// `$((…))`. What is no arithmetic inside may be a subshell in a substitution, so it is refused.
    fn sum(&mut self, word: &mut Word) -> Scanned<()> {
        let inner = &self.rest()[3..];
        let Some(len) = variables::sum_extent(inner) else { return self.fault(Cause::Ambiguous) };
        if variables::sum_names(&inner[..len], |_, _| ()).is_err() {
            return self.fault(Cause::Arithmetic);
        }
        word.sums.push(inner[..len].to_owned());
        self.at += len + 5;
        word.becomes(Shape::Prefixed);
        Ok(())
    }

    /// What follows `${`. Only plain forms; an assigning, indirect or transforming one is a fault.
    fn parameter(&mut self, word: &mut Word, one: Shape) -> Scanned<()> {
        let start = self.at;
        if self.rest().starts_with('!') && !self.rest().starts_with("!}") {
            return self.fault(Cause::Expansion);
        }
        let length =
            self.rest().len() > 1 && self.rest().starts_with('#') && !self.rest().starts_with("#}") && self.eat("#");
        let named = variables::name_len(self.rest());
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let special = usize::from(self.rest().starts_with(['@', '*', '#', '?', '$', '!', '-']));
        let len = [named, digits, special].into_iter().max().unwrap_or(0);
        if len == 0 {
            return self.fault(Cause::Ambiguous);
        }
        let mut many = self.rest().starts_with('@');
        self.at += len;
        if named > 0 && self.eat("[") {
            let index = self.until(']')?;
            many |= index == "@";
            if index != "@" && index != "*" {
                self.number(word, index)?;
            }
        }
        word.becomes(if many && !length { Shape::Wild } else { one });
        if self.eat("}") {
            return Ok(());
        }
        let op = ["##", "%%", "//", "/#", "/%", "^^", ",,", "#", "%", "/", "^", ",", ":-", ":+", ":?", "-", "+", "?"];
        if length || special > 0 {
            return self.fault(Cause::Ambiguous);
        }
        if op.iter().any(|op| self.eat(op)) {
            return self.operand(word);
        }
        if self.rest().starts_with(":=") || self.rest().starts_with(['=', '@']) {
            self.at = start;
            return self.fault(Cause::Expansion);
        }
        if !self.eat(":") {
            return self.fault(Cause::Ambiguous);
        }
        let range = self.until('}')?;
        self.number(word, range)
    }

    fn number(&self, word: &mut Word, text: &str) -> Scanned<()> {
        if text.contains(['$', '{', '}']) || variables::sum_names(text, |_, _| ()).is_err() {
            return self.fault(Cause::Arithmetic);
        }
        word.sums.push(text.to_owned());
        Ok(())
    }

    /// The text after the operator of `${…}`. Quotes in it are read differently by place and version.
    fn operand(&mut self, word: &mut Word) -> Scanned<()> {
        let mut inner = Word::default();
        while let Some(c) = self.peek() {
            match c {
                '}' => {
                    self.at += 1;
                    if inner.shape == Shape::Wild {
                        word.becomes(Shape::Wild);
                    }
                    word.scripts.append(&mut inner.scripts);
                    word.sums.append(&mut inner.sums);
                    return Ok(());
                }
                '\'' | '"' | '\\' | '`' | '{' | '<' | '>' | '(' | ')' | '\n' | '&' | '|' | ';' => {
                    return self.fault(Cause::Ambiguous);
                }
                '$' if self.rest().starts_with("$'") || self.rest().starts_with("$\"") => {
                    return self.fault(Cause::Ambiguous);
                }
                '$' => self.expansion(&mut inner, Place::Double)?,
                _ => self.at += c.len_utf8(),
            }
        }
        self.fault(Cause::Syntax)
    }

    /// `$'…'` after its quote. Only escapes that name one character, the same in every version.
    fn ansi(&mut self, word: &mut Word) -> Scanned<()> {
        loop {
            let Some(c) = self.peek() else { return self.fault(Cause::Syntax) };
            self.at += c.len_utf8();
            if c == '\'' {
                return Ok(());
            }
            if c != '\\' {
                self.push(word, c.encode_utf8(&mut [0; 4]));
                continue;
            }
            let Some(escape) = self.peek() else { return self.fault(Cause::Syntax) };
            self.at += escape.len_utf8();
            let plain = match escape {
                'n' => "\n",
                't' => "\t",
                '\\' => "\\",
                '\'' => "'",
                '"' => "\"",
                'e' | 'E' => "\u{1b}",
                'x' => {
                    let hex = self.rest().get(..2).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
                    let code =
                        hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|code| (1..128).contains(code));
                    let Some(code) = code else { return self.fault(Cause::Ambiguous) };
                    self.at += 2;
                    self.push(word, char::from(code).encode_utf8(&mut [0; 4]));
                    continue;
                }
                _ => return self.fault(Cause::Ambiguous),
            };
            self.push(word, plain);
        }
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
