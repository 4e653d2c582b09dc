//! The cost of age: a world of a thousand turns compared with one of many. The young world has run its turns; the
//! old one is made of copies of them ([`ghost_testkit::aged`]). `GHOST_BENCH_TURNS` sets the number of turns of the
//! old world.
//!
//! The two worlds must never be measured at different times. Rounds alternate, and the result is
//! the median.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_domain::Refusal;
use ghost_domain::limits::Limits;
use ghost_operations::retention;
use ghost_store::tables::Family;
use ghost_testkit::aged;
use ghost_world::World;

use super::journaled_turn::{self, AGENTS, TURNS};
use super::{age_feed, age_reads, age_wakes, age_width};
use crate::child::Child;
use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};
use crate::{fixture, rows};

/// Default number of turns of the old world.
const OLD: u64 = 50_000;
/// Number of turns of the young world.
const YOUNG: usize = 1_000;
const STARTS: usize = 9;
const TURN_ROUNDS: usize = 5;
const SWEEPS: usize = 7;
/// Number of slices that a sweep deletes. The young world has enough rows for them.
const PRUNES: usize = 5;
/// Number of slices of the ledger that a sweep deletes.
const LEDGER_PRUNES: usize = 2;

/// The data of a world.
pub(super) struct Site {
    world: PathBuf,
    data: PathBuf,
}

impl Site {
    /// A world of its own in `dir`, with this many agents and no data yet.
    pub(super) fn with_agents(dir: &Path, agents: usize, url: &str) -> Outcome<Self> {
        let site = Self { world: dir.join("bench"), data: dir.join("data") };
        fixture::write_world(&site.world, agents, &format!("{url}/v1"))?;
        // A world that has run does not start without its workspace.
        std::fs::create_dir_all(site.data.join("workspace"))?;
        Ok(site)
    }

    pub(super) fn database(&self) -> PathBuf {
        self.data.join("ghost.db")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.data.join("ghostd.sock")
    }

    pub(super) fn daemon(&self) -> Outcome<Child> {
        Child::daemon(&self.world, &self.data)
    }

    pub(super) async fn boot(&self, url: &str) -> Outcome<Arc<World>> {
        fixture::boot(&self.world, &self.data, ghost_daemon::system_ports(), vec![journaled_turn::tool(url)?]).await
    }
}

/// Measures all rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let turns = match std::env::var("GHOST_BENCH_TURNS") {
        Ok(text) => text.trim().parse::<u64>().map_err(|error| format!("GHOST_BENCH_TURNS={text}: {error}"))?,
        Err(_) => OLD,
    };
    let mut server = Child::part("model-server", &[])?;
    let url = server.line()?;
    let dir = tempfile::tempdir()?;
    let world = dir.path().join("bench");
    fixture::write_world(&world, AGENTS, &format!("{url}/v1"))?;
    let site = |name: &str| Site { world: world.clone(), data: dir.path().join(name) };
    let (young, old) = (site("young"), site("old"));
    let mut lines = runtime()?.block_on(made(&young, &old, &url, turns))?;
    lines.extend(age_width::measure(dir.path(), &young.database(), &url)?);
    lines.extend(starts(&young, &old)?);
    let (young_daemon, old_daemon) = (young.daemon()?, old.daemon()?);
    lines.extend(runtime()?.block_on(age_reads::measure(&young, &old))?);
    young_daemon.terminate()?;
    old_daemon.terminate()?;
    lines.extend(runtime()?.block_on(inside(&young, &old, &url))?);
    lines.extend(runtime()?.block_on(age_wakes::measure(&world, &young, &old, &url))?);
    Ok(lines)
}

/// Creates both worlds. Returns the row about the bytes of one turn.
async fn made(young: &Site, old: &Site, url: &str, turns: u64) -> Outcome<Vec<Line>> {
    std::fs::create_dir_all(&young.data)?;
    let world = young.boot(url).await?;
    for _ in 0..YOUNG / (AGENTS * TURNS) {
        journaled_turn::turns(&world).await?;
    }
    world.shutdown("made").await;
    world.store().close().await;
    copy_beside(&young.data, &old.data)?;
    // A world that has run does not start without its workspace.
    std::fs::create_dir_all(old.data.join("workspace"))?;
    let began = now();
    let aged = aged::age(&young.database(), &old.database(), turns)?;
    eprintln!("made {} turns of {} in {} s", aged.turns, aged.young_turns, began.elapsed().as_secs());
    for (name, bytes) in aged::weights(&old.database())?.iter().take(16) {
        eprintln!("  {name}: {:.0} B a turn", *bytes as f64 / aged.turns as f64);
    }
    let bytes = (aged.bytes - aged.young_bytes) as f64 / (aged.turns - aged.young_turns) as f64;
    Ok(vec![Line {
        what: "age: bytes on disk of a turn (two model calls, one tool call), of 4 kB",
        floor: "4000 B".into(),
        ours: format!("{bytes:.0} B"),
        ratio: bytes / 4_000.0,
        bar: 1.675,
        aim: 1.0,
        sense: Sense::AtMost,
    }])
}

/// Copies everything in a data directory except the database.
fn copy_beside(from: &Path, to: &Path) -> Outcome<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && !entry.file_name().to_string_lossy().starts_with("ghost.db") {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// A row with the young and the old world's figure in seconds.
pub(super) fn line(what: &'static str, young: Vec<f64>, old: Vec<f64>) -> Line {
    let (young, old) = (median(young), median(old));
    let shown = |seconds: f64| match seconds {
        seconds if seconds >= 0.01 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{:.0} us", seconds * 1e6),
    };
    // Printed at once, because a later error would lose the table.
    eprintln!("{what}: {}, {}", shown(young), shown(old));
    Line { what, floor: shown(young), ours: shown(old), ratio: old / young, bar: 1.3, aim: 1.05, sense: Sense::AtMost }
}

/// Seconds from the start of a daemon to its first answer.
pub(super) fn start(site: &Site) -> Outcome<f64> {
    let runtime = runtime()?;
    let began = now();
    let daemon = site.daemon()?;
    runtime.block_on(rows::ready::answer(&site.socket()))?;
    let taken = began.elapsed().as_secs_f64();
    daemon.terminate()?;
    Ok(taken)
}

/// Time from the start of the daemon to its first answer.
fn starts(young: &Site, old: &Site) -> Outcome<Vec<Line>> {
    let (mut of_young, mut of_old) = (Vec::new(), Vec::new());
    for round in 0..=STARTS {
        let (young, old) = (start(young)?, start(old)?);
        // The first start fills the page cache with both files.
        if round > 0 {
            of_young.push(young);
            of_old.push(old);
        }
    }
    Ok(vec![line("age: `ghostd up` to ready", of_young, of_old)])
}

/// The measurements within this process: turns, retention and the event feed.
async fn inside(young: &Site, old: &Site, url: &str) -> Outcome<Vec<Line>> {
    let (young_world, old_world) = (young.boot(url).await?, old.boot(url).await?);
    let (mut of_young, mut of_old) = (Vec::new(), Vec::new());
    for round in 0..=TURN_ROUNDS {
        let (young, old) = (journaled_turn::turns(&young_world).await?, journaled_turn::turns(&old_world).await?);
        if round > 0 {
            of_young.push(young);
            of_old.push(old);
        }
    }
    let mut lines = vec![line("age: CPU of one journaled turn", of_young, of_old)];
    let (mut of_young, mut of_old) = (Vec::new(), Vec::new());
    for _ in 0..SWEEPS {
        of_young.push(sweep(&young_world).await?);
        of_old.push(sweep(&old_world).await?);
    }
    lines.push(line("age: a sweep of retention that finds nothing", of_young, of_old));
    lines.extend(age_feed::measure(old_world.store(), &old.database()).await?);
    // Last, because it deletes rows that the other measurements need.
    for (what, family) in PRUNED {
        let (mut of_young, mut of_old) = (Vec::new(), Vec::new());
        let slices = if family == Family::Ledger { LEDGER_PRUNES } else { PRUNES };
        for round in 0..=slices {
            let (young, old) = (prune(&young_world, family).await?, prune(&old_world, family).await?);
            // The first slice fills the cache with the pages of the oldest rows.
            if round > 0 {
                of_young.push(young);
                of_old.push(old);
            }
        }
        lines.push(line(what, of_young, of_old));
    }
    for world in [young_world, old_world] {
        world.shutdown("measured").await;
        world.store().close().await;
    }
    Ok(lines)
}

/// The families of rows that every turn writes.
const PRUNED: [(&str, Family); 5] = [
    ("age: pruning 500 events", Family::Events),
    ("age: pruning 500 turns with their journals", Family::Turns),
    ("age: pruning 500 pieces of mail", Family::Messages),
    ("age: pruning 1,000 ledger rows", Family::Ledger),
    ("age: pruning 500 usage rows", Family::Usage),
];

async fn sweep(world: &World) -> Outcome<f64> {
    let began = now();
    match retention::sweep(world.store(), world.ctx()).await? {
        0 => Ok(began.elapsed().as_secs_f64()),
        rows => Err(format!("{rows} rows were pruned where there should be none").into()),
    }
}

/// Deletes one slice of rows of any age.
async fn prune(world: &World, family: Family) -> Outcome<f64> {
    let (after_all, slice) = (world.ctx().now().plus(Limits::days(1)), retention::slice_of(family));
    let began = now();
    let gone = world.store().write(move |w| Ok::<_, Refusal>(w.prune(family, after_all, slice)?)).await?;
    match gone {
        rows if rows == u64::from(slice) => Ok(began.elapsed().as_secs_f64()),
        rows => Err(format!("{rows} rows of {family:?} were pruned, not {slice}").into()),
    }
}
