//! Tries a real server: `try_server [--call NAME JSON].. -- COMMAND..` or `try_server [--call NAME JSON].. URL`.
//!
//! It opens a connection, lists everything, makes the calls, and closes. A server that ends at `server/discover` is
//! started again with the older handshake.

// An example prints to the terminal and measures real time: no simulation drives it.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::error::Error;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use ghost_mcp::{
    Answer, CallOptions, Connection, Elicitation, ElicitationHandler, HttpClient, Lifecycle, Link, OpenError, Options,
    ghost_names,
};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};

struct Prints;

#[async_trait]
impl ElicitationHandler for Prints {
    async fn ask(&self, question: Elicitation) -> Answer {
        println!("  question {:?} for {:?}: {}", question.message, question.call, question.schema);
        if question.problem.is_some() {
            println!("  problem {:?}", question.problem);
            return Answer::Decline;
        }
        Answer::Accept(json!({"name": "Ada"}))
    }
}

fn start(command: &[String]) -> Result<(Link, Child), Box<dyn Error>> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let reader = child.stdout.take().ok_or("no stdout")?;
    let writer = child.stdin.take().ok_or("no stdin")?;
    Ok((Link::Streams { reader: Box::new(reader), writer: Box::new(writer) }, child))
}

async fn open(target: &[String], is_command: bool) -> Result<(Connection, Option<Child>), Box<dyn Error>> {
    let options = Options { elicitation: Some(Arc::new(Prints)), ..Options::default() };
    if !is_command {
        let url = target.first().ok_or("no address")?.clone();
        let client = HttpClient::new(reqwest::Client::builder().no_proxy())?;
        return Ok((Connection::open(Link::Http { client, url, token: None }, options).await?, None));
    }
    let (link, child) = start(target)?;
    match Connection::open(link, options.clone()).await {
        Ok(connection) => Ok((connection, Some(child))),
        Err(OpenError::ClosedOnDiscover) => {
            println!("it ended at discover: started again");
            let (link, child) = start(target)?;
            let options = Options { lifecycle: Lifecycle::Initialize, ..options };
            Ok((Connection::open(link, options).await?, Some(child)))
        }
        Err(error) => Err(error.into()),
    }
}

async fn show(connection: &Connection) -> Result<(), Box<dyn Error>> {
    let tools = connection.tools().await?;
    let names = ghost_names(tools.items.iter().map(|tool| tool.name.as_str()));
    println!("tools {} skipped {:?} end {:?}", tools.items.len(), tools.skipped, tools.end);
    println!("names {:?}", names.names.keys().collect::<Vec<_>>());
    println!("clashes {:?} impossible {:?}", names.clashes, names.impossible);
    if let Some(first) = tools.items.first() {
        println!("hash of {}: {}", first.name, first.hash());
    }
    let resources = connection.resources().await?;
    println!("resources {} skipped {:?}", resources.items.len(), resources.skipped);
    if let Some(first) = resources.items.first() {
        let (blocks, is_cut) = connection.read_resource(&first.uri).await?;
        println!("resource {}: {} blocks, cut {is_cut}", first.uri, blocks.len());
    }
    let prompts = connection.prompts().await?;
    println!("prompts {:?}", prompts.items.iter().map(|prompt| &prompt.name).collect::<Vec<_>>());
    if let Some(plain) = prompts.items.iter().find(|prompt| prompt.arguments.iter().all(|one| !one.is_required)) {
        let prompt = connection.get_prompt(&plain.name, Map::new()).await?;
        println!("prompt {}: {} messages", plain.name, prompt.messages.len());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut calls = Vec::new();
    while words.first().is_some_and(|word| word == "--call") && words.len() >= 3 {
        let call: Vec<String> = words.drain(..3).collect();
        calls.push((call[1].clone(), serde_json::from_str::<Map<String, Value>>(&call[2])?));
    }
    let is_command = words.first().is_some_and(|word| word == "--");
    if is_command {
        words.remove(0);
    }
    let begin = Instant::now();
    let (connection, child) = open(&words, is_command).await?;
    println!("open after {:?}: {:?}", begin.elapsed(), connection.server());
    show(&connection).await?;
    for (name, arguments) in calls {
        let options = CallOptions { label: Some(name.as_str().into()), ..CallOptions::default() };
        let progress = |progress| println!("  {progress:?}");
        match connection.call(&name, arguments, options, progress).await {
            Ok(result) => {
                let text: String = result.text().chars().take(300).collect();
                println!(
                    "call {name}: error {} cut {} structured {} {text:?}",
                    result.is_error,
                    result.is_cut,
                    result.structured.is_some()
                );
            }
            Err(error) => println!("call {name}: {error}"),
        }
    }
    let begin = Instant::now();
    connection.close().await;
    println!("closed after {:?}: {:?}", begin.elapsed(), connection.closed_reason());
    if let Some(mut child) = child {
        let ended = tokio::time::timeout(std::time::Duration::from_secs(3), child.wait()).await;
        println!("its process: {ended:?}");
    }
    Ok(())
}
