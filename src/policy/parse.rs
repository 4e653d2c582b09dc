//! From text to syntax tree: bounds, then our own tokens, then brush-parser's grammar over its own tokens.
//!
//! The two lexers must agree: a line that they split differently is refused, and so is a bracket, a here-document or a quote
//! whose end is a matter of context. Text whose nesting is not bounded never reaches brush-parser.

use brush_parser::{
    ParserOptions, SourceSpan, Token as Theirs, TokenizerOptions, ast, parse_tokens, uncached_tokenize_str,
};

use crate::judgement::Cause;
use crate::variables;
use crate::word::{Fault, Scan, byte_set};

/// A fault of characters that deceive: those that people and shells read differently.
pub(crate) fn characters(src: &str) -> Result<(), Fault> {
    let hidden = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || (c.is_whitespace() && !matches!(c, ' ' | '\n' | '\t'))
            || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{ffff}'
                | '\u{e0000}'..='\u{e0fff}')
    };
    if src.is_ascii() && !src.bytes().any(|b| b < b' ' && b != b'\n' && b != b'\t' || b == 127) {
        return Ok(());
    }
    match src.char_indices().find(|(_, c)| hidden(*c)) {
        Some((at, _)) => Err(Fault { cause: Cause::Character, at }),
        None => Ok(()),
    }
}

/// Parses a script.
pub(crate) fn script(src: &str) -> Result<ast::Program, Fault> {
    let ours = tokens(src)?;
    let options = ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() };
    let tokenizer = TokenizerOptions { enable_extended_globbing: false, ..TokenizerOptions::default() };
    let syntax = |_| Fault { cause: Cause::Syntax, at: 0 };
    if is_flat(src) {
        let place = SourceSpan::default();
        let token = |token: &Token<'_>| match token.operator {
            true => Theirs::Operator(token.text.to_owned(), place.clone()),
            false => Theirs::Word(token.text.to_owned(), place.clone()),
        };
        let tokens: Vec<Theirs> = ours.iter().map(token).collect();
        return parse_tokens(&tokens, &options).map_err(syntax);
    }
    let theirs = uncached_tokenize_str(src, &tokenizer).map_err(|_| Fault { cause: Cause::Syntax, at: 0 })?;
    let differs = ours.iter().zip(&theirs).position(|(ours, theirs)| !same(ours, theirs));
    let differs = differs.or((ours.len() != theirs.len()).then_some(ours.len().min(theirs.len())));
    if let Some(index) = differs {
        let at = ours.get(index).map_or(0, |token| token.text.as_ptr() as usize - src.as_ptr() as usize);
        return Err(Fault { cause: Cause::Ambiguous, at });
    }
    parse_tokens(&theirs, &options).map_err(syntax)
}

/// True for text of words, quotes, lists, plain `$name` and the `{}` of `find` alone: a second lexer can find nothing in
/// it, and is half of the cost.
fn is_flat(src: &str) -> bool {
    let bytes = src.as_bytes();
    let name = |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let flat = |(at, b): (usize, &u8)| match b {
        b'$' => name(at + 1),
        b'{' => bytes.get(at + 1) == Some(&b'}'),
        b'}' => at > 0 && bytes[at - 1] == b'{',
        _ => FLAT[usize::from(*b)],
    };
    bytes.iter().enumerate().all(flat)
}

/// Bytes that are letters of a word, quotes, blanks or operators of lists, wherever they are.
const FLAT: [bool; 256] = byte_set(b" \n_-./,:+%@='\"|;&*?!^~");

/// Equal but for blanks and backslashes: brush-parser drops line continuations and joins blanks in substitutions.
fn same(ours: &Token<'_>, theirs: &Theirs) -> bool {
    let kept = |b: &u8| !matches!(b, b' ' | b'\t' | b'\n' | b'\\');
    let operator = matches!(theirs, Theirs::Operator(..));
    let (a, b) = (ours.text, theirs.to_str());
    ours.operator == operator && (a == b || a.bytes().filter(kept).eq(b.bytes().filter(kept)))
}

/// Parentheses inside one another.
const PARENS_MAX: usize = 8;
/// Words that open a compound command, in one script: bounds the parser's recursion.
const OPENERS_MAX: usize = 48;
/// The parser reads the last item of a `case` twice, so that nesting doubles its time.
const CASES_MAX: usize = 4;

/// One token. Its text is as in the source, but for line continuations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub operator: bool,
    pub text: &'a str,
}

const OPERATORS: &[&str] = &[
    "&>>", ";;&", "<<<", "<<-", "&&", "&>", "||", "|&", ";;", ";&", "<<", ">>", "<&", ">&", "<>", ">|", "&", "(", ")",
    ";", "|", "<", ">",
];

struct Document<'a> {
    /// Where the token of its tag is.
    index: usize,
    tag: &'a str,
    literal: bool,
    tabs: bool,
}

/// The tokens of a script.
pub(crate) fn tokens(src: &str) -> Result<Vec<Token<'_>>, Fault> {
    let mut lexer = Lexer::new(Scan::new(src), false);
    lexer.run()?;
    if lexer.parens.is_empty() && lexer.documents.is_empty() {
        Ok(lexer.tokens)
    } else {
        lexer.scan.fault(Cause::Syntax)
    }
}

impl Scan<'_> {
    /// Moves behind the parenthesis that closes a command substitution.
    pub fn skip_script(&mut self) -> Result<(), Fault> {
        let mut lexer = Lexer::new(*self, true);
        let closed = lexer.run()?;
        self.at = lexer.scan.at;
        if closed { Ok(()) } else { self.fault(Cause::Syntax) }
    }
}

struct Lexer<'a> {
    scan: Scan<'a>,
    /// In a command substitution.
    inner: bool,
    tokens: Vec<Token<'a>>,
    documents: Vec<Document<'a>>,
    /// For each open parenthesis: is it a process substitution?
    parens: Vec<bool>,
    openers: usize,
    cases: usize,
    /// Up to here the source is arithmetic.
    sum_end: usize,
    /// The last token ends here.
    end: usize,
}

impl<'a> Lexer<'a> {
    fn new(scan: Scan<'a>, inner: bool) -> Self {
        let (tokens, documents, parens) = Default::default();
        let scan = Scan { quiet: true, ..scan };
        Self { scan, inner, tokens, documents, parens, openers: 0, cases: 0, sum_end: 0, end: usize::MAX }
    }

    /// True if it ended at a closing parenthesis.
    fn run(&mut self) -> Result<bool, Fault> {
        while let Some(c) = self.scan.peek() {
            match c {
                ' ' | '\t' => self.scan.at += 1,
                '\\' if self.scan.rest().starts_with("\\\n") => self.continued()?,
                '\n' => self.newline()?,
                '#' => self.comment()?,
                '&' | '|' | ';' | '<' | '>' | '(' | ')' => {
                    if self.operator()? {
                        return Ok(true);
                    }
                }
                _ => self.word()?,
            }
        }
        Ok(false)
    }

    /// A line continuation between tokens. One that is glued to a token might join two of them.
    fn continued(&mut self) -> Result<(), Fault> {
        let before = self.scan.src[..self.scan.at].chars().next_back();
        if before.is_some_and(|c| !matches!(c, ' ' | '\t' | '\n')) {
            return self.scan.fault(Cause::Ambiguous);
        }
        self.scan.at += 2;
        Ok(())
    }

    fn comment(&mut self) -> Result<(), Fault> {
        if self.inner || self.scan.at < self.sum_end {
            return self.scan.fault(Cause::Ambiguous);
        }
        self.scan.at += self.scan.rest().find('\n').unwrap_or(self.scan.rest().len());
        Ok(())
    }

    fn push(&mut self, operator: bool, start: usize) {
        self.end = self.scan.at;
        self.tokens.push(Token { operator, text: &self.scan.src[start..self.scan.at] });
    }

    fn newline(&mut self) -> Result<(), Fault> {
        let start = self.scan.at;
        self.scan.at += 1;
        self.push(true, start);
        let documents = std::mem::take(&mut self.documents);
        let mut bodies = Vec::new();
        for document in &documents {
            bodies.push(self.body(document)?);
        }
        for (document, [body, tag]) in documents.iter().zip(bodies).rev() {
            let pair = [body, tag].map(|text| Token { operator: false, text });
            self.tokens.splice(document.index + 1..document.index + 1, pair);
        }
        Ok(())
    }

    /// The body of a here-document, and its last line without tabs.
    fn body(&mut self, document: &Document<'a>) -> Result<[&'a str; 2], Fault> {
        let start = self.scan.at;
        loop {
            let rest = self.scan.rest();
            if rest.is_empty() {
                return self.scan.fault(Cause::Ambiguous);
            }
            let line = rest.split('\n').next().unwrap_or_default();
            let bare = if document.tabs { line.trim_start_matches('\t') } else { line };
            let body = &self.scan.src[start..self.scan.at];
            self.scan.at += (line.len() + 1).min(rest.len());
            if bare == document.tag {
                if !document.literal && body.contains("\\\n") {
                    return self.scan.fault(Cause::Ambiguous);
                }
                return Ok([body, bare]);
            }
        }
    }

    /// True at the parenthesis that closes the substitution.
    fn operator(&mut self) -> Result<bool, Fault> {
        let start = self.scan.at;
        let glued = self.end == start && self.tokens.last().is_some_and(|token| !token.operator);
        let last = self.tokens.last().map_or("", |token| token.text);
        let text = OPERATORS.iter().find(|op| self.scan.eat(op)).copied().unwrap_or_default();
        if self.scan.rest().starts_with("\\\n") {
            return self.scan.fault(Cause::Ambiguous);
        }
        if text == ")" && self.inner && self.parens.is_empty() {
            return Ok(true);
        }
        if start >= self.sum_end {
            match text {
                "(" => self.open(last, start, glued)?,
                ")" => self.close()?,
                "<<" | "<<-" => {
                    self.push(true, start);
                    self.tag(text == "<<-")?;
                    return Ok(false);
                }
                _ if text.contains(['<', '>']) && glued => {
                    let number = last.bytes().all(|b| b.is_ascii_digit());
                    if last.starts_with('{') || (number && last.len() > 3) {
                        return self.scan.fault(Cause::Ambiguous);
                    }
                }
                _ => {}
            }
        } else if text.starts_with("<<") || text == ";;" {
            return self.scan.fault(Cause::Ambiguous);
        }
        // A process substitution is part of the word that it touches.
        if matches!(text, "<" | ">") && self.scan.rest().starts_with('(') && (glued || start < self.sum_end) {
            return self.scan.fault(Cause::Ambiguous);
        }
        self.push(true, start);
        Ok(false)
    }

    fn open(&mut self, last: &str, start: usize, glued: bool) -> Result<(), Fault> {
        let touches = self.end == start;
        if last == "(" && self.tokens.last().is_some_and(|token| token.operator) {
            return self.scan.fault(Cause::Ambiguous);
        }
        let process = matches!(last, "<" | ">");
        // Bash wants `name()` or `name=(`; a bracket after any other word means something else.
        if (process && !touches) || (glued && !last.ends_with('=') && !self.scan.rest().trim_start().starts_with(')')) {
            return self.scan.fault(Cause::Ambiguous);
        }
        if self.scan.rest().starts_with('(') {
            let inner = &self.scan.rest()[1..];
            let len = variables::sum_extent(inner).filter(|_| !process && !glued);
            let Some(len) = len else { return self.scan.fault(Cause::Ambiguous) };
            let parts = inner[..len].split(';');
            if parts.clone().any(|part| variables::sum_names(part, |_, _| ()).is_err()) {
                return self.scan.fault(Cause::Arithmetic);
            }
            self.sum_end = self.scan.at + 1 + len + 2;
            return Ok(());
        }
        if self.parens.len() >= PARENS_MAX {
            return self.scan.fault(Cause::TooDeep);
        }
        self.parens.push(process);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        let process = self.parens.pop();
        let next = self.scan.peek();
        let touches = next.is_some_and(|c| !matches!(c, ' ' | '\t' | '\n' | '&' | '|' | ';' | '<' | '>' | '(' | ')'));
        if (process.is_none() && self.cases == 0) || (process == Some(true) && touches) {
            return self.scan.fault(Cause::Ambiguous);
        }
        Ok(())
    }

    /// The tag of a here-document: a plain name, bare or in one pair of quotes.
    fn tag(&mut self, tabs: bool) -> Result<(), Fault> {
        self.scan.at += self.scan.rest().len() - self.scan.rest().trim_start_matches([' ', '\t']).len();
        let start = self.scan.at;
        let quote = self.scan.peek().filter(|c| matches!(c, '\'' | '"'));
        let inner = self.scan.rest().trim_start_matches(['\'', '"']);
        let len = inner.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let tag = &inner[..len];
        self.scan.at += len + quote.map_or(0, |_| 2);
        let whole = self.scan.src.get(start..self.scan.at).unwrap_or_default();
        let wanted = quote.map_or(tag.to_owned(), |quote| format!("{quote}{tag}{quote}"));
        let ends = self.scan.peek().is_none_or(|c| matches!(c, ' ' | '\t' | '\n' | '&' | '|' | ';' | '<' | '>' | ')'));
        if self.inner || tag.is_empty() || whole != wanted || !ends {
            self.scan.at = start;
            return self.scan.fault(Cause::Ambiguous);
        }
        self.push(false, start);
        self.documents.push(Document { index: self.tokens.len() - 1, tag, literal: quote.is_some(), tabs });
        Ok(())
    }

    fn word(&mut self) -> Result<(), Fault> {
        let start = self.scan.at;
        self.scan.word()?;
        let text = &self.scan.src[start..self.scan.at];
        let fault = |cause| Err(Fault { cause, at: start });
        match text {
            "case" | "esac" if self.inner || !self.parens.is_empty() => return fault(Cause::Ambiguous),
            "case" => self.cases += 1,
            "{" | "if" | "elif" | "for" | "while" | "until" | "[[" | "!" | "function" | "coproc" => self.openers += 1,
            _ => {}
        }
        if self.openers > OPENERS_MAX || self.cases > CASES_MAX {
            return fault(Cause::TooDeep);
        }
        if !self.documents.is_empty() && text.contains('\n') || odd_subscript(text) {
            return fault(Cause::Ambiguous);
        }
        self.push(false, start);
        Ok(())
    }
}

/// True for `name[` with anything but a plain subscript: bash may take it for an assignment and evaluate it.
fn odd_subscript(text: &str) -> bool {
    let name = variables::name_len(text);
    let Some(inner) = text[name..].strip_prefix('[').filter(|_| name > 0) else { return false };
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_!^.-@*".contains(&b);
    !inner.split_once(']').is_some_and(|(index, _)| index.bytes().all(plain))
}
