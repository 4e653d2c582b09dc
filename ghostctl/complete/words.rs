//! What is expected at the cursor of a command line: words of its definition, or names that the daemon can list.
//! Of an invalid line nothing is expected.

use clap::{Arg, Command};
use ghost_proto::v1;

use crate::connection::{Client, rpc};
use crate::discovery::ConnectionOptions;
use crate::failure::Failure;
use crate::text::one_line;

/// Rows per list.
const PAGE: u32 = 200;
/// A description is truncated to this many characters.
const ABOUT: usize = 60;

/// A completion and its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The completed word.
    pub value: String,
    /// Description; may be empty.
    pub about: String,
}

impl Candidate {
    /// A completion with a description.
    pub fn new(value: impl Into<String>, about: &str) -> Self {
        Self { value: value.into(), about: one_line(about, ABOUT) }
    }

    /// Whether every shell takes the word literally. Agents choose some of the offered names, and users accept
    /// completions without reading them, so a name must not be able to run anything.
    pub fn is_harmless(&self) -> bool {
        let plain = |c: char| c.is_alphanumeric() || "._/@:=,+-".contains(c);
        // zsh replaces `=name` with the path of a program.
        !self.value.starts_with('=') && self.value.chars().all(plain)
    }
}

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

/// A kind of name that the daemon can list.
#[derive(Debug, PartialEq, Eq)]
pub enum Live {
    /// An agent id.
    Agent,
    /// A turn id, newest first.
    Turn,
    /// A task id.
    Task,
    /// The id of an approval: pending, or for `revoke` one that holds for later calls.
    Approval { always: bool },
    /// The id of a held dead letter.
    DeadLetter,
    /// The id of a droid that has not ended, or for `show` of any.
    Droid { live: bool },
    /// The id of a write grant.
    Grant,
    /// A conversation id.
    Conversation,
    /// A schedule as `AGENT/NAME`; the field is its kind: timer, cron or watch.
    Schedule(String),
    /// A channel name.
    Channel,
    /// The id of a knowledge entry.
    Entry,
    /// A key of the shared state.
    Key,
    /// A tool name of this agent.
    Tool(String),
}

impl Live {
    /// The kind of value of the option or argument with this id, in the command `path`, with `first` as the first
    /// argument.
    pub fn named(id: &str, path: &[&str], first: Option<&str>) -> Option<Self> {
        Some(match id {
            "entry_id" => Self::Entry,
            "agent_id" if path != ["agent", "create"] => Self::Agent,
            "parent_id" if path == ["droid", "list"] => Self::Agent,
            "owner" | "as_agent" | "members" => Self::Agent,
            "turn_id" => Self::Turn,
            "task_id" | "depends_on" | "parent_id" => Self::Task,
            "approval_id" => Self::Approval { always: path.last() == Some(&"revoke") },
            "dead_letter_id" => Self::DeadLetter,
            "grant_id" => Self::Grant,
            "droid_id" => Self::Droid { live: path.last() != Some(&"show") },
            "conversation_id" | "session" => Self::Conversation,
            "channel" if path != ["chat", "create"] => Self::Channel,
            "key" | "prefix" => Self::Key,
            "schedule_id" => Self::Schedule((*path.first()?).to_owned()),
            "tool" => Self::Tool(first?.to_owned()),
            _ => return None,
        })
    }
}

/// Lists the names of this kind: one page of a list, never more.
pub async fn candidates(client: &Client, kind: Live) -> Result<Vec<Candidate>, Failure> {
    // The rows of the first page, each as a value and its description.
    macro_rules! page {
        ($service:ident :: $method:ident, $request:ident { $($field:ident $(: $value:expr)?),* },
         $rows:ident, $candidate:expr) => {{
            let request = v1::$request { limit: PAGE, $($field $(: $value)?,)* ..Default::default() };
            let rows = rpc!(client, $service::$method, request).await?.$rows;
            rows.iter().take(PAGE as usize).map($candidate).map(|(name, about)| Candidate::new(name, &about)).collect()
        }};
    }
    Ok(match kind {
        Live::Agent => page!(Agents::list, ListAgentsRequest {}, agents, |row| {
            (row.agent_id.clone(), format!("{} {}", row.archetype, row.status))
        }),
        Live::Turn => page!(Turns::list, ListTurnsRequest {}, turns, |row| {
            (row.turn_id.clone(), format!("{} {}: {}", row.agent_id, row.status, row.about))
        }),
        Live::Task => page!(Tasks::list, ListTasksRequest {}, tasks, |row| {
            (row.task_id.clone(), format!("{} {}: {}", row.owner, row.status, row.title))
        }),
        Live::Approval { always } => page!(Approvals::list, ListApprovalsRequest { always }, approvals, |row| {
            (row.approval_id.clone(), format!("{}: {}", row.agent_id, row.summary))
        }),
        Live::DeadLetter => page!(Messages::list_dead, ListDeadRequest {}, dead_letters, |row| {
            (row.dead_letter_id.clone(), format!("{}: {}", row.agent_id, row.reason))
        }),
        Live::Droid { live } => page!(Droids::list, ListDroidsRequest { live }, droids, |row| {
            (row.droid_id.clone(), format!("{} {}: {}", row.parent_id, row.state, row.task))
        }),
        Live::Grant => page!(Grants::list, ListGrantsRequest {}, grants, |row| {
            (row.grant_id.clone(), format!("{}: {}", row.agent_id, row.prefix))
        }),
        Live::Conversation => page!(Conversations::list, ListConversationsRequest {}, conversations, |row| {
            (row.conversation_id.clone(), format!("{} with {}", row.owner, row.party))
        }),
        Live::Schedule(kind) => page!(Schedules::list, ListSchedulesRequest { kind: Some(kind) }, schedules, |row| {
            (format!("{}/{}", row.agent_id, row.name), row.message.clone())
        }),
        Live::Channel => page!(Chat::list, ListChannelsRequest {}, channels, |row| {
            (row.channel.clone(), row.topic.clone().unwrap_or_default())
        }),
        Live::Entry => page!(Knowledge::list, ListKnowledgeRequest {}, entries, |row| {
            (row.entry_id.clone(), row.title.clone())
        }),
        Live::Key => {
            page!(State::list, ListStateRequest {}, entries, |row| { (row.key.clone(), row.value_json.clone()) })
        }
        Live::Tool(agent_id) => page!(Tools::list, ListToolsRequest { agent_id }, tools, |row| {
            (row.name.clone(), row.description.clone())
        }),
    })
}
