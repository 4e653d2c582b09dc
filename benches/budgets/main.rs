//! The performance budgets: `cargo bench` prints one table. Each figure is beside a floor that the same run measured.
//! `cargo bench -- NAME` runs one of them: sends, chat, gating, turn, read, memory, many, ready, streams, cache, tokens,
//! age, sandbox, fetch, toolbox, coding, mcp, droids, joining, waits, postgres.
//!
//! A missed budget must never fail this program. The table shows it, and a person decides.

// The output is the purpose of this program.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod alloc;
mod child;
mod empty_service;
mod fixture;
mod measure;
mod rows;
mod table;

use std::process::ExitCode;

use ghost_domain::Clock;

use crate::measure::Outcome;
use crate::table::Line;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// A measurement: its name on the command line, and its function.
type Measure = (&'static str, fn() -> Outcome<Vec<Line>>);

/// All measurements, in the order of the table.
const MEASURES: [Measure; 22] = [
    ("sends", rows::durable_sends::measure),
    ("chat", rows::chat_fanout::measure),
    ("broadcast", rows::broadcast::measure),
    ("gating", rows::gating::measure),
    ("turn", rows::journaled_turn::measure),
    ("read", rows::grpc_read::measure),
    ("memory", rows::idle_memory::measure),
    ("many", rows::many_agents::measure),
    ("ready", rows::ready::measure),
    ("streams", rows::streams::measure),
    ("cache", rows::cache::measure),
    ("tokens", rows::tokens::measure),
    ("age", rows::age::measure),
    ("sandbox", rows::sandbox::measure),
    ("fetch", rows::fetch::measure),
    ("toolbox", rows::toolbox::measure),
    ("coding", rows::coding::measure),
    ("mcp", rows::mcp::measure),
    ("droids", rows::droids::measure),
    ("joining", rows::joining::measure),
    ("waits", rows::waits::measure),
    ("postgres", rows::postgres::measure),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((part, rest)) = arguments.split_first().and_then(|(first, rest)| match first == child::PART {
        true => rest.split_first(),
        false => None,
    }) {
        return match play(part, rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{part}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let names: Vec<&str> = arguments.iter().map(String::as_str).filter(|name| !name.starts_with('-')).collect();
    if names.is_empty() && !arguments.iter().any(|argument| argument == "--bench") {
        // `cargo test --benches` starts benchmarks, too. It only checks that they build.
        println!("run `cargo bench` to measure");
        return ExitCode::SUCCESS;
    }
    if let Some(name) = names.iter().find(|name| !MEASURES.iter().any(|(known, _)| known == *name)) {
        let known: Vec<&str> = MEASURES.iter().map(|(known, _)| *known).collect();
        eprintln!("there is no budget `{name}`; there are: {}", known.join(", "));
        return ExitCode::SUCCESS;
    }
    run(&names);
    ExitCode::SUCCESS
}

/// Runs the measurements with these names and prints the table.
fn run(names: &[&str]) {
    let began = measure::now();
    let mut lines = Vec::new();
    for (name, measure) in MEASURES.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        eprintln!("measuring {name} ...");
        match measure() {
            Ok(measured) => lines.extend(measured),
            Err(error) => println!("{name} could not be measured: {error}"),
        }
    }
    let date = ghost_daemon::ports::SystemClock.now().rfc3339();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "\nBudgets, {} UTC, {cores} cores, {} {}, in {} s\n",
        date.get(..16).unwrap_or(&date).replace('T', " "),
        std::env::consts::OS,
        std::env::consts::ARCH,
        began.elapsed().as_secs()
    );
    println!("{}", table::table(&lines));
}

/// Runs a helper process.
fn play(part: &str, arguments: &[String]) -> Outcome<()> {
    // When the parent process ends, standard input closes, and the helper ends, too.
    std::thread::spawn(|| {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        std::process::exit(0);
    });
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match (part, arguments.as_slice()) {
        ("model-server", []) => rows::journaled_turn::serve_model(),
        ("droid-model", []) => rows::droids::serve_model(),
        ("empty-service", [socket, answer]) => empty_service::serve_alone(socket, answer),
        ("bare-up", [database, socket]) => rows::ready::bare(database, socket),
        ("event-world", [world, data, socket, bell]) => rows::streams::serve_world(world, data, socket, bell),
        ("event-broadcast", [socket, bell]) => rows::streams::serve_broadcast(socket, bell),
        ("bare-actors", [count]) => rows::idle_memory::bare(count.parse()?),
        ("idle-agents", [count]) => rows::idle_memory::ours(count.parse()?),
        _ => Err(format!("there is no part `{part}` with {} arguments", arguments.len()).into()),
    }
}
