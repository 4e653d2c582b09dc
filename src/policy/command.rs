//! Judges one simple command: finds what its name means, unwraps `env`, `timeout`, `xargs` and the like, judges its
//! redirections, and asks the policy.
//!
//! No command passes without an entry in the judgement, and no word whose meaning is not known is skipped.

use brush_parser::ast::{self, Assignment, IoFileRedirectTarget, IoRedirect};

use crate::judgement::{Action, Cause, TierName};
use crate::policy::Decision;
use crate::programs::{git_start, is_inline};
use crate::tables::{self, Facts, Wrapper, has};
use crate::variables::assignable;
use crate::walk::{Found, Walk};
use crate::word::{Scan, Shape, Word, replace};

/// Where programs are. A path elsewhere is a script of the workspace.
const BIN: &[&str] = &["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin"];

/// A name with a slash.
enum Place {
    /// The name of an installed program.
    Installed(String),
    /// The last part of the name of something else.
    Workspace(String),
}

fn locate(path: &str) -> Place {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let base = parts.pop().unwrap_or_default().to_owned();
    let folder = format!("/{}", parts.join("/"));
    if path.starts_with('/') && BIN.contains(&&*folder) { Place::Installed(base) } else { Place::Workspace(base) }
}

impl Walk<'_> {
    /// Judges a command. `arrays`: array assignments among its arguments.
    pub fn invoke(&mut self, mut args: Vec<Word>, arrays: &[&Assignment]) {
        self.tier = TierName::Default;
        let name = match args.first().and_then(Word::value) {
            Some(name) if is_plain(name) => name.to_owned(),
            _ => {
                let text = args.first().map(|word| word.text.clone()).unwrap_or_default();
                return self.fault(Cause::DynamicName, &text);
            }
        };
        if !arrays.is_empty() && !has("export local declare typeset readonly", &name) {
            return self.fault(Cause::Syntax, &name);
        }
        if !name.contains('/') {
            if self.chain.is_empty() && self.functions.contains(&name) {
                let decision = Decision { tier: TierName::Function, action: Action::Allow, max_timeout_ms: None };
                return self.push(&name, args, decision);
            }
            let facts = tables::facts(&name);
            if facts.is_some_and(|facts| facts.builtin || facts.shell) || name == "." || name == "source" {
                for assignment in arrays {
                    self.assignment(assignment, true);
                }
                return self.builtin(&name, facts, args);
            }
            return self.installed(&name, facts, args);
        }
        match locate(&name) {
            Place::Installed(base) => {
                if let Some(first) = args.first_mut() {
                    *first = Word::fixed(&base);
                }
                self.installed(&base, tables::facts(&base), args);
            }
            Place::Workspace(base) => self.workspace_script(&name, &base, args, ""),
        }
    }

    /// A program of the workspace: it asks, unless a tier lists its path, or denies its name. `shell` reads it; empty if
    /// its first line decides.
    pub fn workspace_script(&mut self, path: &str, base: &str, args: Vec<Word>, shell: &'static str) {
        let own = Decision { tier: TierName::Workspace, action: Action::Ask, max_timeout_ms: None };
        let by_name = self.view.worst(base);
        let decision = match self.view.listed(path, None) {
            Some(listed) => listed,
            None if by_name.action == Action::Deny => by_name,
            None => own,
        };
        self.push(path, args, decision);
        if let Some(found) = self.commands.last_mut() {
            found.script = Some(shell);
        }
        if is_loader(base) {
            self.fault(Cause::Runner, path);
        }
    }

    /// A program on the search path.
    fn installed(&mut self, name: &str, facts: Option<&'static Facts>, args: Vec<Word>) {
        if let Some(wrapper) = facts.and_then(|facts| facts.wrapper) {
            return self.unwrap_command(wrapper, args);
        }
        if facts.is_some_and(|facts| facts.code) {
            return self.interpreter_of_shell(name, args);
        }
        self.program(name, facts, args);
    }

    /// A program that is judged by its own name.
    pub fn program(&mut self, name: &str, facts: Option<&'static Facts>, args: Vec<Word>) {
        let sub = match self.subcommand(name, &args) {
            Ok(sub) => sub,
            Err((cause, word)) => {
                let worst = self.view.worst(name);
                self.push(name, args, worst);
                return self.fault(cause, &word);
            }
        };
        let option = sub.is_some_and(|sub| sub.starts_with(['-', '+']));
        let mut decision = if option { self.view.worst(name) } else { self.view.decide(name, sub) };
        self.tier = decision.tier.clone();
        if facts.is_some_and(|facts| facts.runner) || is_loader(name) {
            self.fault(Cause::Runner, name);
        }
        if let Some(facts) = facts {
            let inline = facts.inline.is_some_and(|(letters, long)| is_inline(letters, long, &args));
            if inline && decision.action == Action::Allow {
                decision = Decision { tier: TierName::Inline, action: Action::Ask, ..decision };
            }
            self.options_of(facts, &args);
            match facts.family {
                "find" => self.find(&args),
                "fd" => self.fd(&args),
                "git" => self.git(&args),
                "sed" => self.sed(&args),
                "awk" => self.awk(&args),
                _ => {}
            }
        }
        self.push(name, args, decision);
    }

    /// The first argument, if the policy tells the program's subcommands apart.
    fn subcommand<'a>(&self, name: &str, args: &'a [Word]) -> Result<Option<&'a str>, (Cause, String)> {
        if !self.view.has_subcommands(name) {
            return Ok(None);
        }
        let first = if name == "git" { git_start(args).0 } else { 1 };
        let Some(word) = args.get(first) else { return Ok(None) };
        match word.value() {
            None => Err((Cause::DynamicName, word.text.clone())),
            Some(text) if name == "git" && text.starts_with('-') => Err((Cause::RunOption, text.to_owned())),
            text => Ok(text),
        }
    }

    /// A builtin that touches nothing but the shell.
    pub fn shell(&mut self, name: &str, args: Vec<Word>) {
        let own = Decision { tier: TierName::Shell, action: Action::Allow, max_timeout_ms: None };
        let decision = self.view.listed(name, None).unwrap_or(own);
        self.push(name, args, decision);
    }

    /// Notes a wrapper, if a tier names it. Otherwise only what it runs counts.
    pub fn note(&mut self, name: &str, args: &[Word]) {
        if let Some(decision) = self.view.listed(name, None) {
            self.push(name, args.to_vec(), decision);
        }
    }

    /// Adds a command to the judgement.
    pub fn push(&mut self, name: &str, words: Vec<Word>, decision: Decision) {
        self.tier = decision.tier.clone();
        self.max_timeout_ms = self.max_timeout_ms.into_iter().chain(decision.max_timeout_ms).min();
        self.commands.push(Found {
            name: name.to_owned(),
            words,
            decision,
            wrappers: self.chain.clone(),
            script: None,
        });
    }
}

/// True for the dynamic loader, which runs the program in its arguments.
fn is_loader(name: &str) -> bool {
    name.starts_with("ld") && name.contains(".so")
}

/// True for names in plain ASCII. Others may look like another name, or mean something to some shell.
fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.+-/@:[".contains(&b);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
}

/// True for `command -v name` and `command -V name`, which run nothing.
fn is_query(args: &[Word]) -> bool {
    args.get(1).and_then(Word::value).is_some_and(|text| matches!(text, "-v" | "-V"))
}

/// What the options of a wrapper said.
#[derive(Default)]
struct WrapperOptions {
    /// `env -S`: more words before the rest.
    split: Option<String>,
    /// `xargs -I`: what is replaced in the words that follow.
    replaced: Option<String>,
    /// `xargs -n` or `-L`, which cancels `-I`.
    batch: bool,
}

impl Walk<'_> {
    /// Judges the command that the wrapper runs.
    pub fn unwrap_command(&mut self, wrapper: &Wrapper, args: Vec<Word>) {
        if wrapper.name == "command" && is_query(&args) {
            return self.shell("command", args);
        }
        let (rest, found) = match self.options(wrapper, &args[1..]) {
            Ok(parsed) => parsed,
            Err((cause, word)) => return self.fault(cause, &word),
        };
        let mut inner: Vec<Word> = rest.to_vec();
        if let Some(text) = &found.split {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b" _./=,:-".contains(&b);
            if !text.bytes().all(plain) {
                return self.fault(Cause::Ambiguous, text);
            }
            inner.splice(0..0, text.split_ascii_whitespace().map(Word::fixed));
        }
        if wrapper.name == "env" {
            while let Some((name, value)) = inner.first().and_then(|word| word.text.split_once('=')) {
                let (name, value) = (name.to_owned(), value.to_owned());
                let known = inner.first().is_some_and(|word| word.shape == Shape::Static);
                if inner.first().is_some_and(|word| word.shape == Shape::Wild) {
                    return self.fault(Cause::DynamicName, &name);
                }
                self.set(&name, known.then_some(&value), false, true);
                inner.remove(0);
            }
        }
        if inner.len() < wrapper.skip || inner.iter().take(wrapper.skip).any(|word| word.shape != Shape::Static) {
            return self.fault(Cause::DynamicName, wrapper.name);
        }
        inner.drain(..wrapper.skip);
        if wrapper.name == "xargs" {
            if found.batch && found.replaced.is_some() {
                return self.fault(Cause::UnknownOption, "xargs -I -n");
            }
            if inner.is_empty() {
                inner.push(Word::fixed("echo"));
            }
            // What it puts into the words, nobody knows.
            match &found.replaced {
                Some(replaced) => replace(&mut inner, replaced),
                None => inner.push(Word::unknown()),
            }
        }
        if inner.is_empty() {
            let shell = has("exec command builtin time", wrapper.name);
            return if shell { self.shell(wrapper.name, args) } else { self.program(wrapper.name, None, args) };
        }
        self.note(wrapper.name, &args);
        self.wrapped(wrapper.name, |walk| walk.invoke(inner, &[]));
    }

    fn options<'a>(
        &self,
        wrapper: &Wrapper,
        args: &'a [Word],
    ) -> Result<(&'a [Word], WrapperOptions), (Cause, String)> {
        let mut found = WrapperOptions::default();
        let mut rest = args;
        while let Some((word, after)) = rest.split_first() {
            let Some(text) = word.value() else {
                // A word that is not known may be an option, or become several.
                let safe = word.shape == Shape::Prefixed && !word.text.is_empty() && !word.text.starts_with('-');
                return if safe { Ok((rest, found)) } else { Err((Cause::DynamicName, wrapper.name.to_owned())) };
            };
            if text == "--" {
                return Ok((after, found));
            }
            let unknown = || (Cause::UnknownOption, text.to_owned());
            // As `-i`.
            if text == "-" && wrapper.name == "env" {
                return Err(unknown());
            }
            if !text.starts_with('-') || text == "-" {
                return Ok((rest, found));
            }
            let (letter, value) = if let Some(long) = text.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                let takes = has(wrapper.long_values, name);
                if !takes && (!has(wrapper.long, name) || value.is_some()) {
                    return Err(unknown());
                }
                // The value of these two is optional and so must be attached.
                let optional = name == "replace" || name == "eof";
                (name, if takes && !optional { Some(value) } else { Some(Some(value.unwrap_or(""))).filter(|_| takes) })
            } else {
                let cluster = text[1..].trim_start_matches(|c| wrapper.flags.contains(c));
                let mut letters = cluster.chars();
                let Some(letter) = letters.next() else {
                    rest = after;
                    continue;
                };
                let len = letter.len_utf8();
                if wrapper.attached.contains(letter) {
                    (&cluster[..len], Some(Some(letters.as_str())))
                } else if wrapper.values.contains(letter) {
                    (&cluster[..len], Some(Some(letters.as_str()).filter(|value| !value.is_empty())))
                } else {
                    return Err(unknown());
                }
            };
            rest = after;
            let value = match value {
                None => continue,
                Some(Some(attached)) => attached,
                Some(None) => {
                    let Some((next, later)) = rest.split_first() else { return Err(unknown()) };
                    rest = later;
                    next.value().ok_or_else(unknown)?
                }
            };
            match (wrapper.name, letter) {
                ("env", "S" | "split-string") => {
                    found.split = Some(value.to_owned());
                    // What follows is appended to the words of the string, options included.
                    return if value.trim_start().starts_with('-') { Err(unknown()) } else { Ok((rest, found)) };
                }
                ("xargs", "I" | "i" | "replace") => {
                    found.replaced = Some(if value.is_empty() { "{}".to_owned() } else { value.to_owned() });
                }
                ("env", "u" | "unset") if assignable(value, None, true).is_err() => {
                    return Err((Cause::Variable, value.to_owned()));
                }
                ("xargs", "n" | "L" | "l" | "max-args" | "max-lines") => found.batch = true,
                _ => {}
            }
        }
        Ok((rest, found))
    }
}

/// Whether a part of a path names git's own directory, also where case, short names or trailing dots do not count.
pub(crate) fn is_git_place(part: &str) -> bool {
    let part = part.trim_end_matches(['.', ' ']);
    part.eq_ignore_ascii_case(".git") || part.eq_ignore_ascii_case("git~1")
}

impl Walk<'_> {
    pub fn redirects(&mut self, redirects: Option<&ast::RedirectList>) {
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect);
        }
    }

    pub fn redirect(&mut self, redirect: &IoRedirect) {
        match redirect {
            IoRedirect::File(_, _, IoFileRedirectTarget::Filename(word)) => self.file(&word.value),
            IoRedirect::File(_, _, IoFileRedirectTarget::ProcessSubstitution(_, group)) => {
                self.list(&group.list, false)
            }
            IoRedirect::File(_, _, IoFileRedirectTarget::Fd(_)) => {}
            IoRedirect::File(_, _, IoFileRedirectTarget::Duplicate(word)) => {
                // Bash expands the file's name of `>& name` twice, so that even quoted text in it runs.
                if !word.value.strip_suffix('-').unwrap_or(&word.value).bytes().all(|b| b.is_ascii_digit()) {
                    self.fault(Cause::Ambiguous, &word.value);
                }
            }
            IoRedirect::OutputAndError(word, _) => self.file(&word.value),
            IoRedirect::HereString(_, word) => {
                self.word(&word.value);
            }
            IoRedirect::HereDocument(_, document) => {
                if document.requires_expansion {
                    match Scan::new(&document.doc.value).document() {
                        Ok(word) => self.visit(&word),
                        Err(fault) => self.fault_in(&document.doc.value, fault),
                    }
                }
            }
        }
    }

    /// Judges the file of a redirection.
    fn file(&mut self, source: &str) {
        let word = self.word(source);
        let Some(path) = word.value() else { return self.fault(Cause::DynamicTarget, source) };
        if path.starts_with("/dev/tcp") || path.starts_with("/dev/udp") {
            return self.fault(Cause::Network, path);
        }
        let descriptor =
            path.strip_prefix("/dev/fd/").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        if descriptor || matches!(path, "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr") {
            return;
        }
        let hidden = path.split('/').any(|part| part == ".." || is_git_place(part));
        let inside = |root: &String| path.strip_prefix(&**root).is_some_and(|rest| rest.starts_with('/'));
        let outside = path.starts_with('/') && !self.view.policy.settings().workspace.iter().any(inside);
        if hidden || outside || path.is_empty() {
            return self.fault(Cause::Outside, path);
        }
        self.files.push(path.to_owned());
        if !path.starts_with('/') {
            self.target.get_or_insert_with(|| path.to_owned());
        }
    }
}
