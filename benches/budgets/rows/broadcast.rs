//! Fan-out of messages: a durable broadcast to a thousand agents. One of them has a full inbox and
//! is skipped. The floor writes the same rows in one plain transaction for each broadcast, with
//! prepared statements on the calling thread.

use ghost_domain::redact::Redactor;
use ghost_domain::{AgentId, Code, Kind, Limits, MailState, Party, Refusal};
use ghost_operations::OperationContext;
use ghost_operations::mail::{self, Chain, NewMessage};
use ghost_store::Store;
use ghost_store::sqlite::{SqliteOptions, open_store};

use super::chat_fanout::{MEMBERS, gather, insert_all};
use super::durable_sends::{COUNTED, EVENTS, INBOXES, MESSAGES, connect, counted, last, rows};
use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

/// Number of broadcasts in one round.
const SENT: usize = 20;
const ROUNDS: usize = 7;

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    runtime()?.block_on(async {
        let dir = tempfile::tempdir()?;
        let (ours_path, raw_path) = (dir.path().join("ours.db"), dir.path().join("raw.db"));
        let store = open_store(&ours_path, SqliteOptions::default()).await?;
        let limits = Limits { dynamic_agents_max: 2_000, inbox_max: 1, ..Limits::default() };
        let ctx = OperationContext::new(ghost_daemon::system_ports(), Redactor::default(), "bench", 1, limits);
        gather(&store, &ctx, &"hall".parse()?).await?;
        let full: AgentId = "member-0000".parse()?;
        send(&store, &ctx, &full).await?;
        open_store(&raw_path, SqliteOptions::default()).await?.close().await;
        let (reader, raw) = (connect(&ours_path)?, connect(&raw_path)?);
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (mut sending, mut inserting) = (0.0, 0.0);
            for _ in 0..SENT {
                let before = (last(&reader, &MESSAGES)?, last(&reader, &EVENTS)?);
                sending += broadcast(&store, &ctx, &full).await?;
                let mut written = Vec::new();
                // Each message has two events: sent and delivered.
                for (table, after, each) in [(&MESSAGES, before.0, 1), (&EVENTS, before.1, 2)] {
                    let sql = format!("SELECT {} FROM {} WHERE seq > {after}", table.columns, table.name);
                    let rows = rows(&reader, &sql, table.count)?;
                    if rows.len() != (MEMBERS - 1) * each {
                        return Err(format!("a broadcast wrote {} rows of {}", rows.len(), table.name).into());
                    }
                    if each == 1 {
                        written.push((&INBOXES, COUNTED, counted(&rows)));
                    }
                    written.push((table, "", rows));
                }
                inserting += insert_all(&raw, &written)?;
                take_all(&store).await?;
            }
            // The first round warms up both.
            if round > 0 {
                ours.push(SENT as f64 / sending);
                floor.push(SENT as f64 / inserting);
            }
        }
        store.close().await;
        let (ours, floor) = (median(ours), median(floor));
        Ok(vec![Line {
            what: "a broadcast to 1,000 agents, SQLite",
            floor: format!("{floor:.1}/s"),
            ours: format!("{ours:.1}/s"),
            ratio: ours / floor,
            bar: 0.5,
            aim: 0.8,
            sense: Sense::AtLeast,
        }])
    })
}

fn new_message(ctx: &OperationContext, to: &AgentId) -> NewMessage {
    let body = "The figures of the third quarter are in output/reports/q3.md; tell me which of the five lines differ by more \
                than a tenth.";
    NewMessage::new(to, Party::Operator("bench".into()), Kind::Message, body, Chain::root(ctx))
}

async fn send(store: &Store, ctx: &OperationContext, to: &AgentId) -> Outcome<()> {
    let new_message = new_message(ctx, to);
    ctx.write(store, move |w| mail::deliver(w, new_message).map(drop)).await?;
    Ok(())
}

/// Sends one broadcast. Returns the seconds until its last commit.
async fn broadcast(store: &Store, ctx: &OperationContext, full: &AgentId) -> Outcome<f64> {
    let new_message = new_message(ctx, full);
    let began = now();
    let mut so_far = None;
    // On a slow machine it takes several transactions, as a call of the tool does.
    let sent = loop {
        let (new_message, before) = (new_message.clone(), so_far.take());
        let sent = ctx.write(store, move |w| mail::broadcast(w, &new_message, &[], None, before)).await?;
        if sent.rest.is_none() {
            break sent;
        }
        so_far = Some(sent);
    };
    let seconds = began.elapsed().as_secs_f64();
    match (sent.delivered as usize, sent.skipped.as_slice()) {
        (delivered, [skipped])
            if delivered == MEMBERS - 1 && skipped.agent_id == *full && skipped.error_code == Code::InboxFull =>
        {
            Ok(seconds)
        }
        (delivered, skipped) => Err(format!("{delivered} were reached, {} passed over", skipped.len()).into()),
    }
}

/// Consumes the messages of all agents except the agent with the full inbox.
async fn take_all(store: &Store) -> Outcome<()> {
    store
        .write(move |w| {
            for member in 1..MEMBERS {
                let agent_id: AgentId = format!("member-{member:04}").parse()?;
                let mail = w.inbox_pending(&agent_id, 2)?;
                let ids: Vec<_> = mail.iter().map(|envelope| envelope.message_id).collect();
                w.message_mark(&ids, MailState::Consumed, None, 0)?;
            }
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(())
}
