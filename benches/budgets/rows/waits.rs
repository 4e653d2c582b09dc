//! How long a send waits for other work of the writer: for the mail that waits already in its receiver's inbox, and for a
//! broadcast to 20,000 agents.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ghost_domain::redact::Redactor;
use ghost_domain::{AgentId, AgentKind, Kind, Limits, MailState, MessageId, Party, Refusal};
use ghost_operations::mail::{self, Chain, NewMessage};
use ghost_operations::{OperationContext, Tx, agents};
use ghost_store::Store;
use ghost_store::sqlite::{SqliteOptions, open_store};

use crate::fixture::worker;
use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

/// Number of agents that a broadcast reaches.
const AGENTS: usize = 20_000;
/// Number of agents that one command creates.
const TOGETHER: usize = 500;
/// Number of messages in the full inbox, and of sends in a round.
const DEPTH: usize = 1_000;
const SENDS: usize = 200;
const ROUNDS: usize = 15;
/// Senders beside the broadcasts, and number of broadcasts.
const SENDERS: usize = 8;
const BROADCASTS: usize = 3;
/// The bar for a send beside a broadcast, in milliseconds. It is a bound for people, so it has no floor.
const PAUSE_MS: f64 = 100.0;

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    runtime()?.block_on(async {
        let dir = tempfile::tempdir()?;
        let store = open_store(&dir.path().join("ours.db"), SqliteOptions::default()).await?;
        let limits = Limits { world_mail_max: 100_000_000, inbox_max: 1_000_000, ..Limits::default() };
        let ctx = OperationContext::new(ghost_daemon::system_ports(), Redactor::default(), "bench", 1, limits);
        for first in (0..AGENTS).step_by(TOGETHER) {
            create(&store, &ctx, first).await?;
        }
        let lines = vec![depth(&store, &ctx).await?, pause(&store, &ctx).await?];
        store.close().await;
        Ok(lines)
    })
}

fn agent(number: usize) -> Outcome<AgentId> {
    Ok(format!("agent-{number:05}").parse()?)
}

async fn create(store: &Store, ctx: &OperationContext, first: usize) -> Outcome<()> {
    let ids = (first..first + TOGETHER).map(agent).collect::<Outcome<Vec<_>>>()?;
    let create = move |w: &mut Tx| {
        for agent_id in ids {
            let new = worker(agent_id, AgentKind::Persistent, Chain::root(w.ctx));
            agents::create(w, &Party::System, new)?;
        }
        Ok::<_, Refusal>(())
    };
    ctx.write(store, create).await?;
    Ok(())
}

fn new_message(ctx: &OperationContext, to: &AgentId) -> NewMessage {
    let body = "The figures of the third quarter are in output/reports/q3.md; compare them with the second's.";
    NewMessage::new(to, Party::Operator("bench".into()), Kind::Message, body, Chain::root(ctx))
}

/// Sends `count` messages in one command. Returns their ids and the seconds until its commit.
async fn send(store: &Store, ctx: &OperationContext, to: &AgentId, count: usize) -> Outcome<(Vec<MessageId>, f64)> {
    let to = to.clone();
    let began = now();
    let sent = ctx
        .write(store, move |w| {
            let deliver = |_| Ok::<_, Refusal>(mail::deliver(w, new_message(w.ctx, &to))?.message_id);
            (0..count).map(deliver).collect::<Result<Vec<_>, _>>()
        })
        .await?;
    Ok((sent, began.elapsed().as_secs_f64()))
}

/// Sends to an inbox of 1,000 messages beside sends to an empty one.
async fn depth(store: &Store, ctx: &OperationContext) -> Outcome<Line> {
    let (empty, full) = (agent(1)?, agent(2)?);
    send(store, ctx, &full, DEPTH).await?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        for (to, times) in [(&empty, &mut floor), (&full, &mut ours)] {
            let (sent, seconds) = send(store, ctx, to, SENDS).await?;
            store.write(move |w| w.message_mark(&sent, MailState::Consumed, None, 0)).await?;
            // The first round warms up both.
            if round > 0 {
                times.push(seconds / SENDS as f64 * 1e6);
            }
        }
    }
    let (ours, floor) = (median(ours), median(floor));
    Ok(Line {
        what: "a send to an inbox of 1,000, beside an empty one",
        floor: format!("{floor:.1} us"),
        ours: format!("{ours:.1} us"),
        ratio: ours / floor,
        bar: 1.1,
        aim: 1.0,
        sense: Sense::AtMost,
    })
}

/// The slowest hundredth of the sends that begin while a broadcast to all agents runs.
async fn pause(store: &Store, ctx: &OperationContext) -> Outcome<Line> {
    let (runs, ended) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let (store, ctx, runs, ended) = (store.clone(), ctx.clone(), Arc::clone(&runs), Arc::clone(&ended));
            tokio::spawn(async move {
                let to: AgentId = format!("agent-{:05}", 100 + sender).parse()?;
                let mut waits = Vec::new();
                while !ended.load(Ordering::Acquire) {
                    let (counts, began) = (runs.load(Ordering::Acquire), now());
                    let new_message = new_message(&ctx, &to);
                    ctx.write(&store, move |w| mail::deliver(w, new_message).map(drop)).await?;
                    if counts {
                        waits.push(began.elapsed().as_secs_f64() * 1e3);
                    }
                }
                Ok::<_, Refusal>(waits)
            })
        })
        .collect();
    let all = agent(0)?;
    for _ in 0..BROADCASTS {
        let new_message = new_message(ctx, &all);
        runs.store(true, Ordering::Release);
        let mut so_far = None;
        loop {
            let (new_message, before) = (new_message.clone(), so_far.take());
            let sent = ctx.write(store, move |w| mail::broadcast(w, &new_message, &[], None, before)).await?;
            if sent.rest.is_none() {
                break;
            }
            so_far = Some(sent);
        }
        runs.store(false, Ordering::Release);
    }
    ended.store(true, Ordering::Release);
    let mut waits = Vec::new();
    for sender in senders {
        waits.extend(sender.await??);
    }
    waits.sort_by(f64::total_cmp);
    let slow =
        waits.get(waits.len().saturating_sub(1) * 99 / 100).copied().ok_or("no send began beside a broadcast")?;
    Ok(Line {
        what: "p99 of a send while a broadcast to 20,000 runs",
        floor: format!("{PAUSE_MS:.0} ms"),
        ours: format!("{slow:.0} ms"),
        ratio: slow / PAUSE_MS,
        bar: 1.0,
        aim: 0.5,
        sense: Sense::AtMost,
    })
}
