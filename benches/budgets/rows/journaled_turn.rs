//! CPU time of one journaled turn: two model calls and one tool call over HTTP, in a world of 100 agents with an
//! SQLite file. The floor makes the same three requests, with the bodies that the world sent, with a client of the
//! same settings, in each round. The server is another process, so neither figure includes it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::{AgentId, Code, Kind, Party, Refusal, Timestamp, Turn, TurnStatus};
use ghost_operations::mail::{self, Chain, NewMessage};
use ghost_provider::testing::{FakeAnswer, FakeReply, FakeRequest, FakeServer};
use ghost_store::StoreError;
use ghost_store::tables::TurnFilter;
use ghost_tools::tool::OutsideTool;
use ghost_tools::{CallContext, Output, Run, Tool};
use ghost_world::World;
use serde_json::{Value, json};

use crate::child::Child;
use crate::fixture;
use crate::measure::{Outcome, cpu, median, pause, runtime};
use crate::table::{Line, Sense};

/// Number of agents.
pub(super) const AGENTS: usize = 100;
/// Number of turns of each agent in one round.
pub(super) const TURNS: usize = 5;
const ROUNDS: usize = 7;
const TOOL: &str = "bench.fetch";

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let mut server = Child::part("model-server", &[])?;
    let url = server.line()?;
    runtime()?.block_on(async {
        let dir = tempfile::tempdir()?;
        let (world_dir, data) = (dir.path().join("bench"), dir.path().join("data"));
        std::fs::create_dir_all(&data)?;
        fixture::write_world(&world_dir, AGENTS, &format!("{url}/v1"))?;
        let world = fixture::boot(&world_dir, &data, ghost_daemon::system_ports(), vec![tool(&url)?]).await?;
        // The recalled history of the agents first reaches its full size.
        for _ in 0..2 {
            turns(&world).await?;
        }
        let client = client()?;
        Bare::turns(&Arc::new(Bare::captured(&client, &url).await?)).await?;
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(turns(&world).await?);
            // The logs grow, and the bodies with them.
            floor.push(Bare::turns(&Arc::new(Bare::captured(&client, &url).await?)).await?);
        }
        world.shutdown("measured").await;
        world.store().close().await;
        let (ours, floor) = (median(ours), median(floor));
        Ok(vec![Line {
            what: "CPU of one journaled turn, 100 agents",
            floor: format!("{:.0} us", floor * 1e6),
            ours: format!("{:.0} us", ours * 1e6),
            ratio: ours / floor,
            bar: 4.0,
            aim: 2.0,
            sense: Sense::AtMost,
        }])
    })
}

/// The tool that each turn calls. It makes a request to the server at `url`.
pub(super) fn tool(url: &str) -> Outcome<Tool> {
    tool_named(TOOL, url)
}

/// The same tool under another name.
pub(super) fn tool_named(name: &str, url: &str) -> Outcome<Tool> {
    let fetch = Fetch { client: client()?, url: format!("{url}/page") };
    let parameters = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    Ok(Tool::with_schema(name, "Fetches the page.", parameters, Run::outside(fetch)))
}

/// Lets every agent handle its messages, one turn for each message. Returns the CPU seconds of one
/// turn.
pub(super) async fn turns(world: &World) -> Outcome<f64> {
    let operator = Party::Operator("bench".into());
    world.set_paused(&operator, true).await?;
    for agent in 0..AGENTS {
        let agent_id: AgentId = format!("worker-{agent}").parse()?;
        for _ in 0..TURNS {
            let ctx = world.ctx().clone();
            let body = "Please fetch the page and tell me what it holds.";
            let new_message = NewMessage::new(&agent_id, operator.clone(), Kind::Message, body, Chain::root(&ctx));
            world.write(move |w| mail::deliver(w, new_message)).await?;
        }
    }
    let since = world.ctx().now();
    let began = cpu();
    world.set_paused(&operator, false).await?;
    loop {
        pause(Duration::from_millis(50)).await;
        let (waiting, open) =
            world.store().read(|r| Ok::<_, StoreError>((r.inbox_total()?, r.turns_open()?.len()))).await?;
        if waiting == 0 && open == 0 {
            break;
        }
    }
    let used = cpu() - began;
    let done = finished(world, since).await?;
    match done == AGENTS * TURNS {
        true => Ok(used.as_secs_f64() / done as f64),
        false => Err(format!("{done} of {} turns made two model calls and a tool call", AGENTS * TURNS).into()),
    }
}

/// Of the newest turns of one round: the number that began since `since` and finished after two model calls and one
/// tool call.
async fn finished(world: &World, since: Timestamp) -> Outcome<usize> {
    let limit = u32::try_from(AGENTS * TURNS)?;
    let filter = TurnFilter { status: Some(TurnStatus::Finished), limit, ..TurnFilter::default() };
    let turns = world.store().read(move |r| r.turn_list(&filter)).await?;
    let whole = |turn: &&Turn| turn.started_at >= since && turn.rounds == 2 && turn.calls == 1;
    Ok(turns.iter().filter(whole).count())
}

/// A client with the settings of the provider's client.
fn client() -> Outcome<reqwest::Client> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that a crypto provider is already installed.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    let client = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(15))
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(256)
        .tcp_nodelay(true)
        .no_proxy()
        .build()?;
    Ok(client)
}

/// A tool that makes one request and returns its body.
struct Fetch {
    client: reqwest::Client,
    url: String,
}

#[async_trait]
impl OutsideTool for Fetch {
    async fn run(&self, _: &CallContext, _: Value) -> Result<Output, Refusal> {
        let failed = |error: reqwest::Error| Refusal::new(Code::Unavailable, error.to_string());
        let page = self.client.get(&self.url).send().await.map_err(failed)?.text().await.map_err(failed)?;
        Ok(Value::String(page).into())
    }
}

/// The floor: the bare requests.
struct Bare {
    client: reqwest::Client,
    url: String,
    first: Vec<u8>,
    second: Vec<u8>,
}

impl Bare {
    /// Gets the bodies of the world's last requests.
    async fn captured(client: &reqwest::Client, url: &str) -> Outcome<Self> {
        let body = async |round: usize| -> Outcome<Vec<u8>> {
            let bytes = client.get(format!("{url}/last/{round}")).send().await?.error_for_status()?.bytes().await?;
            Ok(bytes.to_vec())
        };
        let (first, second) = (body(0).await?, body(1).await?);
        Ok(Self { client: client.clone(), url: url.to_owned(), first, second })
    }

    /// Makes the requests of one round, with the same concurrency as the world. Returns the CPU seconds of one turn.
    async fn turns(bare: &Arc<Self>) -> Outcome<f64> {
        let began = cpu();
        let agents: Vec<_> = (0..AGENTS)
            .map(|_| {
                let bare = Arc::clone(bare);
                tokio::spawn(async move {
                    for _ in 0..TURNS {
                        bare.ask(&bare.first).await?;
                        drop(bare.client.get(format!("{}/page", bare.url)).send().await?.text().await?);
                        bare.ask(&bare.second).await?;
                    }
                    Ok::<_, reqwest::Error>(())
                })
            })
            .collect();
        for agent in agents {
            agent.await??;
        }
        Ok((cpu() - began).as_secs_f64() / (AGENTS * TURNS) as f64)
    }

    async fn ask(&self, body: &[u8]) -> Result<(), reqwest::Error> {
        let call = self.client.post(format!("{}/v1/chat/completions", self.url));
        let call = call.header("content-type", "application/json").header("accept", "text/event-stream");
        let mut response = call.body(body.to_vec()).send().await?.error_for_status()?;
        while response.chunk().await?.is_some() {}
        Ok(())
    }
}

/// The helper process: a model server, the page for the tool, and a route that returns the last requests.
pub fn serve_model() -> Outcome<()> {
    runtime()?.block_on(async {
        let last = Mutex::new([Value::Null, Value::Null]);
        let server = FakeServer::start(false, move |request| answer(&last, request)).await?;
        println!("{}", server.url());
        std::future::pending::<()>().await;
        drop(server);
        Ok(())
    })
}

fn answer(last: &Mutex<[Value; 2]>, request: &FakeRequest) -> FakeReply {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    match request.path.as_str() {
        "/page" => FakeReply::new(200, "text/plain", "The harbour took in 1,204 ships, 96 more than the year before."),
        "/last/0" => FakeReply::new(200, "application/json", last[0].to_string()),
        "/last/1" => FakeReply::new(200, "application/json", last[1].to_string()),
        _ => {
            let rounds = request.rounds();
            if let Some(last) = last.get_mut(rounds) {
                *last = request.body.clone();
            }
            let answer = match rounds {
                0 => FakeAnswer::call("call_1", TOOL, json!({})),
                _ => FakeAnswer::say("The page says that the harbour took in 1,204 ships, 96 more than last year."),
            };
            answer.into_reply(request)
        }
    }
}
