//! Judges the shell's builtins: those that run text, name variables or change how the line is read.
//!
//! Each variable that a builtin names is checked.

use crate::command::is_git_place;
use crate::judgement::Cause;
use crate::tables::{Facts, has};
use crate::variables::{self, is_number};
use crate::walk::Walk;
use crate::word::{Shape, Word};

/// Options of `set` that do not change how words are read.
const SET: &str = "errexit nounset pipefail xtrace noglob";
/// Operators of `[` between two operands.
const BETWEEN: &str = "= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef";

impl Walk<'_> {
    /// Judges a builtin.
    pub fn builtin(&mut self, name: &str, facts: Option<&'static Facts>, args: Vec<Word>) {
        if let Some(wrapper) = facts.and_then(|facts| facts.wrapper) {
            return self.unwrap_command(wrapper, args);
        }
        let operands = &args[1..];
        match name {
            "eval" => return self.eval(&args),
            "source" | "." => return self.source(name, args),
            "trap" => self.trap(operands),
            "cd" | "pushd" | "popd" => self.cd(name, operands),
            "set" => self.set_options(operands),
            "export" | "local" | "declare" | "typeset" | "readonly" => self.declare(name, operands),
            "read" => self.read(operands),
            "getopts" => self.read(operands.get(1..).map_or(&[], |rest| &rest[..rest.len().min(1)])),
            "unset" => self.unset(operands),
            "printf" => self.printf(operands),
            "test" | "[" => self.bracket(operands),
            "wait" if operands.iter().any(|word| word.text.starts_with('-') || word.shape == Shape::Wild) => {
                self.fault(Cause::Builtin, "wait");
            }
            _ if facts.is_some_and(|facts| facts.builtin) => {
                self.fault(Cause::Builtin, name);
                let worst = self.view.worst(name);
                return self.push(name, args, worst);
            }
            _ => {}
        }
        self.shell(name, args);
    }

    fn eval(&mut self, args: &[Word]) {
        self.note("eval", args);
        let parts: Option<Vec<&str>> = args[1..].iter().map(Word::value).collect();
        match parts {
            Some(parts) => {
                let code = parts.join(" ");
                self.wrapped("eval", |walk| walk.script(&code));
            }
            None => self.fault(Cause::DynamicCode, "eval"),
        }
    }

    fn source(&mut self, name: &str, args: Vec<Word>) {
        match args.get(1).and_then(Word::value).map(str::to_owned) {
            Some(path) if !path.starts_with('-') => {
                let base = path.rsplit('/').next().unwrap_or_default();
                self.workspace_script(&path, base, args, "bash");
            }
            _ => self.fault(Cause::DynamicCode, name),
        }
    }

    fn trap(&mut self, operands: &[Word]) {
        let rest = if operands.first().and_then(Word::value) == Some("--") { &operands[1..] } else { operands };
        match rest.first() {
            None => {}
            Some(code) => match code.value() {
                Some("-" | "" | "-p" | "-l") => {}
                Some(code) if !code.starts_with('-') => {
                    let code = code.to_owned();
                    self.wrapped("trap", |walk| walk.script(&code));
                }
                _ => self.fault(Cause::DynamicCode, "trap"),
            },
        }
    }

    fn cd(&mut self, name: &str, operands: &[Word]) {
        let target =
            operands.iter().find(|word| !word.value().is_some_and(|text| matches!(text, "--" | "-P" | "-L" | "-n")));
        let inside = |path: &str| {
            let root =
                |root: &String| path.strip_prefix(&**root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            !path.starts_with(['-', '+', '~'])
                && !path.split('/').any(|part| part == ".." || is_git_place(part))
                && (!path.starts_with('/') || self.view.policy.settings().workspace.iter().any(root))
        };
        let stays = target.and_then(Word::value).is_some_and(inside);
        self.away |= !stays || name == "popd";
    }

    fn set_options(&mut self, operands: &[Word]) {
        let mut words = operands.iter();
        while let Some(word) = words.next() {
            let Some(text) = word.value() else { return self.fault(Cause::Builtin, "set") };
            let Some(letters) = text.strip_prefix(['-', '+']) else { return };
            if text == "--" {
                return;
            }
            let letters_known = letters.bytes().all(|b| b"euxfo".contains(&b)) && !letters.is_empty();
            let named = letters.contains('o');
            let name_known = !named || words.next().and_then(Word::value).is_some_and(|name| has(SET, name));
            if !letters_known || !name_known {
                return self.fault(Cause::Builtin, &format!("set {text}"));
            }
        }
    }

    fn declare(&mut self, name: &str, operands: &[Word]) {
        let mut exported = name == "export";
        for word in operands {
            if word.text.starts_with(['-', '+']) {
                let letters = word.value().map_or("?", |text| &text[1..]);
                if !letters.bytes().all(|b| b"axrgpAu".contains(&b)) {
                    self.fault(Cause::Builtin, &format!("{name} {}", word.text));
                }
                exported |= letters.contains('x');
                continue;
            }
            // A value may be unknown, but `command export $x` could bring more names.
            let (target, value) = match word.text.split_once('=') {
                Some((target, value)) => (target.trim_end_matches('+'), Some(value)),
                None => (&*word.text, None),
            };
            let vague = word.shape != Shape::Static && (value.is_none() || !self.chain.is_empty());
            if vague || !variables::is_name(target) {
                self.fault(Cause::Variable, &word.text);
            }
            let (target, known) = (target.to_owned(), value.filter(|_| word.shape == Shape::Static));
            let number = known.is_some_and(is_number);
            if value.is_some() {
                self.set(&target, known, number, exported);
            } else if let Err(cause) = variables::assignable(&target, None, exported)
                && exported
            {
                self.fault(cause, &target);
            }
        }
    }

    /// `read`, and the variable of `getopts`.
    fn read(&mut self, operands: &[Word]) {
        let mut words = operands.iter();
        while let Some(word) = words.next() {
            let Some(text) = word.value() else { return self.fault(Cause::Variable, &word.text) };
            if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                let flags = letters.trim_start_matches(['r', 's', 'a']);
                let takes = flags.starts_with(['d', 'n', 'N', 'p', 't', 'u']);
                if !flags.is_empty() && !takes {
                    return self.fault(Cause::Variable, text);
                }
                if flags.len() == 1 {
                    words.next();
                }
                continue;
            }
            if !variables::is_name(text) {
                self.fault(Cause::Variable, text);
            }
            let name = text.to_owned();
            self.set(&name, None, false, false);
        }
    }

    fn unset(&mut self, operands: &[Word]) {
        for word in operands {
            let name = word.value().unwrap_or_default();
            if name != "-v" && variables::assignable(name, None, false).is_err() {
                self.fault(Cause::Variable, &word.text);
            }
        }
    }

    fn printf(&mut self, operands: &[Word]) {
        let Some(first) = operands.first() else { return };
        let vague = first.shape != Shape::Static && (first.text.is_empty() || first.shape == Shape::Wild);
        if vague || (first.text.starts_with('-') && first.text != "--") {
            self.fault(Cause::Variable, "printf");
        }
    }

    /// `[ -v name ]` evaluates the name, so no word that is not known may stand where an operator is.
    fn bracket(&mut self, operands: &[Word]) {
        let operator = |index: Option<usize>| {
            let text = index.and_then(|index| operands.get(index)).and_then(Word::value);
            text.is_some_and(|text| has(BETWEEN, text))
        };
        for (index, word) in operands.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|index| operands.get(index)).and_then(Word::value);
            let unary =
                before.is_some_and(|text| text.len() == 2 && text.starts_with('-') && !matches!(text, "-a" | "-o"));
            let last = operands.len() - index <= 1 || operands.get(index + 1).and_then(Word::value) == Some("]");
            let alone = last && (index == 0 || (index == 1 && before == Some("!")));
            let placed = operator(Some(index + 1)) || operator(index.checked_sub(1)) || unary || alone;
            let evaluates = word.value().is_some_and(|text| matches!(text, "-v" | "-R"));
            if evaluates || (word.shape != Shape::Static && !placed) || word.shape == Shape::Wild {
                self.fault(Cause::Arithmetic, if evaluates { "[ -v" } else { "[" });
            }
        }
    }

    /// `bash -c CODE` and the like; `bash FILE` is a script of the workspace.
    pub fn interpreter_of_shell(&mut self, name: &str, args: Vec<Word>) {
        self.note(name, &args);
        let mut words = args.iter().skip(1);
        let mut code = false;
        let operand = loop {
            let Some(text) = words.next().and_then(Word::value) else { return self.fault(Cause::DynamicCode, name) };
            if name == "bash" && matches!(text, "--norc" | "--noprofile") {
                continue;
            }
            let Some(letters) = text.strip_prefix('-') else { break text.to_owned() };
            if letters.is_empty() || !letters.bytes().all(|b| b"ceuxf".contains(&b)) {
                return self.fault(Cause::UnknownOption, text);
            }
            code |= letters.contains('c');
        };
        if !code {
            let base = operand.rsplit('/').next().unwrap_or_default().to_owned();
            let shell = if name == "bash" { "bash" } else { "sh" };
            return self.workspace_script(&operand, &base, args, shell);
        }
        // Other shells read `$'…'`, braces, brackets and some redirections in their own way.
        let plain = |c: char| c.is_ascii_alphanumeric() || " _./=,:%@-'\"|;&\n".contains(c);
        if name != "bash" && (!operand.chars().all(plain) || operand.contains("|&")) {
            return self.fault(Cause::Ambiguous, &operand);
        }
        let functions = std::mem::take(&mut self.functions);
        self.wrapped(name, |walk| walk.script(&operand));
        self.functions = functions;
    }
}
