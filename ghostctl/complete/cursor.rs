//! Where the cursor stands on a command line, and what sort of word could stand there.
//!
//! Must never: fail. A line that is not understood wants nothing.

use clap::{Arg, Command};

use super::candidate::Candidate;
use super::live::Live;
use crate::discovery::ConnectionOptions;
use crate::line::names_of;

/// What could stand at the cursor.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// One of these.
    Words(Vec<Candidate>),
    /// A world under the state directory.
    Worlds,
    /// Something that the daemon knows.
    Live(Live),
    /// Nobody can say what.
    Nothing,
}

/// Where the cursor stands.
#[derive(Debug)]
pub struct Cursor {
    /// What could stand there.
    pub wanted: Wanted,
    /// What is written of it.
    pub typed: String,
    /// What stands in the same word before it: the earlier parts of a list, or the option.
    pub before: String,
    /// The daemon that the line names.
    pub options: ConnectionOptions,
}

/// The line as far as it was walked.
struct Walk<'c> {
    command: &'c Command,
    /// The names of the commands, such as `cron runs`.
    path: Vec<&'c str>,
    globals: Vec<&'c Arg>,
    /// The words in the places of arguments.
    arguments: Vec<String>,
    options: ConnectionOptions,
    /// The option that waits for its value.
    open: Option<&'c Arg>,
    /// Whether `--` was passed.
    literal: bool,
}

impl Cursor {
    /// Reads the words up to the cursor; the last is the one it stands in.
    pub fn of(command: &Command, words: &[String]) -> Self {
        // Some shells take `--option=value` apart.
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
        whole.iter().for_each(|word| walk.pass(word));
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
    /// Takes a word that stands before the cursor.
    fn pass(&mut self, word: &str) {
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
        own.chain(self.globals.iter().copied()).find(|arg| names_of(arg).iter().any(|known| known == name))
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

    /// The options that the command takes.
    fn options(&self) -> Wanted {
        let own = self.command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
        let all = own.chain(self.globals.iter().copied());
        let named = all.filter_map(|arg| Some(Candidate::new(format!("--{}", arg.get_long()?), &about(arg))));
        let help = Candidate::new("--help", "Print help");
        Wanted::Words(named.chain([help]).collect())
    }

    /// A command, or the argument whose turn it is.
    fn next_word(&self) -> Wanted {
        if self.command.has_subcommands() && self.arguments.is_empty() {
            let commands = self.command.get_subcommands().filter(|command| !command.is_hide_set());
            let told = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
            return Wanted::Words(commands.map(|command| Candidate::new(command.get_name(), &told(command))).collect());
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
        let names = names_of(arg);
        names.iter().find_map(|name| Live::named(name, &self.path, first)).map_or(Wanted::Nothing, Wanted::Live)
    }
}

fn about(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}
