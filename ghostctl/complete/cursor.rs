//! Determines the kind of word that is expected at the cursor of a command line.
//!
//! The analysis must never fail. For an invalid line no kind of word is expected.

use clap::{Arg, Command};

use super::candidate::Candidate;
use super::live::Live;
use crate::discovery::ConnectionOptions;

/// The kind of word that is expected at the cursor.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One of these words.
    Words(Vec<Candidate>),
    /// The name of a world under the state directory.
    Worlds,
    /// A name that the daemon can list.
    Live(Live),
    /// Unknown: nothing is offered.
    Nothing,
}

/// The word at the cursor.
#[derive(Debug)]
pub struct Cursor {
    /// The kind of word that is expected there.
    pub wanted: Wanted,
    /// The part that is already typed.
    pub typed: String,
    /// The part of the shell's word before it: `--option=`, or earlier items of a list.
    pub before: String,
    /// Connection options on the line.
    pub options: ConnectionOptions,
}

/// State while the words of the line are read from left to right.
struct Walk<'c> {
    command: &'c Command,
    /// The names of the commands, such as `cron runs`.
    path: Vec<&'c str>,
    globals: Vec<&'c Arg>,
    /// The positional arguments so far.
    arguments: Vec<String>,
    options: ConnectionOptions,
    /// The option whose value comes next.
    open: Option<&'c Arg>,
    /// Whether `--` was read.
    literal: bool,
}

impl Cursor {
    /// Reads the words up to the cursor. The last word is the one at the cursor.
    pub fn of(command: &Command, words: &[String]) -> Self {
        // Some shells split `--option=value` into three words.
        let mut whole: Vec<String> = Vec::new();
        for word in words {
            match whole.last_mut() {
                Some(last) if word == "=" && last.starts_with("--") => last.push('='),
                Some(last) if last.starts_with("--") && last.ends_with('=') => last.push_str(word),
                _ => whole.push(word.clone()),
            }
        }
        let current = whole.pop().unwrap_or_default();
        let globals = command.get_arguments().filter(|arg| arg.is_global_set()).collect();
        let (path, arguments) = (Vec::new(), Vec::new());
        let mut walk = Walk {
            command,
            path,
            globals,
            arguments,
            options: ConnectionOptions::default(),
            open: None,
            literal: false,
        };
        whole.iter().for_each(|word| walk.read_word(word));
        let inline = current.split_once('=').filter(|(name, _)| name.starts_with("--") && !walk.literal);
        let (mut before, mut typed) = (String::new(), current.clone());
        let wanted = match (walk.open, inline) {
            (Some(option), _) => walk.value_of(option),
            (None, Some((name, value))) => {
                (before, typed) = (format!("{name}="), value.to_owned());
                walk.option(name).map_or(Wanted::Nothing, |option| walk.value_of(option))
            }
            (None, None) if current.starts_with('-') && !walk.literal => walk.options(),
            (None, None) => walk.next_word(),
        };
        if let (Wanted::Live(_), Some(comma)) = (&wanted, typed.rfind(',')) {
            before.push_str(&typed[..=comma]);
            typed = typed[comma + 1..].to_owned();
        }
        Self { wanted, typed, before, options: walk.options }
    }
}

impl<'c> Walk<'c> {
    /// Reads one word before the cursor.
    fn read_word(&mut self, word: &str) {
        if let Some(option) = self.open.take() {
            self.connect_option(option, word);
        } else if self.literal {
            self.arguments.push(word.to_owned());
        } else if word == "--" {
            self.literal = true;
        } else if let Some((name, value)) = word.split_once('=').filter(|(name, _)| name.starts_with("--")) {
            if let Some(option) = self.option(name) {
                self.connect_option(option, value);
            }
        } else if word.starts_with('-') && word.len() > 1 {
            self.open = self.option(word).filter(|option| option.get_action().takes_values());
        } else if let Some(found) = self.command.find_subcommand(word) {
            self.command = found;
            self.path.push(found.get_name());
        } else {
            self.arguments.push(word.to_owned());
        }
    }

    fn option(&self, name: &str) -> Option<&'c Arg> {
        let own = self.command.get_arguments().filter(|arg| !arg.is_positional());
        let name = name.strip_prefix("--")?;
        let is = |arg: &&'c Arg| {
            arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        };
        own.chain(self.globals.iter().copied()).find(is)
    }

    fn connect_option(&mut self, option: &Arg, value: &str) {
        let slot = match option.get_id().as_str() {
            "endpoint" => &mut self.options.endpoint,
            "world" => &mut self.options.world,
            "token" => &mut self.options.token,
            _ => return,
        };
        *slot = Some(value.to_owned());
    }

    /// The options of the command.
    fn options(&self) -> Wanted {
        let own = self.command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
        let all = own.chain(self.globals.iter().copied());
        let named = all.filter_map(|arg| Some(Candidate::new(format!("--{}", arg.get_long()?), &about(arg))));
        let help = Candidate::new("--help", "Print help");
        Wanted::Words(named.chain([help]).collect())
    }

    /// A subcommand, or the next positional argument.
    fn next_word(&self) -> Wanted {
        if self.command.has_subcommands() && self.arguments.is_empty() {
            let commands = self.command.get_subcommands().filter(|command| !command.is_hide_set());
            let description = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
            return Wanted::Words(
                commands.map(|command| Candidate::new(command.get_name(), &description(command))).collect(),
            );
        }
        let at = self.arguments.len();
        self.command.get_positionals().nth(at).map_or(Wanted::Nothing, |arg| self.value_of(arg))
    }

    fn value_of(&self, arg: &Arg) -> Wanted {
        let possible: Vec<Candidate> =
            arg.get_possible_values().iter().map(|value| Candidate::new(value.get_name(), "")).collect();
        if !possible.is_empty() {
            return Wanted::Words(possible);
        }
        if arg.get_id() == "world" {
            return Wanted::Worlds;
        }
        let first = self.arguments.first().map(String::as_str);
        Live::named(arg.get_id().as_str(), &self.path, first).map_or(Wanted::Nothing, Wanted::Live)
    }
}

fn about(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}
