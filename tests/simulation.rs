//! Promise 8, and most other promises under simulation: the same seed gives the same world, and no seed breaks a
//! promise.
//!
//! `GHOST_SIM_SEED=<seed> cargo test --test simulation` runs a failing seed alone.

// For clippy, helpers of a test file are no tests. A panic here is a failed test, and the output is its log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr)]

use std::sync::atomic::{AtomicU64, Ordering};

use ghost_domain::{Event, EventKind};
use ghost_testkit::sim::{Course, Outcome, SimWorld};

/// The default number of seeds; `GHOST_SIM_SEEDS` overrides it.
const SEEDS: u64 = 200;

fn seeds() -> u64 {
    std::env::var("GHOST_SIM_SEEDS").map_or(SEEDS, |text| text.parse().expect("GHOST_SIM_SEEDS must be a number"))
}

fn run(seed: u64) -> Outcome {
    SimWorld::run(seed, Course::of(seed)).unwrap()
}

fn complaint(outcome: &Outcome) -> Option<String> {
    (!outcome.wrongs.is_empty()).then(|| {
        format!(
            "seed {}: {} broken promises\n  {}\n  run it alone: GHOST_SIM_SEED={} cargo test --test simulation",
            outcome.seed,
            outcome.wrongs.len(),
            outcome.wrongs.iter().take(10).cloned().collect::<Vec<_>>().join("\n  "),
            outcome.seed,
        )
    })
}

fn log_text(outcome: &Outcome) -> Vec<String> {
    outcome.event_log.iter().map(|event| serde_json::to_string(event).unwrap()).collect()
}

/// The seed in `GHOST_SIM_SEED`, if set.
fn chosen() -> Option<u64> {
    std::env::var("GHOST_SIM_SEED").ok().map(|text| text.parse().expect("GHOST_SIM_SEED must be a number"))
}

#[test]
fn the_same_seed_gives_the_same_event_log() {
    let seeds = chosen().map_or_else(|| (0..6).collect(), |seed| vec![seed]);
    for seed in seeds {
        let (first, second) = (run(seed), run(seed));
        let (a, b) = (log_text(&first), log_text(&second));
        if let Some(place) = (0..a.len().max(b.len())).find(|place| a.get(*place) != b.get(*place)) {
            panic!(
                "seed {seed}: the logs part at event {}\n  {}\n  {}",
                place + 1,
                a.get(place).map_or("(its end)", String::as_str),
                b.get(place).map_or("(its end)", String::as_str),
            );
        }
        assert!(a.len() > 20, "seed {seed}: almost nothing happened");
    }
    if chosen().is_none() {
        assert_ne!(log_text(&run(1)), log_text(&run(2)), "seeds must matter");
    }
}

#[test]
fn no_seed_breaks_a_promise() {
    if let Some(seed) = chosen() {
        let outcome = run(seed);
        if std::env::var_os("GHOST_SIM_LOG").is_some() {
            println!("{}", log_text(&outcome).join("\n"));
        }
        println!(
            "seed {seed}: {} events, {} boots, {} model requests, {} outside effects, {} s",
            outcome.event_log.len(),
            outcome.boots,
            outcome.model_requests,
            outcome.outside_effects,
            outcome.virtual_time.as_secs(),
        );
        assert!(outcome.wrongs.is_empty(), "{}", complaint(&outcome).unwrap_or_default());
        return;
    }
    let (seeds, next) = (seeds(), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut outcomes = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds {
                            return outcomes;
                        }
                        let outcome = run(seed);
                        // Also print it at once: a run of many seeds takes long.
                        complaint(&outcome).into_iter().for_each(|words| eprintln!("{words}"));
                        outcomes.push(outcome);
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let complaints: Vec<String> = outcomes.iter().filter_map(complaint).collect();
    assert!(complaints.is_empty(), "{} of {seeds} seeds:\n{}", complaints.len(), complaints.join("\n"));
    if seeds >= SEEDS {
        enough_happened(&outcomes);
    }
}

/// Asserts that the runs together contained every kind of fault. Otherwise they would prove little.
fn enough_happened(outcomes: &[Outcome]) {
    let total = |of: &dyn Fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>();
    let events = |wanted: &dyn Fn(&Event) -> bool| {
        total(&|outcome: &Outcome| outcome.event_log.iter().filter(|event| wanted(event)).count())
    };
    let kind = |kind: EventKind| events(&|event: &Event| event.kind == kind);
    let says = |kind: EventKind, field: &str, value: &str| {
        events(&|event: &Event| {
            event.kind == kind && event.payload.get(field).and_then(|found| found.as_str()) == Some(value)
        })
    };
    let tally = [
        ("boots", total(&|outcome| outcome.boots as usize), 500),
        ("model requests", total(&|outcome| outcome.model_requests), 10_000),
        ("outside effects", total(&|outcome| outcome.outside_effects), 500),
        ("failed model calls", kind(EventKind::ModelFailed), 500),
        ("resumed turns", kind(EventKind::TurnResumed), 500),
        ("crashed agents", kind(EventKind::AgentCrashed), 100),
        ("failed agents", kind(EventKind::AgentFailed), 1),
        ("stopped agents", kind(EventKind::AgentStopped), 100),
        ("deleted agents", kind(EventKind::AgentDeleted), 20),
        ("orderly stops", kind(EventKind::WorldStopped), 20),
        ("pauses", kind(EventKind::WorldPaused), 20),
        ("dead letters", kind(EventKind::DeadLetterHeld), 20),
        ("dead letters retried", kind(EventKind::DeadLetterRetried), 2),
        ("dead letters dropped", kind(EventKind::DeadLetterDropped), 2),
        ("spent budgets", kind(EventKind::BudgetExhausted), 50),
        ("parked turns", kind(EventKind::TurnParked), 200),
        ("models down", kind(EventKind::ProviderDown), 50),
        ("models up again", kind(EventKind::ProviderUp), 50),
        ("nights without a model", total(&|outcome| usize::from(outcome.virtual_time.as_secs() > 3_600)), 2),
        ("answered asks", kind(EventKind::AskAnswered), 200),
        ("failed asks", kind(EventKind::AskFailed), 100),
        ("late answers", kind(EventKind::AskLate), 10),
        ("split turns", says(EventKind::TurnFinished, "status", "split"), 10),
        ("cancelled turns", says(EventKind::TurnFinished, "status", "cancelled"), 20),
        ("unknown outcomes", says(EventKind::ToolFinished, "status", "unknown"), 20),
        ("timed out calls", says(EventKind::ToolFinished, "error_code", "timeout"), 20),
        ("full inboxes", says(EventKind::ToolFinished, "error_code", "inbox_full"), 1),
        ("hop limits", says(EventKind::ToolFinished, "error_code", "hop_limit"), 1),
    ];
    for (what, count, least) in tally {
        println!("{count:>7} {what}");
        assert!(count >= least, "only {count} {what}; at least {least} are needed to prove anything");
    }
}

#[test]
fn a_calm_world_finishes_its_work() {
    let outcome = SimWorld::run(3, Course::calm()).unwrap();
    assert!(outcome.wrongs.is_empty(), "{}", complaint(&outcome).unwrap_or_default());
    assert_eq!(outcome.boots, 1);
}
