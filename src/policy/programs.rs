//! What programs run or write by their arguments: refused options, commands inside the arguments of `find`, `fd` and `git`,
//! and the scripts of `sed` and `awk`.
//!
//! A word that is not known is never taken for an operand, and no command ends earlier than the program ends it.

use crate::judgement::Cause;
use crate::tables::{self, Facts, Options, Rule, has};
use crate::walk::Walk;
use crate::word::{Shape, Word, replace};

impl Walk<'_> {
    /// Checks the options of a program against its rules.
    pub fn options_of(&mut self, facts: &Facts, args: &[Word]) {
        let family = facts.family;
        if facts.rules.is_empty() && !matches!(family, "find" | "fd" | "sed" | "awk" | "uniq") {
            return;
        }
        let mut ended = false;
        for word in &args[1..] {
            let text = &*word.text;
            if let Some(rule) = facts.rules.iter().find(|rule| rule.bare.iter().any(|name| begins(name, text))) {
                self.fault(rule.options.cause, text);
            }
            ended |= text == "--";
            if ended {
                continue;
            }
            if word.shape == Shape::Wild || (word.shape == Shape::Prefixed && may_be_option(text)) {
                self.fault(Cause::DynamicOption, &shown(word));
            }
            let refused = |rule: &&Rule| rule.dashed.iter().any(|name| hits(name, text)) || cluster(rule.options, text);
            if let Some(rule) = facts.rules.iter().filter(|_| text.starts_with('-')).find(refused) {
                self.fault(rule.options.cause, text);
            }
        }
        if family == "uniq" && operands(args) > 1 {
            self.fault(Cause::WriteOption, "uniq");
        }
        // The old style of tar: the first word is a cluster without its dash.
        let old =
            args.get(1).filter(|word| family == "tar" && word.text.contains(['I', 'F']) && !word.text.starts_with('-'));
        if let Some(word) = old {
            self.fault(Cause::RunOption, &word.text);
        }
    }
}

/// Where a command of git has its first word that is no known option: its subcommand, if it is one. And the directories
/// of its `-C`, one below the other; `None` if one is known only when it runs.
pub(crate) fn git_start(args: &[Word]) -> (usize, Option<Vec<&str>>) {
    let (mut at, mut dirs) = (1, Some(Vec::new()));
    while let Some(text) = args.get(at).and_then(Word::value) {
        if has(tables::GIT_VALUES, text) {
            at += 1;
            match (args.get(at).and_then(Word::value), &mut dirs) {
                (Some(dir), Some(dirs)) => dirs.push(dir),
                _ => dirs = None,
            }
        } else if !has(tables::GIT_FLAGS, text) {
            break;
        }
        at += 1;
    }
    (at, dirs)
}

/// True if an interpreter gets its code from the command line or from standard input.
pub(crate) fn is_inline(letters: &str, long: &str, args: &[Word]) -> bool {
    for word in &args[1..] {
        let Some(text) = word.value() else { return true };
        let name = text.split('=').next().unwrap_or_default();
        if has(long, name) || text == "-" {
            return true;
        }
        if !text.starts_with('-') {
            return false;
        }
        if !text.starts_with("--") && text.contains(|c| letters.contains(c)) {
            return true;
        }
        if matches!(name, "-V" | "--version" | "--help" | "-h" | "-m") {
            return false;
        }
    }
    true
}

/// A word that is not known, for a refusal.
fn shown(word: &Word) -> String {
    if word.text.is_empty() { "$…".to_owned() } else { format!("{}…", word.text) }
}

fn operands(args: &[Word]) -> usize {
    args[1..].iter().filter(|word| !word.text.starts_with('-') && !word.text.starts_with('+')).count()
}

/// True if a word with this beginning may become an option that matters.
fn may_be_option(start: &str) -> bool {
    start.is_empty() || (start.starts_with('-') && !(start.starts_with("--") && start.contains('=')))
}

/// True if the argument is the option or an abbreviation of it.
fn hits(name: &str, text: &str) -> bool {
    let given = text.split('=').next().unwrap_or_default();
    match (name.strip_prefix("--"), given.strip_prefix("--")) {
        (Some(long), Some(given)) => !given.is_empty() && long.starts_with(given),
        // Some programs take long names behind one dash.
        (Some(long), None) => given.strip_prefix('-') == Some(long),
        (None, _) => given == name,
    }
}

/// True if any argument may not begin so: `=START`, a scheme anywhere (`ext::`), or a whole word.
fn begins(name: &str, text: &str) -> bool {
    match name.strip_prefix('=') {
        Some(start) => text.starts_with(start),
        None if name.ends_with(':') => contains_ignoring_case(text, name),
        None => text == name,
    }
}

fn contains_ignoring_case(text: &str, part: &str) -> bool {
    text.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}

/// True if a cluster of short options holds one of the rule's letters.
fn cluster(rule: &Options, text: &str) -> bool {
    let Some(letters) = text.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else { return false };
    let end = letters.find(|c| rule.values.contains(c)).unwrap_or(letters.len());
    letters[..end].contains(|c| rule.short.contains(c))
}

/// What `fd` replaces in a command.
const FD_PLACES: &[&str] = &["{}", "{/}", "{//}", "{.}", "{/.}"];

/// Subcommands of git that start an editor or a tool whose name is in a file.
const GIT_TOOLS: &str = "difftool mergetool bisect filter-branch daemon shell web--browse instaweb gui citool \
    send-email imap-send fast-import http-backend upload-pack receive-pack upload-archive archive cvsserver p4 svn \
    credential hook maintenance fsmonitor--daemon remote-ext remote-fd sh-setup";

impl Walk<'_> {
    /// `-exec`, `-ok`, `-delete` and the actions that write files.
    pub fn find(&mut self, args: &[Word]) {
        let mut index = 1;
        while let Some(word) = args.get(index) {
            index += 1;
            if word.shape == Shape::Wild || (word.shape == Shape::Prefixed && matches!(&*word.text, "" | "-")) {
                self.fault(Cause::DynamicOption, "find");
            }
            match &*word.text {
                "-exec" | "-execdir" | "-ok" | "-okdir" => {
                    let rest = &args[index..];
                    let ends = |at: usize, word: &Word| match word.value() {
                        Some(";") => true,
                        // A plus ends the command only behind the braces.
                        Some("+") => at > 0 && rest.get(at - 1).and_then(Word::value) == Some("{}"),
                        _ => false,
                    };
                    let Some(len) = rest.iter().enumerate().position(|(at, word)| ends(at, word)) else {
                        return self.fault(Cause::Ambiguous, &word.text);
                    };
                    if rest[..len].iter().enumerate().any(|(at, word)| word.value() == Some("+") && !ends(at, word)) {
                        return self.fault(Cause::Ambiguous, "+");
                    }
                    let mut inner = rest[..len].to_vec();
                    index += len + 1;
                    replace(&mut inner, "{}");
                    if inner.is_empty() || rest[..len].iter().any(|word| word.shape == Shape::Wild) {
                        return self.fault(Cause::DynamicName, "find");
                    }
                    // Paths that find prints begin with those it was given, so they are options only if those are.
                    self.wrapped("find", |walk| walk.invoke(inner, &[]));
                }
                "-delete" => self.wrapped("find", |walk| walk.invoke(vec![Word::fixed("rm"), Word::unknown()], &[])),
                "-fprint" | "-fprint0" | "-fprintf" | "-fls" => self.fault(Cause::WriteOption, &word.text),
                "-files0-from" => self.fault(Cause::RunOption, &word.text),
                text if word.shape == Shape::Prefixed && text.starts_with('-') => {
                    self.fault(Cause::DynamicOption, text)
                }
                _ => {}
            }
        }
    }

    /// `-x` and `-X`. Only as words of their own: a cluster with these letters is refused.
    pub fn fd(&mut self, args: &[Word]) {
        for (index, word) in args.iter().enumerate().skip(1) {
            let text = &*word.text;
            let short = text.starts_with('-') && !text.starts_with("--");
            let cluster = short && text.len() > 2 && text.contains(['x', 'X']);
            if cluster || (text.starts_with("--exec") && text.contains('=')) {
                return self.fault(Cause::RunOption, text);
            }
            if !matches!(text, "-x" | "-X" | "--exec" | "--exec-batch") {
                continue;
            }
            let rest = &args[index + 1..];
            let len = rest.iter().position(|word| word.value() == Some(";")).unwrap_or(rest.len());
            let mut inner = rest[..len].to_vec();
            let placed = inner.iter().any(|word| FD_PLACES.iter().any(|place| word.text.contains(place)));
            for place in FD_PLACES {
                replace(&mut inner, place);
            }
            if !placed {
                inner.push(Word::unknown());
            }
            // A second command may follow, and bracketed names hold any text: only one plain command is read.
            if len < rest.len() || rest.iter().any(|word| word.shape == Shape::Wild) {
                return self.fault(Cause::Ambiguous, text);
            }
            self.wrapped("fd", |walk| walk.invoke(inner, &[]));
            return;
        }
    }

    /// Subcommands of git that run tools, and keys of its configuration that name programs.
    pub fn git(&mut self, args: &[Word]) {
        // Without subcommands in the policy, the options before the subcommand have not been looked at.
        let start = git_start(args).0;
        let Some(word) = args.get(start) else { return };
        let Some(first) = word.value().filter(|text| !text.starts_with('-')) else {
            return self.fault(Cause::RunOption, &word.text);
        };
        let rest = &args[start + 1..];
        let text = |index: usize| rest.get(index).and_then(|word| word.value()).unwrap_or_default();
        if has(GIT_TOOLS, first) || (first == "submodule" && text(0) == "foreach") {
            return self.fault(Cause::Runner, &format!("git {first}"));
        }
        let letters: &[char] = match first {
            "grep" => &['O'],
            "rebase" => &['x', 'i', 'e'],
            "clone" => &['c', 'u'],
            "commit" | "tag" | "revert" | "cherry-pick" => &['S'],
            "merge" => &['S', 's'],
            _ => &[],
        };
        for word in rest {
            let cluster = word.text.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            // Values may follow the letters that are common before a message or a branch.
            let end = cluster.and_then(|rest| rest.find(['m', 'b', 'B', 'F', 'C', 'A', 'f']));
            if cluster.is_some_and(|rest| rest[..end.unwrap_or(rest.len())].contains(letters)) {
                self.fault(Cause::RunOption, &word.text);
            }
        }
        if first == "config" {
            let read = text(0) == "get" || matches!(text(0), "--get" | "--list" | "-l" | "--get-all" | "--get-regexp");
            let key = rest.iter().map(|word| &*word.text).find(|text| text.contains('.')).unwrap_or_default();
            if !read && !has(tables::GIT_KEYS, &key.to_ascii_lowercase()) {
                self.fault(Cause::RunOption, &format!("git config {key}"));
            }
        }
    }
}

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
