//! Walks the syntax tree of a line and finds its commands, words and redirections.
//!
//! No part of the tree may be left out: a word that is not looked at may hold a substitution.

use std::collections::BTreeSet;

use brush_parser::ast::{
    self, Assignment, AssignmentName, AssignmentValue, BinaryPredicate, Command, CommandPrefixOrSuffixItem as Item,
    CompoundCommand, ExtendedTestExpr, UnaryPredicate,
};

use crate::judgement::{Action, Cause, JudgedCommand, Judgement, Refusal, TierName, clip};
use crate::policy::{Decision, View};
use crate::variables::{self, Variables};
use crate::word::{Fault, Scan, Shape, Word};
use crate::{parse, tables};

/// Scripts inside scripts: substitutions, `sh -c`, `eval`.
const DEPTH_MAX: usize = 8;
/// Wrappers around one command.
const WRAPPERS_MAX: usize = 8;
/// Scripts in one line, so that the work stays bounded.
const SCRIPTS_MAX: usize = 512;

/// A command that was found.
pub(crate) struct Found {
    pub name: String,
    pub words: Vec<Word>,
    pub decision: Decision,
    pub wrappers: Vec<String>,
    /// The shell that reads it, if it is a file of commands; empty if its first line decides.
    pub script: Option<&'static str>,
}

/// The state of one judgement.
pub(crate) struct Walk<'p> {
    pub view: View<'p>,
    pub commands: Vec<Found>,
    pub max_timeout_ms: Option<u64>,
    /// The tier of the command that is looked at, for refusals of its words.
    pub tier: TierName,
    /// The wrappers around it.
    pub chain: Vec<String>,
    pub variables: Variables,
    /// Functions that certainly exist from here on.
    pub functions: BTreeSet<String>,
    /// Set by a `cd` that may leave the workspace.
    pub away: bool,
    refusal: Option<Refusal>,
    /// The files of redirections.
    pub files: Vec<String>,
    /// A relative file that was a redirection's target.
    pub target: Option<String>,
    depth: usize,
    scripts: usize,
}

impl<'p> Walk<'p> {
    pub fn new(view: View<'p>) -> Self {
        Self {
            view,
            commands: Vec::new(),
            max_timeout_ms: None,
            tier: TierName::Default,
            chain: Vec::new(),
            variables: Variables::default(),
            functions: BTreeSet::new(),
            away: false,
            refusal: None,
            files: Vec::new(),
            target: None,
            depth: 0,
            scripts: 0,
        }
    }

    /// Notes what cannot be judged. The first one is reported.
    pub fn fault(&mut self, cause: Cause, word: &str) {
        let tier = self.tier.clone();
        self.refusal.get_or_insert_with(|| Refusal::Unjudged { word: clip(word), tier, cause });
    }

    pub fn fault_in(&mut self, source: &str, fault: Fault) {
        let rest = source.get(fault.at..).unwrap_or(source);
        let near = rest.split_whitespace().next().unwrap_or(source);
        self.fault(fault.cause, near);
    }

    /// Judges a whole line.
    pub fn line(&mut self, line: &str) {
        if let Err(fault) = parse::characters(line) {
            self.fault_in(line, fault);
        } else {
            self.script(line);
        }
        let texts: Option<String> = self.variables.texts().next().map(str::to_owned);
        if let Some(expression) = texts {
            self.fault(Cause::Arithmetic, &expression);
        }
        if let (true, Some(target)) = (self.away, self.target.clone()) {
            self.fault(Cause::Outside, &target);
        }
    }

    /// Judges the first word of a line alone.
    pub fn first_token(&mut self, line: &str) {
        let mut scan = Scan::new(line.trim_start_matches([' ', '\t', '\n']));
        match scan.word() {
            Ok(word) if word.value().is_some_and(|name| !name.is_empty()) => {
                let name = word.text.rsplit('/').next().unwrap_or_default().to_owned();
                let decision = self.view.worst(&name);
                self.push(&name, vec![word], decision);
            }
            Ok(word) => self.fault(Cause::DynamicName, &word.text),
            Err(fault) => self.fault_in(line, fault),
        }
    }

    /// The word that could not be judged.
    pub fn unjudged(&self) -> Option<&str> {
        match &self.refusal {
            Some(Refusal::Unjudged { word, .. }) => Some(word),
            _ => None,
        }
    }

    /// The judgement of what was found.
    pub fn finish(self) -> Judgement {
        let (unbound, git, scripts) = (self.unbound(), self.git_uses(), self.script_uses());
        let worst = self.commands.iter().rev().max_by_key(|command| command.decision.action);
        let mut action = worst.map_or(Action::Allow, |command| command.decision.action);
        let mut reason = worst.filter(|command| command.decision.action > Action::Allow).map(|command| {
            let sub = command.words.get(1).and_then(Word::value);
            let (tier, instead) = (command.decision.tier.clone(), self.view.instead(&command.name, sub, action));
            let word = match sub.filter(|_| self.view.has_subcommands(&command.name)) {
                Some(sub) => clip(&format!("{} {sub}", command.name)),
                None => clip(&command.name),
            };
            match action {
                Action::Deny => Refusal::Denied { word, tier, instead },
                _ => Refusal::Asked { word, tier, instead },
            }
        });
        if let Some(refusal) = self.refusal {
            match self.view.unrestricted() {
                // The reason stays: whoever approves should know what could not be judged.
                Some(free) => {
                    action = action.max(free);
                    reason = reason.or((free > Action::Allow).then_some(refusal));
                }
                None => {
                    reason = reason.filter(|_| action == Action::Deny).or(Some(refusal));
                    action = Action::Deny;
                }
            }
        }
        let commands = self.commands.into_iter().map(|found| JudgedCommand {
            name: found.name,
            argv: found.words.into_iter().map(Word::into_value).collect(),
            tier: found.decision.tier,
            action: found.decision.action,
            wrappers: found.wrappers,
        });
        Judgement {
            action,
            commands: commands.collect(),
            files: self.files,
            max_timeout_ms: self.max_timeout_ms,
            unbound,
            scripts,
            git,
            reason,
        }
    }

    /// Judges the commands of a script.
    pub fn script(&mut self, source: &str) {
        self.scripts += 1;
        if self.depth >= DEPTH_MAX || self.scripts > SCRIPTS_MAX {
            return self.fault(Cause::TooDeep, source);
        }
        match parse::script(source) {
            Err(fault) => self.fault_in(source, fault),
            Ok(program) => {
                self.depth += 1;
                for list in &program.complete_commands {
                    self.list(list, self.depth == 1);
                }
                self.depth -= 1;
            }
        }
    }

    /// Judges the code that a wrapper runs.
    pub fn wrapped(&mut self, wrapper: &str, judge: impl FnOnce(&mut Self)) {
        if self.chain.len() >= WRAPPERS_MAX {
            return self.fault(Cause::TooDeep, wrapper);
        }
        self.chain.push(wrapper.to_owned());
        judge(self);
        self.chain.pop();
    }

    /// `top`: what is defined here is defined for the rest of the line.
    pub fn list(&mut self, list: &ast::CompoundList, top: bool) {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            for pipeline in std::iter::once(&and_or.first).chain(and_or.additional.iter().map(|next| match next {
                ast::AndOr::And(pipeline) | ast::AndOr::Or(pipeline) => pipeline,
            })) {
                for command in &pipeline.seq {
                    self.command(command);
                }
            }
            if let (true, ast::SeparatorOperator::Sequence, [Command::Function(function)]) =
                (top, separator, &*and_or.first.seq)
            {
                self.functions.insert(function.fname.value.clone());
            }
        }
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                self.redirects(redirects.as_ref());
                self.compound(compound);
            }
            Command::ExtendedTest(test, redirects) => {
                self.redirects(redirects.as_ref());
                self.test(&test.expr);
            }
            Command::Function(function) => {
                let name = &function.fname.value;
                let taken = tables::facts(name).is_some() || self.view.names(name) || !variables::is_name(name);
                if taken || name.bytes().any(|b| b.is_ascii_uppercase()) {
                    self.fault(Cause::Shadow, name);
                }
                let ast::FunctionBody(body, redirects) = &function.body;
                self.redirects(redirects.as_ref());
                self.compound(body);
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) {
        match compound {
            CompoundCommand::Arithmetic(sum) => self.sum(&sum.expr.value),
            CompoundCommand::ArithmeticForClause(each) => {
                for sum in [&each.initializer, &each.condition, &each.updater].into_iter().flatten() {
                    self.sum(&sum.value);
                }
                self.list(&each.body.list, false);
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list, false),
            CompoundCommand::Subshell(group) => self.list(&group.list, false),
            CompoundCommand::ForClause(each) => {
                let words = each.values.as_deref().unwrap_or_default();
                for word in words {
                    self.word(&word.value);
                }
                let numbers = each.values.is_some()
                    && words.iter().all(|word| variables::is_number(&word.value) || variables::is_range(&word.value));
                self.set(&each.variable_name, None, numbers, false);
                self.list(&each.body.list, false);
            }
            CompoundCommand::CaseClause(case) => {
                self.word(&case.value.value);
                for item in &case.cases {
                    for pattern in &item.patterns {
                        self.word(&pattern.value);
                    }
                    if let Some(list) = &item.cmd {
                        self.list(list, false);
                    }
                }
            }
            CompoundCommand::IfClause(branch) => {
                self.list(&branch.condition, false);
                self.list(&branch.then, false);
                for other in branch.elses.iter().flatten() {
                    if let Some(condition) = &other.condition {
                        self.list(condition, false);
                    }
                    self.list(&other.body, false);
                }
            }
            CompoundCommand::WhileClause(ast::WhileOrUntilClauseCommand(condition, body, _))
            | CompoundCommand::UntilClause(ast::WhileOrUntilClauseCommand(condition, body, _)) => {
                self.list(condition, false);
                self.list(&body.list, false);
            }
            CompoundCommand::Coprocess(_) => self.fault(Cause::Builtin, "coproc"),
        }
    }

    /// Reads a word of the tree and judges what is inside it.
    pub fn word(&mut self, source: &str) -> Word {
        let mut scan = Scan::new(source);
        match scan.word() {
            Ok(word) if scan.at == source.len() => {
                self.visit(&word);
                word
            }
            Ok(_) => {
                self.fault(Cause::Ambiguous, source);
                Word::unknown()
            }
            Err(fault) => {
                self.fault_in(source, fault);
                Word::unknown()
            }
        }
    }

    pub fn visit(&mut self, word: &Word) {
        for sum in &word.sums {
            self.sum(sum);
        }
        for script in &word.scripts {
            self.script(script);
        }
    }

    pub fn sum(&mut self, text: &str) {
        for part in text.split(';') {
            if let Err(cause) = self.variables.evaluate(part) {
                self.fault(cause, text);
            }
        }
    }

    /// Judges an assignment to a variable.
    pub fn set(&mut self, name: &str, value: Option<&str>, number: bool, exported: bool) {
        if let Err(cause) = variables::assignable(name, value, exported) {
            self.fault(cause, name);
        }
        self.variables.assign(name, number);
    }

    pub fn assignment(&mut self, assignment: &Assignment, exported: bool) {
        let (name, index) = match &assignment.name {
            AssignmentName::VariableName(name) => (name, None),
            AssignmentName::ArrayElementName(name, index) => (name, Some(index)),
        };
        if let Some(index) = index {
            self.sum(index);
        }
        match &assignment.value {
            AssignmentValue::Scalar(word) => {
                let value = self.word(&word.value);
                self.set(name, value.value(), index.is_none() && variables::is_number(&word.value), exported);
            }
            AssignmentValue::Array(elements) => {
                for (key, word) in elements {
                    if let Some(key) = key {
                        self.sum(&key.value);
                    }
                    self.word(&word.value);
                }
                self.set(name, None, false, exported);
            }
        }
    }

    fn simple(&mut self, simple: &ast::SimpleCommand) {
        let mut args = Vec::new();
        let mut arrays = Vec::new();
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                // The usual `IFS= read`: it holds for this one builtin.
                Item::AssignmentWord(_, word)
                    if word.value.starts_with("IFS=")
                        && simple.word_or_name.as_ref().is_some_and(|name| name.value == "read") =>
                {
                    self.word(&word.value);
                }
                Item::AssignmentWord(assignment, _) => self.assignment(assignment, simple.word_or_name.is_some()),
                other => self.argument(other, &mut args, &mut arrays),
            }
        }
        if let Some(name) = &simple.word_or_name {
            args.push(self.word(&name.value));
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.argument(item, &mut args, &mut arrays);
        }
        if !args.is_empty() {
            self.invoke(args, &arrays);
        }
    }

    fn argument<'a>(&mut self, item: &'a Item, args: &mut Vec<Word>, arrays: &mut Vec<&'a Assignment>) {
        match item {
            Item::IoRedirect(redirect) => self.redirect(redirect),
            Item::Word(word) => args.push(self.word(&word.value)),
            Item::AssignmentWord(assignment, word) => match assignment.value {
                AssignmentValue::Scalar(_) => args.push(self.word(&word.value)),
                AssignmentValue::Array(_) => arrays.push(assignment),
            },
            Item::ProcessSubstitution(_, group) => {
                self.list(&group.list, false);
                args.push(Word { shape: Shape::Prefixed, ..Word::fixed("/dev/fd/") });
            }
        }
    }
}

impl Walk<'_> {
    pub fn test(&mut self, test: &ExtendedTestExpr) {
        match test {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                self.test(left);
                self.test(right);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => self.test(inner),
            ExtendedTestExpr::UnaryTest(predicate, word) => {
                let evaluated =
                    [UnaryPredicate::ShellVariableIsSetAndAssigned, UnaryPredicate::ShellVariableIsSetAndNameRef];
                if evaluated.iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(predicate)) {
                    self.fault(Cause::Arithmetic, &word.value);
                }
                self.word(&word.value);
            }
            ExtendedTestExpr::BinaryTest(predicate, left, right) => match predicate {
                BinaryPredicate::ArithmeticEqualTo
                | BinaryPredicate::ArithmeticNotEqualTo
                | BinaryPredicate::ArithmeticLessThan
                | BinaryPredicate::ArithmeticLessThanOrEqualTo
                | BinaryPredicate::ArithmeticGreaterThan
                | BinaryPredicate::ArithmeticGreaterThanOrEqualTo => {
                    for side in [left, right] {
                        self.sum(side.value.trim_matches('"'));
                    }
                }
                BinaryPredicate::StringMatchesRegex | BinaryPredicate::StringContainsSubstring => {
                    self.word(&left.value);
                    self.pattern(&right.value);
                }
                _ => {
                    self.word(&left.value);
                    self.word(&right.value);
                }
            },
        }
    }

    /// The right side of `=~`, which may hold operators and blanks.
    fn pattern(&mut self, source: &str) {
        let mut scan = Scan::new(source);
        while let Some(c) = scan.peek() {
            match c {
                '<' | '>' | '&' | ';' => return self.fault(Cause::Ambiguous, source),
                ' ' | '\t' | '\n' | '|' | '(' | ')' => scan.at += 1,
                _ => match scan.word() {
                    Ok(word) => self.visit(&word),
                    Err(fault) => return self.fault_in(source, fault),
                },
            }
        }
    }
}
