//! Reads shell arithmetic far enough to know which variables it uses.
//!
//! Bash evaluates the value of a variable in arithmetic as arithmetic again, subscripts with command substitutions
//! included: `x='a[$(rm f)]'; echo $((x))` removes `f`. So this module must never accept a substitution, a quote, a
//! subscript or a positional parameter; the caller checks that the variables hold numbers.

use crate::refusal::Cause;

/// Parentheses inside one another.
const PARENS_MAX: u32 = 8;

/// How a variable is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its value is evaluated.
    Read,
    /// It gets a number.
    Write,
}

/// The length of the name at the start of the text; 0 if there is none.
pub(crate) fn name_len(text: &str) -> usize {
    let first = text.bytes().next();
    if !first.is_some_and(|b| b.is_ascii_alphabetic() || b == b'_') {
        return 0;
    }
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()
}

/// Reports every variable of the expression.
pub(crate) fn names(text: &str, mut used: impl FnMut(&str, Use)) -> Result<(), Cause> {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skip = match first {
            '0'..='9' => rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || b"_#@".contains(b)).count(),
            '$' => parameter(&rest[1..], &mut used)? + 1,
            _ if name_len(rest) > 0 => {
                let len = name_len(rest);
                let name = &rest[..len];
                used(name, Use::Read);
                if assigns(rest[len..].trim_start()) || text[..text.len() - rest.len()].trim_end().ends_with(['+', '-'])
                {
                    used(name, Use::Write);
                }
                len
            }
            ' ' | '\t' | '\n' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' | '&' | '|' | '^' | '~' | '?'
            | ':' | ',' | '(' | ')' => 1,
            _ => return Err(Cause::Arithmetic),
        };
        rest = &rest[skip..];
    }
    Ok(())
}

/// `$x`, `${x}`, `${#x}`, `${#x[@]}`, `$#`, `$?`, `$$`, `$!`; what follows the dollar sign.
fn parameter(rest: &str, used: &mut impl FnMut(&str, Use)) -> Result<usize, Cause> {
    let plain = name_len(rest);
    if plain > 0 {
        used(&rest[..plain], Use::Read);
        return Ok(plain);
    }
    if rest.starts_with(['#', '?', '$', '!']) {
        return Ok(1);
    }
    let inner = rest.strip_prefix('{').and_then(|r| r.split_once('}')).ok_or(Cause::Arithmetic)?.0;
    let length = inner.strip_prefix('#');
    let name = length.map_or(inner, |name| name.trim_end_matches("[@]"));
    if name_len(name) != name.len() || name.is_empty() {
        return Err(Cause::Arithmetic);
    }
    if length.is_none() {
        used(name, Use::Read);
    }
    Ok(inner.len() + 2)
}

/// True if an assignment operator comes next.
fn assigns(rest: &str) -> bool {
    let op = rest.trim_start_matches(['*', '/', '%', '+', '-', '<', '>', '&', '^', '|']);
    (op.starts_with('=') && !op.starts_with("==")) || rest.starts_with("++") || rest.starts_with("--")
}

/// The length of the expression before its unnested `))`; `None` if it has none or is no arithmetic.
pub(crate) fn extent(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' if depth < PARENS_MAX => depth += 1,
            b'(' => return None,
            b')' if depth > 0 => depth -= 1,
            b')' => return (bytes.get(at + 1) == Some(&b')')).then_some(at),
            b'\'' | b'"' | b'\\' | b'`' => return None,
            _ => {}
        }
    }
    None
}
