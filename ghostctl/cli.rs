//! The command line: options, commands, and `run`, which executes one command line and returns its exit code.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use serde_json::json;

use crate::arguments::parse_duration;
use crate::commands::{
    agent, approval, chat, conversation, cost, events, knowledge, message, schedule, talk, task, tool, turn, workspace,
    world,
};
use crate::complete;
use crate::connection::Client;
use crate::discovery::{ConnectionOptions, Environment, Target, find};
use crate::failure::Failure;
use crate::help::{as_typed, with_help_layout};
use crate::output::{Answer, Note, Output, View, json_line, report};
use crate::text::{harmless, one_line};
use crate::wait::{Backoff, Deadline, pause};

/// Control a running ghostd
#[derive(Debug, Parser)]
#[command(name = "ghostctl", version, arg_required_else_help = true, max_term_width = 110)]
#[command(after_help = "\
ghostctl connects to --endpoint, else to GHOST_ENDPOINT, else to the only running world that has its data or a
pointer under GHOST_STATE_DIR (default: ~/.local/state/ghost). If no daemon listens there, ghostctl fails within
a second; --wait makes it wait. If the connection breaks later, ghostctl retries until --timeout.
An https endpoint needs the CA certificate (PEM) in GHOST_TLS_CA. Mutual TLS also needs GHOST_TLS_CERT and
GHOST_TLS_KEY.

Examples:
  ghostctl status
  ghostctl ask chora 'What is still open?'
  ghostctl --world newsroom events --follow
  ghostctl --json agent list | jq -r '.[].agent_id'

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 denied, 5 unavailable, 6 timeout, 7 conflict, 8 limit reached")]
pub struct Cli {
    /// Connect to this address: unix:PATH, a path, HOST:PORT or http[s]://HOST:PORT
    #[arg(long, global = true, hide = true, value_name = "E", conflicts_with = "world")]
    endpoint: Option<String>,
    /// Connect to this world, if several run
    #[arg(long, global = true, hide = true, value_name = "W")]
    world: Option<String>,
    /// Use this token for TCP; else GHOST_TOKEN, else the file `token` of the local world
    #[arg(long, global = true, hide = true, value_name = "T")]
    token: Option<String>,
    /// Print JSON
    #[arg(long, global = true, hide = true)]
    json: bool,
    /// Print times in UTC instead of the local time zone; JSON is always in UTC
    #[arg(long, global = true, hide = true)]
    utc: bool,
    /// Wait at most this long for an answer (default: 60s)
    #[arg(long = "timeout", id = "timeout_ms", global = true, hide = true, value_name = "TIME", default_value = "60s",
          value_parser = parse_duration, allow_hyphen_values = true)]
    timeout: Duration,
    /// Wait at most this long for a daemon that does not listen yet
    #[arg(long, global = true, hide = true, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    wait: Option<Duration>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    World(world::World),
    /// Show the limits of the running world: show
    #[command(subcommand)]
    Config(world::Config),
    /// Manage agents: list, get, create, start, stop, delete, prompt
    #[command(subcommand)]
    Agent(agent::Agent),
    /// Show and call the tools of an agent: list, brief, describe, call
    #[command(subcommand)]
    Tool(tool::Tool),
    /// Look at toolboxes and trust MCP servers: list, check, trust, reload
    #[command(subcommand)]
    Toolbox(tool::Toolbox),
    /// Manage droids, the helpers that agents start: list, show, steer, kill
    #[command(subcommand)]
    Droid(agent::Droid),
    /// Answer calls that wait for an operator: list, show, watch, approve, deny, revoke
    #[command(subcommand)]
    Approval(approval::Approval),
    Send(message::Send),
    Ask(message::Ask),
    Talk(talk::Talk),
    /// Manage conversations with people outside the world: list, show, handoff, end, redeliver
    #[command(subcommand)]
    Conversation(conversation::Conversation),
    /// Show and reset the sessions of an agent: list, show, reset
    #[command(subcommand)]
    Session(conversation::Session),
    /// Show the skills of the world: list, show
    #[command(subcommand)]
    Skill(tool::Skill),
    /// Manage turns: list, show, retry, cancel, settle
    #[command(subcommand)]
    Turn(turn::Turn),
    /// Manage tasks: create, list, get, update
    #[command(subcommand)]
    Task(task::Task),
    /// Manage write grants: add, list, revoke
    #[command(subcommand)]
    Grant(workspace::Grant),
    /// Show the files under output/: list, rebuild, remove
    #[command(subcommand)]
    Artifact(workspace::Artifact),
    /// Manage knowledge entries: list, read, write, delete
    #[command(subcommand)]
    Knowledge(knowledge::Knowledge),
    /// Manage the shared state: get, set, list
    #[command(subcommand)]
    State(knowledge::State),
    /// Manage chat channels: create, send, invite, remove, list, history, watch
    #[command(subcommand)]
    Chat(chat::Chat),
    /// Manage timers: set, list, runs, cancel
    #[command(subcommand)]
    Timer(schedule::Timer),
    /// Manage cron jobs: add, list, runs, run, enable, disable, cancel
    #[command(subcommand)]
    Cron(schedule::Cron),
    /// Manage file watches: add, list, runs, cancel
    #[command(subcommand)]
    Watch(schedule::Watch),
    /// Manage dead letters: list, show, retry, drop
    #[command(subcommand)]
    Dead(message::Dead),
    /// Manage budgets: list, set
    #[command(subcommand)]
    Budget(cost::Budget),
    Usage(cost::Usage),
    Ledger(cost::Ledger),
    Events(events::Events),
    /// Print the completion script for a shell
    ///
    /// The script completes commands and options, and names from the running daemon: agents, turns, tasks and more.
    ///
    /// Examples:
    ///   ghostctl completions bash > ~/.local/share/bash-completion/completions/ghostctl
    ///   ghostctl completions zsh > ~/.zfunc/_ghostctl
    ///   ghostctl completions fish > ~/.config/fish/completions/ghostctl.fish
    #[command(verbatim_doc_comment)]
    Completions {
        /// Shell
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(["bash", "zsh", "fish"]))]
        shell: String,
    },
}

/// Runs one command line and returns its exit code.
pub async fn run(
    args: impl IntoIterator<Item = OsString>,
    environment: &Environment,
    out: &mut Output,
    err: &mut dyn Write,
) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(words) = complete::asked(&args) {
        return complete::run(&command(), &words, environment, out).await;
    }
    let read = command().try_get_matches_from(&args).and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command()))?;
        Ok((cli, matches))
    });
    let (cli, matches) = match read {
        Ok(read) => read,
        Err(error) => return explain(&error, &args, out, err),
    };
    let as_json = cli.json;
    let outcome = match execute(cli, environment, out).await {
        Ok(answer) => {
            if let Some(note) = &answer.note {
                // If standard error is closed, the note is lost; the answer does not depend on it.
                drop(match (as_json, note) {
                    (false, Note::Word(text) | Note::Cut(text)) => writeln!(err, "note: {}", harmless(text)),
                    (true, Note::Cut(text)) => err.write_all(json_line(&json!({ "note": text })).as_bytes()),
                    (true, Note::Word(_)) => Ok(()),
                });
            }
            answer.print(as_json, out).map_err(Failure::from).and_then(|()| answer.failure.map_or(Ok(()), Err))
        }
        // Only refusals of the request name its fields. A failure inside an answer (of a tool or a turn) does not.
        Err(failure) => Err(as_typed(failure, &command(), &matches)),
    };
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            report(&failure, as_json, err);
            failure.exit_code()
        }
    }
}

/// The command-line definition, with the layout of the help texts.
pub fn command() -> clap::Command {
    with_help_layout(with_negative_numbers(Cli::command()))
}

/// Lets every option with a value take a negative number. Then the option's own parser reports the allowed range.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_number = |arg: &clap::Arg| arg.get_action().takes_values() && !arg.is_positional();
    let command = command.mut_args(|arg| if takes_number(&arg) { arg.allow_negative_numbers(true) } else { arg });
    command.mut_subcommands(with_negative_numbers)
}

/// A usage error shows at most this many characters of one argument.
const SHOWN_CHARACTERS: usize = 200;

/// Prints a clap result: help and version to standard output (exit code 0), a usage error to standard error (2).
fn explain(error: &clap::Error, args: &[OsString], out: &mut Output, err: &mut dyn Write) -> u8 {
    let mut text = error.render().to_string();
    for arg in args.iter().filter_map(|arg| arg.to_str()) {
        // clap may quote `--option=value` as a whole, or the option or the value alone.
        let parts = arg.split_once('=').filter(|_| arg.starts_with("--"));
        let words = [Some(arg), parts.map(|(name, _)| name), parts.map(|(_, value)| value)];
        for word in words.into_iter().flatten().filter(|word| word.len() > SHOWN_CHARACTERS) {
            // A long pasted argument would hide the message.
            text = text.replace(word, &one_line(word, SHOWN_CHARACTERS));
        }
    }
    if error.exit_code() == 0 {
        return match out.text(&text).and_then(|()| out.flush()).map_err(Failure::from) {
            Ok(()) => 0,
            Err(failure) => failure.exit_code(),
        };
    }
    if args.iter().any(|arg| arg == "--json") {
        // clap lists missing arguments on lines of their own, which become one line here.
        let (first, rest) = text.trim().split_once("\n\n").unwrap_or((text.trim(), ""));
        let what: Vec<&str> = first.trim_start_matches("error: ").split_whitespace().collect();
        let failure = Failure::new("invalid_arguments", what.join(" ")).hint(rest.trim());
        report(&failure, true, err);
    } else {
        // If standard error is closed, the exit code still reports the error.
        drop(err.write_all(text.as_bytes()));
    }
    2
}

async fn execute(cli: Cli, environment: &Environment, out: &mut Output) -> Result<Answer, Failure> {
    if let Command::Completions { shell } = &cli.command {
        return completions(shell);
    }
    let options = ConnectionOptions { endpoint: cli.endpoint, world: cli.world, token: cli.token };
    let target = found(&options, environment, cli.wait).await?;
    let prints_notices = !cli.json;
    let on_waiting = Box::new(move |text: &str| {
        if prints_notices {
            // If standard error is closed, the notice is lost; the wait goes on.
            drop(writeln!(std::io::stderr(), "{}", one_line(text, 200)));
        }
    });
    let zone = environment.zone.clone().filter(|_| !cli.utc);
    let view = View { zone, screen: out.screen() };
    let client = Client::new(target, &environment.tls, cli.timeout, view, on_waiting)?;
    macro_rules! run {
        ($($prints_itself:ident)*; $($verb:ident)*) => {
            match cli.command {
                $(Command::$prints_itself(verb) => verb.run(&client, cli.json, out).await,)*
                $(Command::$verb(verb) => verb.run(&client).await,)*
                Command::Completions { shell } => completions(&shell),
            }
        };
    }
    run! {
        Approval Chat Events Talk;
        Agent Artifact Ask Budget Config Conversation Cron Dead Droid Grant Knowledge Ledger Send Session Skill State Task Timer
        Tool Toolbox Turn Usage Watch World
    }
}

/// Finds the daemon. With `wait`, retries until a daemon listens or that time has passed.
async fn found(
    options: &ConnectionOptions,
    environment: &Environment,
    wait: Option<Duration>,
) -> Result<Target, Failure> {
    let Some(wait) = wait else { return find(options, environment) };
    let (deadline, mut backoff) = (Deadline::after(wait), Backoff::new());
    loop {
        let found = find(options, environment);
        let listens = found.as_ref().is_ok_and(|target| target.endpoint.listens());
        let left = deadline.remaining();
        if listens || left.is_zero() {
            return found;
        }
        pause(backoff.next().min(left)).await;
    }
}

fn completions(shell: &str) -> Result<Answer, Failure> {
    let script = complete::script(shell).ok_or_else(|| {
        Failure::new("invalid_arguments", format!("there is no completion script for {shell}"))
            .hint("use bash, zsh or fish")
    })?;
    Ok(Answer::written(script.to_owned(), script))
}
