//! The command line: its options, its commands, and one run from arguments to exit code.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use serde_json::json;

use crate::commands::{
    agent, budget, chat, conversation, cron, dead, events, knowledge, ledger, message, state, talk, task, timer, tool,
    turn, watch, world,
};
use crate::complete;
use crate::connection::Client;
use crate::discovery::{ConnectionOptions, Environment, Target, find};
use crate::failure::Failure;
use crate::help::dressed;
use crate::line::{Line, joined};
use crate::output::{Answer, Body, Note, Output, report};
use crate::text::{one_line, parse_duration};
use crate::view::View;
use crate::wait::{Backoff, Deadline, pause};
use crate::wording::as_typed;

/// Drives a running ghostd
#[derive(Debug, Parser)]
#[command(name = "ghostctl", version, arg_required_else_help = true, max_term_width = 110)]
#[command(after_help = "\
The daemon is the one at --endpoint, else at GHOST_ENDPOINT, else the one world that runs under
GHOST_STATE_DIR (by default ~/.local/state/ghost). If nobody listens there, --wait says for how long to wait; one that
goes away in the middle is waited for, up to --timeout.
An https endpoint takes its PEM files from GHOST_TLS_CA and, for mutual TLS, GHOST_TLS_CERT and GHOST_TLS_KEY.

Examples:
  ghostctl status
  ghostctl ask chora 'What is still open?'
  ghostctl --world newsroom events --follow
  ghostctl --json agent list | jq -r '.[].agent_id'

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 denied, 5 unavailable, 6 timeout, 7 conflict, 8 a bound reached")]
pub struct Cli {
    /// Where it listens: unix:PATH, a path, HOST:PORT or http[s]://HOST:PORT
    #[arg(long, global = true, hide = true, value_name = "E", conflicts_with = "world")]
    endpoint: Option<String>,
    /// The world meant, when several run under the state directory
    #[arg(long, global = true, hide = true, value_name = "W")]
    world: Option<String>,
    /// The token of a TCP endpoint; else GHOST_TOKEN, else a local world's file `token`
    #[arg(long, global = true, hide = true, value_name = "T")]
    token: Option<String>,
    /// Print JSON
    #[arg(long, global = true, hide = true)]
    json: bool,
    /// Times in UTC and not in the zone of TZ or of this machine; JSON has them in UTC always
    #[arg(long, global = true, hide = true)]
    utc: bool,
    /// How long to wait for the daemon and its answer; 60s by default
    #[arg(long, global = true, hide = true, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    timeout: Duration,
    /// Wait this long for a daemon that does not listen yet, instead of failing within a second
    #[arg(long, global = true, hide = true, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(world::status::Status),
    Pause(world::pause::Pause),
    Resume(world::resume::Resume),
    Reload(world::reload::Reload),
    Shutdown(world::shutdown::Shutdown),
    /// Agents: list, get, create, start, stop, delete, prompt
    #[command(subcommand)]
    Agent(agent::Agent),
    /// Tools of an agent: list, brief, call
    #[command(subcommand)]
    Tool(tool::Tool),
    Send(message::send::Send),
    Ask(message::ask::Ask),
    Talk(talk::Talk),
    /// Conversations with people outside: list, show, handoff, redeliver
    #[command(subcommand)]
    Conversation(conversation::Conversation),
    /// Turns: list, show, retry, cancel
    #[command(subcommand)]
    Turn(turn::Turn),
    /// The task board: create, list, get, update
    #[command(subcommand)]
    Task(task::Task),
    /// Knowledge: list, read, write, delete
    #[command(subcommand)]
    Knowledge(knowledge::Knowledge),
    /// Shared state: get, set, list
    #[command(subcommand)]
    State(state::State),
    /// Chat channels: create, send, invite, remove, list, history, watch
    #[command(subcommand)]
    Chat(chat::Chat),
    /// Timers: set, list, cancel
    #[command(subcommand)]
    Timer(timer::Timer),
    /// Cron jobs: add, list, runs, run, enable, disable, cancel
    #[command(subcommand)]
    Cron(cron::Cron),
    /// Watches of files: add, list, cancel
    #[command(subcommand)]
    Watch(watch::Watch),
    /// Mail that crashed its agent: list, show, retry, drop
    #[command(subcommand)]
    Dead(dead::Dead),
    /// Budgets: list, set
    #[command(subcommand)]
    Budget(budget::Budget),
    Usage(budget::usage::Usage),
    Ledger(ledger::list::List),
    Events(events::subscribe::Subscribe),
    /// Print the completions for a shell
    #[command(
        after_help = "They offer what the running daemon knows: agents, turns, tasks, channels and more.\n\nExamples:\n  ghostctl completions bash > ~/.local/share/bash-completion/completions/ghostctl\n  ghostctl completions zsh > ~/.zfunc/_ghostctl\n  ghostctl completions fish > ~/.config/fish/completions/ghostctl.fish"
    )]
    Completions {
        /// The shell
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(["bash", "zsh", "fish"]))]
        shell: String,
    },
}

/// Runs one command line and gives its exit code.
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
    let read = command().try_get_matches_from(joined(&command(), &args)).and_then(|matches| {
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
                // A word beside the answer; there is nobody to tell when standard error is gone.
                drop(match (as_json, note) {
                    (false, Note::Word(text) | Note::Cut(text)) => writeln!(err, "note: {text}"),
                    (true, Note::Cut(text)) => writeln!(err, "{}", json!({ "note": text })),
                    (true, Note::Word(_)) => Ok(()),
                });
            }
            answer.print(as_json, out).map_err(Failure::from).and_then(|()| answer.failure.map_or(Ok(()), Err))
        }
        // What a tool or a turn says of its failure, which comes with an answer, is not about this line.
        Err(failure) => Err(as_typed(failure, &Line::new(&command(), &matches, &args))),
    };
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            report(&failure, as_json, err);
            failure.exit_code()
        }
    }
}

/// Every command with what it takes.
pub fn command() -> clap::Command {
    dressed(Cli::command())
}

/// Characters of one word of the line that a usage error shows.
const SHOWN: usize = 200;

/// Help and version go to standard output with exit code 0; a usage error goes to standard error with 2.
fn explain(error: &clap::Error, args: &[OsString], out: &mut Output, err: &mut dyn Write) -> u8 {
    let mut text = error.render().to_string();
    for arg in args.iter().filter_map(|arg| arg.to_str()) {
        // An option and its value are told apart where they are spoken of.
        let parts = arg.split_once('=').filter(|_| arg.starts_with("--"));
        let words = [Some(arg), parts.map(|(name, _)| name), parts.map(|(_, value)| value)];
        for word in words.into_iter().flatten().filter(|word| word.len() > SHOWN) {
            // Nobody reads what was typed, or pasted, by the screenful.
            text = text.replace(word, &one_line(word, SHOWN));
        }
    }
    if error.exit_code() == 0 {
        return match out.text(&text).and_then(|()| out.flush()).map_err(Failure::from) {
            Ok(()) => 0,
            Err(failure) => failure.exit_code(),
        };
    }
    if args.iter().any(|arg| arg == "--json") {
        // What is missing stands in lines of its own.
        let (first, rest) = text.trim().split_once("\n\n").unwrap_or((text.trim(), ""));
        let what: Vec<&str> = first.trim_start_matches("error: ").split_whitespace().collect();
        let failure = Failure::new("invalid_arguments", what.join(" ")).hint(rest.trim());
        report(&failure, true, err);
    } else {
        // Nobody to tell when standard error is gone; the exit code says it.
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
    let talks = !cli.json;
    let on_waiting = Box::new(move |text: &str| {
        if talks {
            // Who cannot be told waits all the same.
            drop(writeln!(std::io::stderr(), "{}", crate::text::one_line(text, 200)));
        }
    });
    let zone = environment.zone.clone().filter(|_| !cli.utc);
    let view = View { zone, screen: out.screen() };
    let client = Client::new(target, &environment.tls, cli.timeout, view, on_waiting)?;
    match cli.command {
        Command::Status(verb) => verb.run(&client).await,
        Command::Pause(verb) => verb.run(&client).await,
        Command::Resume(verb) => verb.run(&client).await,
        Command::Reload(verb) => verb.run(&client).await,
        Command::Shutdown(verb) => verb.run(&client).await,
        Command::Agent(verb) => verb.run(&client).await,
        Command::Tool(verb) => verb.run(&client).await,
        Command::Send(verb) => verb.run(&client).await,
        Command::Ask(verb) => verb.run(&client).await,
        Command::Talk(verb) => verb.run(&client, cli.json, out).await,
        Command::Conversation(verb) => verb.run(&client).await,
        Command::Turn(verb) => verb.run(&client).await,
        Command::Task(verb) => verb.run(&client).await,
        Command::Timer(verb) => verb.run(&client).await,
        Command::Cron(verb) => verb.run(&client).await,
        Command::Watch(verb) => verb.run(&client).await,
        Command::Knowledge(verb) => verb.run(&client).await,
        Command::State(verb) => verb.run(&client).await,
        Command::Chat(verb) => verb.run(&client, cli.json, out).await,
        Command::Dead(verb) => verb.run(&client).await,
        Command::Budget(verb) => verb.run(&client).await,
        Command::Usage(verb) => verb.run(&client).await,
        Command::Ledger(verb) => verb.run(&client).await,
        Command::Events(verb) => verb.run(&client, cli.json, out).await,
        Command::Completions { shell } => completions(&shell),
    }
}

/// The daemon that is meant. With `wait` one that is about to be there is waited for.
async fn found(
    options: &ConnectionOptions,
    environment: &Environment,
    wait: Option<Duration>,
) -> Result<Target, Failure> {
    let Some(wait) = wait else { return find(options, environment) };
    let (deadline, mut backoff) = (Deadline::after(wait), Backoff::new());
    loop {
        let found = find(options, environment);
        let there = found.as_ref().is_ok_and(|target| target.endpoint.listens());
        let left = deadline.remaining();
        if there || left.is_zero() {
            return found;
        }
        pause(backoff.next().min(left)).await;
    }
}

fn completions(shell: &str) -> Result<Answer, Failure> {
    let script = complete::script(shell).ok_or_else(|| {
        Failure::new("invalid_arguments", format!("there are no completions for {shell}"))
            .hint("one of bash, zsh, fish")
    })?;
    Ok(Body::Text(script.to_owned()).into())
}
