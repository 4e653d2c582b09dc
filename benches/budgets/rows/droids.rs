//! CPU time of 100 droids that are spawned, run and end, beside 100 journaled turns of agents. A droid's turn is like those
//! turns: two model calls and one tool call. The ten parents' turns that spawn them are in the figure, and so are the mails
//! about their ends. What the parents make of those mails is not: they wait in a call until all droids have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::{AgentId, Kind, Party, Refusal};
use ghost_operations::mail::{self, Chain, NewMessage};
use ghost_provider::testing::{FakeAnswer, FakeCall, FakeReply, FakeRequest, FakeServer};
use ghost_store::StoreError;
use ghost_tools::tool::OutsideTool;
use ghost_tools::{CallContext, Output, Run, Tool};
use ghost_world::World;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::journaled_turn::{AGENTS, tool, tool_named, turns};
use crate::child::Child;
use crate::fixture;
use crate::measure::{Outcome, cpu, median, now, pause, runtime};
use crate::table::{Line, Sense};

const PARENTS: usize = 10;
const DROIDS_EACH: usize = 10;
const ROUNDS: usize = 7;
/// The longest time of one round.
const LONGEST: Duration = Duration::from_secs(120);
const SPAWN: &str = "Please start your droids.";
const TASK: &str = "Fetch the page and say what it holds.";
/// The name of the tool for droids: the world file only takes names of the catalogue, and Ghost has no such tool.
const OF_DROIDS: &str = "tts";
/// The tool in which parents wait.
const WAIT: &str = "bench.wait";
const LIMITS: &str = "limits: { droids_max: 200, droids_per_agent: 20, ";

/// Waits until the gate is open.
struct Wait {
    gate: watch::Receiver<bool>,
    /// Calls that began to wait.
    begun: Arc<AtomicUsize>,
}

#[async_trait]
impl OutsideTool for Wait {
    async fn run(&self, _: &CallContext, _: Value) -> Result<Output, Refusal> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        // A gate that is gone is open.
        let _ = self.gate.clone().wait_for(|open| *open).await;
        Ok(Value::Null.into())
    }
}

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let mut server = Child::part("droid-model", &[])?;
    let url = server.line()?;
    runtime()?.block_on(async {
        let dir = tempfile::tempdir()?;
        let (world_dir, data) = (dir.path().join("bench"), dir.path().join("data"));
        std::fs::create_dir_all(&data)?;
        // Each round has parents of its own: what they recall of earlier rounds would grow, and is no cost of droids.
        fixture::write_world(&world_dir, AGENTS + PARENTS * (ROUNDS + 1), &format!("{url}/v1"))?;
        let file = world_dir.join("world-config.yaml");
        let text = std::fs::read_to_string(&file)?.replace("limits: { ", LIMITS);
        std::fs::write(&file, text + "droids: { tools: [tts] }\n")?;
        let (gate, gated) = watch::channel(false);
        let begun = Arc::new(AtomicUsize::new(0));
        let none = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        let wait =
            Tool::with_schema(WAIT, "Waits.", none, Run::outside(Wait { gate: gated, begun: Arc::clone(&begun) }));
        let world = fixture::boot(
            &world_dir,
            &data,
            ghost_daemon::system_ports(),
            vec![tool(&url)?, tool_named(OF_DROIDS, &url)?, wait],
        )
        .await?;
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (droids, turn) = (droids(&world, round, &gate, &begun).await?, turns(&world).await?);
            if round > 0 {
                ours.push(droids);
                floor.push(turn);
            }
        }
        world.shutdown("measured").await;
        world.store().close().await;
        let (ours, floor) = (median(ours), median(floor));
        let count = (PARENTS * DROIDS_EACH) as f64;
        Ok(vec![Line {
            what: "CPU of 100 droids, beside 100 journaled turns",
            floor: format!("{:.1} ms", floor * 1e3 * count),
            ours: format!("{:.1} ms", ours * 1e3 * count),
            ratio: ours / floor,
            bar: 1.5,
            aim: 1.2,
            sense: Sense::AtMost,
        }])
    })
}

/// Lets the parents start their droids, and waits until all have ended. Returns the CPU seconds of one droid.
async fn droids(world: &World, round: usize, gate: &watch::Sender<bool>, begun: &AtomicUsize) -> Outcome<f64> {
    gate.send_replace(false);
    begun.store(0, Ordering::Relaxed);
    let began = cpu();
    for parent in 0..PARENTS {
        let agent_id: AgentId = format!("worker-{}", AGENTS + round * PARENTS + parent).parse()?;
        let ctx = world.ctx().clone();
        let from = Party::Operator("bench".into());
        let message = NewMessage::new(&agent_id, from, Kind::Message, SPAWN, Chain::root(&ctx));
        world.write(move |w| mail::deliver(w, message)).await?;
    }
    // Every parent has started its droids before it waits.
    until(world, |waiting| begun.load(Ordering::Relaxed) == PARENTS && waiting.droids == 0).await?;
    let used = cpu() - began;
    gate.send_replace(true);
    until(world, |waiting| waiting.turns == 0 && waiting.mails == 0).await?;
    Ok(used.as_secs_f64() / (PARENTS * DROIDS_EACH) as f64)
}

/// What is still to be done.
struct Waiting {
    mails: usize,
    turns: usize,
    droids: usize,
}

/// Waits for a state of the world.
async fn until(world: &World, is_so: impl Fn(&Waiting) -> bool) -> Outcome<()> {
    let (began, parent_id): (_, AgentId) = (now(), "worker-0".parse()?);
    while began.elapsed() < LONGEST {
        pause(Duration::from_millis(50)).await;
        let parent_id = parent_id.clone();
        let read = world.store().read_latest(move |r| {
            Ok::<_, StoreError>(Waiting {
                mails: r.inbox_total()? as usize,
                turns: r.turns_open()?.len(),
                droids: r.droids_live_count(&parent_id)?.all as usize,
            })
        });
        if is_so(&read.await?) {
            return Ok(());
        }
    }
    Err("the droids do not come to their end".into())
}

/// The helper process: the models of the parents and of the droids, and the page.
pub fn serve_model() -> Outcome<()> {
    runtime()?.block_on(async {
        let server = FakeServer::start(false, answer).await?;
        println!("{}", server.url());
        std::future::pending::<()>().await;
        drop(server);
        Ok(())
    })
}

fn answer(request: &FakeRequest) -> FakeReply {
    if request.path == "/page" {
        return FakeReply::new(200, "text/plain", "The harbour took in 1,204 ships, 96 more than the year before.");
    }
    // What comes before is recalled from earlier turns.
    let mail = request.last_of("user").rsplit("<inbox>").next().unwrap_or_default();
    let spawns = mail.contains(SPAWN);
    let answer = match request.rounds() {
        0 if spawns => {
            let call = |n| FakeCall {
                id: format!("call_{n}"),
                tool: "syscall.droid.spawn".into(),
                arguments: json!({ "task": format!("{TASK} Part {n}.") }),
            };
            FakeAnswer::Model { text: String::new(), calls: (0..DROIDS_EACH).map(call).collect() }
        }
        1 if spawns => FakeAnswer::call("wait", WAIT, json!({})),
        0 if mail.contains(TASK) => FakeAnswer::call("call_1", OF_DROIDS, json!({})),
        0 if mail.contains("fetch the page") => FakeAnswer::call("call_1", "bench.fetch", json!({})),
        _ => FakeAnswer::say("The page says that the harbour took in 1,204 ships, 96 more than last year."),
    };
    answer.into_reply(request)
}
