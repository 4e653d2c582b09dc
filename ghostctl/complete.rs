//! Shell completion, from the definition of the command line and from the running daemon: what is expected at the cursor of a
//! line, the words for it, and the scripts of the shells.
//!
//! Completion blocks a shell only for a moment. It prints no errors, changes nothing, and offers no word that a shell would
//! interpret. Of an invalid line nothing is expected.

use std::ffi::OsString;
use std::pin::Pin;
use std::time::Duration;

use clap::{Arg, Command};
use ghost_proto::{Paged, v1};

use crate::connection::Client;
use crate::discovery::{ConnectionOptions, Environment, find};
use crate::failure::Failure;
use crate::output::{Output, View};
use crate::text::one_line;
use crate::wait::Deadline;

/// The hidden first argument with which the shell scripts call this program.
pub const WORD: &str = "__complete";
/// Time limit for requests to the daemon.
const DAEMON_TIMEOUT: Duration = Duration::from_millis(500);

/// The words after [`WORD`], if the arguments are a completion request: the words of the line up to the cursor.
pub fn asked(args: &[OsString]) -> Option<Vec<String>> {
    let word = args.get(1).is_some_and(|word| word == WORD);
    word.then(|| args.iter().skip(2).map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Prints the candidates, one on each line, as `value<TAB>description`. Always returns exit code 0.
pub async fn run(command: &Command, words: &[String], environment: &Environment, out: &mut Output) -> u8 {
    let cursor = Cursor::of(command, words);
    let candidates = match cursor.wanted {
        Wanted::Words(candidates) => candidates,
        Wanted::Nothing => Vec::new(),
        Wanted::Worlds => crate::discovery::known_worlds(environment)
            .into_iter()
            .map(|world| Candidate::new(world, "world"))
            .collect(),
        Wanted::Live(names) => {
            let mut found = live(&cursor.options, environment, names).await.unwrap_or_default();
            // A name that starts with `-` would be read as an option.
            found.retain(|candidate| !candidate.value.starts_with('-'));
            found
        }
    };
    let fits = |candidate: &Candidate| candidate.value.starts_with(&cursor.typed) && candidate.is_harmless();
    for Candidate { value, about } in candidates.into_iter().filter(fits) {
        let line = match about.is_empty() {
            true => format!("{}{value}\n", cursor.before),
            false => format!("{}{value}\t{about}\n", cursor.before),
        };
        // The shell has stopped reading.
        if out.text(&line).is_err() {
            break;
        }
    }
    drop(out.flush());
    0
}

async fn live(options: &ConnectionOptions, environment: &Environment, names: Names) -> Option<Vec<Candidate>> {
    let target = find(options, environment).ok()?;
    let client = Client::new(target, &environment.tls, DAEMON_TIMEOUT, View::default(), Box::new(|_| {})).ok()?;
    Deadline::after(DAEMON_TIMEOUT).within(names(&client)).await?.ok()
}

/// The completion scripts of the shells. Each calls this program for the candidates at the cursor.
const BASH: &str = r#"# Completions of ghostctl for bash.
_ghostctl() {
    local line value inline=
    COMPREPLY=()
    # bash splits --option=value and expects the value alone.
    if [[ ${COMP_WORDS[COMP_CWORD]} == "=" || ${COMP_WORDS[COMP_CWORD - 1]} == "=" ]]; then
        inline=1
    fi
    while IFS= read -r line; do
        value=${line%%$'\t'*}
        if [[ $inline ]]; then
            value=${value#--*=}
        fi
        # bash inserts the word unchanged, so special characters must be quoted here.
        if [[ $value == *[![:alnum:]._/@:=,+-]* ]]; then
            printf -v value %q "$value"
        fi
        COMPREPLY+=("$value")
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _ghostctl ghostctl
"#;

// zsh and fish quote the offered words themselves, so these scripts must not quote them.
const ZSH: &str = r#"#compdef ghostctl
# Completions of ghostctl for zsh.
_ghostctl() {
    local line
    local -a found
    while IFS= read -r line; do
        if [[ $line == *$'\t'* ]]; then
            found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        else
            found+=("${line//:/\\:}")
        fi
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        _describe -V 'ghostctl' found
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_ghostctl" ]; then
    _ghostctl "$@"
else
    compdef _ghostctl ghostctl
fi
"#;

const FISH: &str = r#"# Completions of ghostctl for fish.
function __ghostctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    $words[1] __complete $words[2..-1] "$current" 2>/dev/null
end
complete -c ghostctl -a '(__ghostctl_complete)'
"#;

/// The script for a shell; `None` for an unknown shell.
pub fn script(shell: &str) -> Option<&'static str> {
    match shell {
        "bash" => Some(BASH),
        "zsh" => Some(ZSH),
        "fish" => Some(FISH),
        _ => None,
    }
}

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
pub enum Wanted {
    /// One of these words.
    Words(Vec<Candidate>),
    /// The name of a world under the state directory.
    Worlds,
    /// A name that the daemon can list.
    Live(Names),
    /// Unknown: nothing is offered.
    Nothing,
}

/// The word at the cursor.
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
        names(arg.get_id().as_str(), &self.path, first).map_or(Wanted::Nothing, Wanted::Live)
    }
}

fn about(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

/// Lists names that the daemon knows: one page of a list, never more.
pub type Names =
    Box<dyn for<'c> FnOnce(&'c Client) -> Pin<Box<dyn Future<Output = Result<Vec<Candidate>, Failure>> + 'c>>>;

/// The rows of the first page of a list, each as a value and its description.
fn page<R: Paged>(request: R, candidate: fn(&R::Row) -> (String, String)) -> Names {
    Box::new(move |client| {
        Box::pin(async move {
            let (rows, _) = R::rows(client.call(request.at(PAGE, String::new())).await?);
            let rows = rows.iter().take(PAGE as usize).map(candidate);
            Ok(rows.map(|(name, about)| Candidate::new(name, &about)).collect())
        })
    })
}

/// The names for the option or argument with this id, in the command `path`, with `first` as the first argument.
fn names(id: &str, path: &[&str], first: Option<&str>) -> Option<Names> {
    let agents = || {
        page(v1::ListAgentsRequest::default(), |row| {
            (row.agent_id.clone(), format!("{} {}", row.archetype, row.status))
        })
    };
    Some(match id {
        "agent_id" if path != ["agent", "create"] => agents(),
        "parent_id" if path == ["droid", "list"] => agents(),
        "owner" | "as_agent" | "members" => agents(),
        "entry_id" => page(v1::ListKnowledgeRequest::default(), |row| (row.entry_id.clone(), row.title.clone())),
        "turn_id" => page(v1::ListTurnsRequest::default(), |row| {
            (row.turn_id.clone(), format!("{} {}: {}", row.agent_id, row.status, row.about))
        }),
        "task_id" | "depends_on" | "parent_id" => page(v1::ListTasksRequest::default(), |row| {
            (row.task_id.clone(), format!("{} {}: {}", row.owner, row.status, row.title))
        }),
        "approval_id" => {
            // Only an approval that holds for later calls can be revoked.
            let request = v1::ListApprovalsRequest { always: path.last() == Some(&"revoke"), ..<_>::default() };
            page(request, |row| (row.approval_id.clone(), format!("{}: {}", row.agent_id, row.summary)))
        }
        "dead_letter_id" => page(v1::ListDeadRequest::default(), |row| {
            (row.dead_letter_id.clone(), format!("{}: {}", row.agent_id, row.reason))
        }),
        "grant_id" => page(v1::ListGrantsRequest::default(), |row| {
            (row.grant_id.clone(), format!("{}: {}", row.agent_id, row.prefix))
        }),
        "droid_id" => {
            let request = v1::ListDroidsRequest { live: path.last() != Some(&"show"), ..<_>::default() };
            page(request, |row| (row.droid_id.clone(), format!("{} {}: {}", row.parent_id, row.state, row.task)))
        }
        "conversation_id" | "session" => page(v1::ListConversationsRequest::default(), |row| {
            (row.conversation_id.clone(), format!("{} with {}", row.owner, row.party))
        }),
        "channel" if path != ["chat", "create"] => {
            page(v1::ListChannelsRequest::default(), |row| (row.channel.clone(), row.topic.clone().unwrap_or_default()))
        }
        "key" | "prefix" => page(v1::ListStateRequest::default(), |row| (row.key.clone(), row.value_json.clone())),
        "schedule_id" => {
            let kind = Some((*path.first()?).to_owned());
            page(v1::ListSchedulesRequest { kind, ..<_>::default() }, |row| {
                (format!("{}/{}", row.agent_id, row.name), row.message.clone())
            })
        }
        "tool" => page(v1::ListToolsRequest { agent_id: first?.to_owned(), ..<_>::default() }, |row| {
            (row.name.clone(), row.description.clone())
        }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
