//! Judges one simple command: finds what its name means and asks the policy.
//!
//! It must never let a command pass without an entry in the judgement.

use brush_parser::ast::Assignment;

use crate::policy::{Action, Decision};
use crate::programs::is_inline;
use crate::refusal::{Cause, TierName};
use crate::tables::{self, Facts, has};
use crate::walk::{Found, Walk};
use crate::word::Word;

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
        let mut rest = args.iter().skip(1);
        while let Some(word) = rest.next() {
            let Some(text) = word.value() else { return Err((Cause::DynamicName, word.text.clone())) };
            if name != "git" || !text.starts_with('-') {
                return Ok(Some(text));
            }
            if has(tables::GIT_VALUES, text) {
                rest.next();
            } else if !has(tables::GIT_FLAGS, text) {
                return Err((Cause::RunOption, text.to_owned()));
            }
        }
        Ok(None)
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
