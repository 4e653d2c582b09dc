//! Programs whose arguments hold other commands: `find`, `fd` and `git`.
//!
//! It must never end a command inside the arguments earlier than the program does.

use crate::refusal::Cause;
use crate::tables::{self, has};
use crate::walk::Walk;
use crate::word::{Shape, Word};
use crate::wrappers;

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
                    wrappers::replace(&mut inner, "{}");
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
                wrappers::replace(&mut inner, place);
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
        let mut rest = args.iter().skip(1);
        let first = loop {
            match rest.next() {
                None => return,
                Some(word) => match word.value() {
                    Some(text) if has(tables::GIT_VALUES, text) => {
                        rest.next();
                    }
                    Some(text) if has(tables::GIT_FLAGS, text) => {}
                    Some(text) if !text.starts_with('-') => break text,
                    _ => return self.fault(Cause::RunOption, &word.text),
                },
            }
        };
        let rest: Vec<&Word> = rest.collect();
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
        for word in &rest {
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
