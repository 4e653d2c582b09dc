//! Many agents that run commands at once, and what is left after them: nothing. A program of its own, because it measures
//! its own descriptors and memory. `GHOST_LOAD_SECONDS` sets its length for each sandbox; 10 without it.

// A failure in a test is a panic with a message. The test looks at the machine's processes, as an operator would.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, clippy::print_stderr)]
#![allow(dead_code, reason = "the contract suite uses the rest of these modules")]

#[path = "machine.rs"]
mod machine;
#[path = "own.rs"]
mod own;
#[path = "place.rs"]
mod place;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ghost_sandbox::{End, Sandbox};

use crate::machine::{containers, gone, mark, until};
use crate::own::{children, descriptors, memory, mounts};
use crate::place::{Kind, Place, engine_host, sh};

const AGENTS: usize = 50;
const SECONDS: u64 = 10;

fn seconds() -> u64 {
    std::env::var("GHOST_LOAD_SECONDS").map_or(SECONDS, |text| text.parse().expect("GHOST_LOAD_SECONDS is a number"))
}

/// One agent's commands until `end`: short ones, loud ones, ones that leave processes behind, ones that reach their
/// deadline, ones that nobody waits for. Returns how many there were.
async fn work(sandbox: &dyn Sandbox, agent: &str, mark: &str, end: Instant) -> usize {
    let mut count = 0;
    while Instant::now() < end || count == 0 {
        for (script, timeout, wanted) in [
            ("echo ok", 60_000, End::Exited(0)),
            ("head -c 300000 /dev/zero; exit 3", 60_000, End::Exited(3)),
            (&*format!("(setsid sleep {mark} &); echo x > file; exit 0"), 60_000, End::Exited(0)),
            (&*format!("sleep {mark}"), 50, End::Deadline),
        ] {
            let mut command = sh(agent, script);
            command.timeout = Duration::from_millis(timeout);
            let done =
                sandbox.run(command, &|_| {}).await.unwrap_or_else(|refusal| panic!("{agent}: {script}: {refusal}"));
            assert_eq!(done.end, wanted, "{agent}: {script}: {}", done.stderr.text);
        }
        let dropped = sandbox.run(sh(agent, &format!("sleep {mark}")), &|_| {});
        let _ = tokio::time::timeout(Duration::from_millis(20), dropped).await;
        count += 5;
    }
    count
}

fn fifty_agents(kind: Kind) {
    let before = (mounts(), children());
    let Some(place) = Place::new(kind) else { return };
    let mark = mark();
    let names: Vec<String> = (0..AGENTS).map(|number| format!("agent-{number}")).collect();
    let round = |seconds: u64| {
        let end = Instant::now() + Duration::from_secs(seconds);
        let all = names.iter().map(|agent| work(&*place.sandbox, agent, &mark, end));
        place.runtime.block_on(join_all(all)).into_iter().sum::<usize>()
    };
    round(0);
    let warm = memory();
    let count = round(seconds());
    let grown = memory().saturating_sub(warm);
    eprintln!("{kind:?}: {count} commands of {AGENTS} agents in {} s, {} KiB more", seconds(), grown / 1_024);
    assert!(grown < 16 << 20, "{grown} bytes more");
    place.runtime.block_on(place.sandbox.close());
    gone(&mark);
    let data = place.data();
    until("no runner is left", || children() <= before.1);
    if kind == Kind::Docker {
        until("no container is left", || containers(engine_host().as_deref(), &data).is_empty());
    }
    until("no mount is left", || mounts() <= before.0);
    drop(place);
}

/// 100 MB through the cap.
fn large_output(kind: Kind) {
    let Some(place) = Place::new(kind) else { return };
    place.sh("ada", "head -c 1000000 /dev/zero");
    let before = memory();
    let done = place.sh("ada", "head -c 104857600 /dev/zero");
    assert_eq!((done.end, done.stdout.bytes), (End::Exited(0), 104_857_600));
    assert!(done.stdout.text.len() < 60_000);
    let grown = memory().saturating_sub(before);
    eprintln!("{kind:?}: 100 MB of output in {:?}, {} KiB more", done.duration, grown / 1_024);
    assert!(grown < 8 << 20, "{grown} bytes more");
}

// One test: two at once would disturb each other's figures.
#[test]
fn fifty_agents_and_a_large_output_leave_nothing_behind() {
    for kind in [Kind::Local, Kind::Docker] {
        large_output(kind);
        // The runtime's own, which it keeps for the whole process, are there now.
        let before = descriptors();
        fifty_agents(kind);
        until("no descriptor is left", || descriptors() <= before);
    }
}
