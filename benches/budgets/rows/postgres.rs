//! Journaled turns on PostgreSQL: 64 agents run turns of two model calls and one tool call through the rules and the
//! store, without the calls themselves. The floor tells a server the same statements in the same batches through bare
//! `sqlx`. Both have a server that waits for its disk.

use std::sync::Arc;

use ghost_domain::journal::{CallOutcome, Effect};
use ghost_domain::redact::Redactor;
use ghost_domain::transcript::{Block, TokenUsage};
use ghost_domain::{AgentId, AgentKind, CallId, Code, Kind, Limits, Party, Refusal, Turn};
use ghost_operations::budgets::{Demand, Reserved};
use ghost_operations::mail::{self, Chain, NewMessage};
use ghost_operations::turns::{self, CallStart, Ending, ModelResult};
use ghost_operations::{OperationContext, Tx, agents};
use ghost_store::Store;
use ghost_store::postgres::testing::{Bare, Cluster};
use ghost_store::postgres::{PostgresOptions, open_recorded, open_store};
use serde_json::json;

use crate::fixture::worker;
use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

const AGENTS: usize = 64;
/// Number of turns of each agent in one round.
const TURNS: usize = 4;
const ROUNDS: usize = 5;

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let cluster = Cluster::start_durable()?;
    runtime()?.block_on(async {
        let (store, recording) = open_recorded(PostgresOptions::new(cluster.url(), "ours")).await?;
        open_store(PostgresOptions::new(cluster.url(), "bare")).await?.close().await;
        let mut bare = Bare::connect(&cluster.url(), "bare").await?;
        let ctx =
            OperationContext::new(ghost_daemon::system_ports(), Redactor::default(), "bench", 1, Limits::default());
        let agents = Arc::new(population(&store, &ctx).await?);
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        let turns = (AGENTS * TURNS) as f64;
        bare.repeat(recording.take()).await?;
        for round in 0..=ROUNDS {
            let began = now();
            let running: Vec<_> =
                agents.iter().map(|id| tokio::spawn(run(store.clone(), ctx.clone(), id.clone()))).collect();
            for agent in running {
                agent.await??;
            }
            let taken = began.elapsed().as_secs_f64();
            let repeated = bare.repeat(recording.take()).await?.as_secs_f64();
            // The first round warms up both.
            if round > 0 {
                ours.push(turns / taken);
                floor.push(turns / repeated);
            }
        }
        store.close().await;
        let (ours, floor) = (median(ours), median(floor));
        Ok(vec![Line {
            what: "journaled turns, 64 agents, PostgreSQL",
            floor: format!("{floor:.0}/s"),
            ours: format!("{ours:.0}/s"),
            ratio: ours / floor,
            bar: 0.5,
            aim: 0.8,
            sense: Sense::AtLeast,
        }])
    })
}

async fn population(store: &Store, ctx: &OperationContext) -> Outcome<Vec<AgentId>> {
    let mut created = Vec::with_capacity(AGENTS);
    for agent in 0..AGENTS {
        let agent_id: AgentId = format!("agent-{agent}").parse()?;
        created.push(agent_id.clone());
        let new = worker(agent_id, AgentKind::Persistent, Chain::root(ctx));
        ctx.write(store, move |w| agents::create(w, &Party::System, new).map(drop)).await?;
    }
    Ok(created)
}

/// Runs the turns of one agent, one after the other. Each step is a command, as in a world.
async fn run(store: Store, ctx: OperationContext, agent_id: AgentId) -> Result<(), Refusal> {
    for _ in 0..TURNS {
        let body = "Please fetch the page and tell me what it holds.";
        let operator = Party::Operator("bench".into());
        let new_message = NewMessage::new(&agent_id, operator, Kind::Message, body, Chain::root(&ctx));
        step(&store, &ctx, move |w| mail::deliver(w, new_message).map(drop)).await?;
        let of = agent_id.clone();
        let taken = step(&store, &ctx, move |w| turns::take(w, &of, None)).await?;
        let turn = taken.map(|taken| taken.turn).ok_or_else(|| failed("there is no turn to take"))?;
        model(&store, &ctx, &turn, "I look it up.").await?;
        let (of, start) = (turn.clone(), call(&ctx));
        let call_id = start.call_id;
        step(&store, &ctx, move |w| turns::record_call_start(w, &of, &start)).await?;
        let (of, outcome) =
            (turn.clone(), CallOutcome { content: json!("It took in 1,204 ships."), ..Default::default() });
        let end = move |w: &mut Tx| turns::record_call_end(w, &of, call_id, "call_1", "web.fetch", &outcome);
        step(&store, &ctx, end).await?;
        model(&store, &ctx, &turn, "The page says that the harbour took in 1,204 ships.").await?;
        let of = turn.turn_id;
        step(&store, &ctx, move |w| turns::finish(w, of, Ending::Finished("done".into())).map(drop)).await?;
    }
    Ok(())
}

fn failed(what: &str) -> Refusal {
    Refusal::new(Code::Internal, what)
}

/// A model call: its start and its answer.
async fn model(store: &Store, ctx: &OperationContext, turn: &Turn, text: &'static str) -> Result<(), Refusal> {
    let of = turn.turn_id;
    let reserved = step(store, ctx, move |w| turns::model_started(w, of, &demand())).await?;
    let Reserved::Granted(reservation_id, _) = reserved else { return Err(failed("no budget is left")) };
    let result = ModelResult {
        reservation_id,
        provider: "p".into(),
        model: "m".into(),
        blocks: vec![Block::Text { text: text.into() }],
        stop: None,
        usage: Some(TokenUsage { input: 900, output: 40, ..TokenUsage::default() }),
        estimated: false,
        price: None,
        duration_ms: 7,
    };
    step(store, ctx, move |w| turns::model_answered(w, of, result).map(drop)).await
}

async fn step<T: Send + 'static>(
    store: &Store,
    ctx: &OperationContext,
    work: impl FnOnce(&mut Tx) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    ctx.write(store, work).await
}

fn demand() -> Demand {
    Demand {
        provider: "p".into(),
        model: "m".into(),
        input: 900,
        max_tokens: 1_000,
        price: None,
        free: true,
        behind: Default::default(),
        another: false,
    }
}

fn call(ctx: &OperationContext) -> CallStart {
    CallStart {
        call_id: CallId(ctx.id()),
        id: "call_1".into(),
        tool: "web.fetch".into(),
        alias: None,
        arguments: json!({}),
        effect: Effect::Outside,
        files: Vec::new(),
        ask_id: None,
        begun_at: None,
    }
}
