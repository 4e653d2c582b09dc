//! Reads the scripts of `sed` and `awk` far enough to know that they only edit text.
//!
//! It accepts a small subset. It must never accept a script that runs a command or names a file.

use crate::refusal::Cause;
use crate::walk::Walk;
use crate::word::{Shape, Word};

/// What awk uses to run commands, to open files, to load code or to call by name.
const AWK_REFUSED: &[&str] = &["system", "getline", "|", ">", "@", "close", "fflush", "ARGV", "ENVIRON[", "\\\n"];

impl Walk<'_> {
    /// Accepts `-n`, `-E`, `-r`, `-s`, `-u`, `-z`, `-i` and scripts of the subset.
    pub fn sed(&mut self, args: &[Word]) {
        let mut scripts = Vec::new();
        let mut operands = Vec::new();
        let mut words = args.iter().skip(1);
        while let Some(word) = words.next() {
            match &*word.text {
                "-e" | "--expression" => scripts.extend(words.next()),
                "--" => operands.extend(words.by_ref()),
                "--quiet" | "--silent" | "--regexp-extended" | "--null-data" | "--separate" | "--posix" | "--debug"
                | "--sandbox" | "--in-place" | "-" => {}
                text if !text.starts_with('-') => operands.push(word),
                text if word.shape == Shape::Static && text[1..].bytes().all(|b| b"nErsuzi".contains(&b)) => {}
                text => return self.fault(Cause::Script, text),
            }
        }
        if scripts.is_empty() && !operands.is_empty() {
            scripts.push(operands.remove(0));
        }
        for script in scripts {
            if !script.value().is_some_and(sed_is_plain) {
                self.fault(Cause::Script, &script.text);
            }
        }
    }

    /// Accepts `-F`, `-v` and a program without any of the refused words.
    pub fn awk(&mut self, args: &[Word]) {
        let mut words = args.iter().skip(1);
        let program = loop {
            let Some(word) = words.next() else { return };
            match &*word.text {
                "-F" | "-v" => {
                    words.next();
                }
                "--" => break words.next(),
                "--version" | "--help" => return,
                text if text.starts_with("-F") || text.starts_with("-v") => {}
                text if text.starts_with('-') => return self.fault(Cause::Script, text),
                _ => break Some(word),
            }
        };
        // Some versions read options behind the program too.
        if let Some(option) = words.find(|word| word.text.starts_with('-') && word.text != "-") {
            self.fault(Cause::Script, &option.text);
        }
        let plain = |text: &str| {
            let text = text.replace("||", "").replace(">=", "");
            !AWK_REFUSED.iter().any(|refused| text.contains(refused))
        };
        if let Some(program) = program
            && !program.value().is_some_and(plain)
        {
            self.fault(Cause::Script, &program.text);
        }
    }
}

/// True for commands of `p`, `d`, `q`, `=`, `s` and `y` with addresses of numbers, `$` and `/patterns/`.
fn sed_is_plain(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', ';']);
        if rest.is_empty() {
            return true;
        }
        let Some(after) = sed_address(rest) else { return false };
        let mut letters = after.trim_start_matches([' ', '!']).chars();
        rest = match letters.next() {
            Some('p' | 'P' | 'd' | 'D' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | '=') => letters.as_str(),
            Some('q' | 'Q') => letters.as_str().trim_start_matches([' ', '0', '1', '2', '3']),
            Some(command @ ('s' | 'y')) => {
                let Some(mark @ ('/' | '|' | '#' | ',' | '@' | '%' | '!' | ':')) = letters.next() else { return false };
                let Some(second) = sed_part(letters.as_str(), mark).and_then(|rest| sed_part(rest, mark)) else {
                    return false;
                };
                let flags = if command == 's' { "gpiI0123456789" } else { "" };
                second.trim_start_matches(|c| flags.contains(c))
            }
            _ => return false,
        };
        if !rest.is_empty() && !rest.trim_start_matches([' ', '\t']).starts_with([';', '\n']) && !rest.trim().is_empty()
        {
            return false;
        }
    }
}

/// What follows the address.
fn sed_address(script: &str) -> Option<&str> {
    let mut rest = script;
    loop {
        rest = match rest.chars().next() {
            Some('/') => sed_part(&rest[1..], '/')?.trim_start_matches('I'),
            Some('0'..='9' | '$' | ',' | '~' | '+' | ' ') => &rest[1..],
            _ => return Some(rest),
        };
    }
}

/// What follows the next mark that is not escaped. A bracket could hide a mark, from some versions only.
fn sed_part(text: &str, mark: char) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\n' => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == mark => {
                let part = &text[..at];
                let hides = part.split('[').skip(1).any(|set| !set.contains(']'));
                return (!hides).then(|| &text[at + c.len_utf8()..]);
            }
            _ => {}
        }
    }
    None
}
