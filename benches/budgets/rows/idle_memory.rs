//! Memory of an idle agent, awake and asleep, compared with a bare ractor actor: live heap bytes divided by 10,000.
//! Each is measured in its own process with a counting allocator. SQLite's memory is not included: it has a limit
//! that does not depend on the number of agents.

use std::time::Duration;

use ghost_domain::ports::Ports;
use ghost_domain::testing::ManualClock;
use ghost_domain::{Activity, AgentId, AgentKind, Party};
use ghost_operations::agents;
use ghost_operations::mail::Chain;
use ghost_world::World;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::child::Child;
use crate::fixture::worker;
use crate::measure::{Outcome, pause, runtime};
use crate::table::{Line, Sense};
use crate::{alloc, fixture};

const COUNT: usize = 10_000;
/// Number of agents that are created before the count begins, so that shared structures are not counted.
const EARLY: usize = 64;
/// Maximum number of checks whether the heap of a world has stopped changing, 100 ms apart.
const LOOKS: usize = 600;
/// Number of checks in a row that must see the same heap.
const STEADY: usize = 8;

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let count = COUNT.to_string();
    let floor: f64 = Child::part("bare-actors", &[&count])?.line()?.parse()?;
    let mut ours = Child::part("idle-agents", &[&count])?;
    let (awake, asleep): (f64, f64) = (ours.line()?.parse()?, ours.line()?.parse()?);
    let line = |what, bytes: f64, bar, aim| Line {
        what,
        floor: format!("{floor:.0} B"),
        ours: format!("{bytes:.0} B"),
        ratio: bytes / floor,
        bar,
        aim,
        sense: Sense::AtMost,
    };
    Ok(vec![
        line("memory of an idle agent, awake", awake, 1.5, 1.2),
        line("memory of an idle agent, asleep", asleep, 0.06, 0.015),
    ])
}

/// An actor without work.
struct Bare;

/// The messages of the bare actor.
#[derive(Debug)]
enum BareMsg {
    /// A wake-up without effect.
    Wake,
}

impl Actor for Bare {
    type Msg = BareMsg;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<BareMsg>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<BareMsg>, message: BareMsg, (): &mut ()) -> Result<(), ActorProcessingErr> {
        match message {
            BareMsg::Wake => Ok(()),
        }
    }
}

/// The helper process of the floor. Prints the bytes of one actor.
pub fn bare(count: usize) -> Outcome<()> {
    alloc::count();
    runtime()?.block_on(async {
        // Structures that the first actor creates for all actors are not counted.
        let (first, _) = Actor::spawn(None, Bare, ()).await?;
        first.cast(BareMsg::Wake)?;
        let before = steady().await?;
        let mut actors = Vec::with_capacity(count);
        for _ in 0..count {
            let (actor, _) = Actor::spawn(None, Bare, ()).await?;
            // An agent has been woken at least once, so this actor is, too.
            actor.cast(BareMsg::Wake)?;
            actors.push(actor);
        }
        println!("{}", per_one(before, steady().await?, count));
        drop(actors);
        Ok(())
    })
}

/// The helper process of the agents. Prints the bytes of an awake agent, then of a sleeping one.
pub fn ours(count: usize) -> Outcome<()> {
    alloc::count();
    runtime()?.block_on(async {
        let dir = tempfile::tempdir()?;
        let (world_dir, data) = (dir.path().join("bench"), dir.path().join("data"));
        std::fs::create_dir_all(&data)?;
        // No model is called. The one agent of the plan is never woken.
        fixture::write_world(&world_dir, 1, "http://127.0.0.1:9/v1")?;
        let clock = ManualClock::at(1_795_298_880_000);
        let real = ghost_daemon::system_ports();
        let ports = Ports { clock: clock.clone(), ids: real.ids, rng: real.rng };
        let world = fixture::boot(&world_dir, &data, ports, Vec::new()).await?;
        populate(&world, "early", EARLY).await?;
        until_all(&world, EARLY, Activity::Idle).await?;
        let before = steady().await?;
        populate(&world, "agent", count).await?;
        until_all(&world, EARLY + count, Activity::Idle).await?;
        println!("{}", per_one(before, steady().await?, count));
        clock.advance(Duration::from_secs(2 * 3_600));
        until_all(&world, 1 + EARLY + count, Activity::Asleep).await?;
        println!("{}", per_one(before, steady().await?, count));
        Ok(())
    })
}

/// Creates agents without messages, as an operator would. Each starts, reads its empty inbox, and
/// goes idle.
async fn populate(world: &World, name: &str, count: usize) -> Outcome<()> {
    for agent in 0..count {
        let agent_id: AgentId = format!("{name}-{agent}").parse()?;
        let new = worker(agent_id, AgentKind::Dynamic, Chain::root(world.ctx()));
        world.write(move |w| agents::create(w, &Party::Operator("bench".into()), new).map(drop)).await?;
    }
    Ok(())
}

async fn until_all(world: &World, count: usize, activity: Activity) -> Outcome<()> {
    let mut there = 0;
    for _ in 0..LOOKS {
        there = world.directory().cards().iter().filter(|card| card.activity == activity).count();
        if there == count {
            return Ok(());
        }
        pause(Duration::from_millis(100)).await;
    }
    Err(format!("{there} of {count} agents are {}", activity.as_str()).into())
}

/// Live heap bytes when they no longer change.
async fn steady() -> Outcome<isize> {
    let (mut last, mut same) = (alloc::live(), 0);
    for _ in 0..LOOKS {
        pause(Duration::from_millis(100)).await;
        let live = alloc::live();
        same = if live == last { same + 1 } else { 0 };
        last = live;
        if same == STEADY {
            return Ok(live);
        }
    }
    Err("the heap does not come to rest".into())
}

fn per_one(before: isize, after: isize, count: usize) -> f64 {
    (after - before) as f64 / count as f64
}
