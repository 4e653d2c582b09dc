//! Reads expansions inside a word: `$name`, `${…}`, `$(…)`, backquotes, `$((…))` and `$'…'`.
//!
//! It accepts plain forms. It must never accept one that assigns, follows a name, or has quotes inside whose reading
//! depends on the place or the version of bash.

use crate::arithmetic;
use crate::refusal::Cause;
use crate::word::{Place, Scan, Scanned, Shape, Word};

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
                let len = arithmetic::name_len(&self.rest()[1..]);
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
        let Some(len) = arithmetic::extent(inner) else { return self.fault(Cause::Ambiguous) };
        if arithmetic::names(&inner[..len], |_, _| ()).is_err() {
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
        let named = arithmetic::name_len(self.rest());
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
        if text.contains(['$', '{', '}']) || arithmetic::names(text, |_, _| ()).is_err() {
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
