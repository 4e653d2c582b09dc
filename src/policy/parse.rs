//! From text to syntax tree: bounds, then our own tokens, then brush-parser's grammar over its own tokens.
//!
//! It must never hand text to brush-parser whose nesting is not bounded, and never return a tree of tokens that the
//! two lexers do not agree on.

use brush_parser::{
    ParserOptions, SourceSpan, Token as Theirs, TokenizerOptions, ast, parse_tokens, uncached_tokenize_str,
};

use crate::lexer::{self, Token};
use crate::refusal::Cause;
use crate::word::Fault;

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
    let ours = lexer::tokens(src)?;
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
const FLAT: [bool; 256] = {
    let mut flat = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        flat[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b' ' | b'\n'
                    | b'_'
                    | b'-'
                    | b'.'
                    | b'/'
                    | b','
                    | b':'
                    | b'+'
                    | b'%'
                    | b'@'
                    | b'='
                    | b'\''
                    | b'"'
                    | b'|'
                    | b';'
                    | b'&'
                    | b'*'
                    | b'?'
                    | b'!'
                    | b'^'
                    | b'~'
            );
        byte += 1;
    }
    flat
};

/// Equal but for blanks and backslashes: brush-parser drops line continuations and joins blanks in substitutions.
fn same(ours: &Token<'_>, theirs: &Theirs) -> bool {
    let kept = |b: &u8| !matches!(b, b' ' | b'\t' | b'\n' | b'\\');
    let operator = matches!(theirs, Theirs::Operator(..));
    let (a, b) = (ours.text, theirs.to_str());
    ours.operator == operator && (a == b || a.bytes().filter(kept).eq(b.bytes().filter(kept)))
}
