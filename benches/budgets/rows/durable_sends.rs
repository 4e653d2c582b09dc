//! Durable sends: 64 senders send messages through the rules and the store, and each waits for its
//! commits. The floor writes the same rows with prepared statements on the calling thread, one commit
//! for 64 messages, their events, and the counts of their inboxes.

use std::path::Path;
use std::sync::Arc;

use ghost_domain::redact::Redactor;
use ghost_domain::{AgentId, AgentKind, Kind, Limits, Party, Refusal};
use ghost_operations::OperationContext;
use ghost_operations::agents;
use ghost_operations::mail::{self, Chain, NewMessage};
use ghost_store::Store;
use ghost_store::sqlite::{SqliteOptions, open_store};
use rusqlite::types::Value as Cell;
use rusqlite::{Connection, params_from_iter};

use crate::fixture::worker;
use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

const SENDERS: usize = 64;
const ROUND: usize = 16_384;
const ROUNDS: usize = 7;
/// Number of receivers. With so many, no inbox reaches its limit.
const RECEIVERS: usize = 256;
/// Number of messages in one transaction of the floor.
const TOGETHER: usize = 64;

pub(super) const MESSAGES: Table = Table {
    name: "messages",
    columns: "seq, message_id, to_agent, from_party, kind, subject, body, attachments, ask_id, conversation_id, \
              root_id, hop, wake, created_at, state, turn_id, crashes, read_at",
    count: 18,
};
pub(super) const EVENTS: Table = Table {
    name: "events",
    columns: "seq, event_id, ts, kind, agent_id, channel, correlation_id, correlation, payload",
    count: 9,
};
/// Each message counts in the inbox of its receiver.
pub(super) const INBOXES: Table = Table { name: "inboxes", columns: "agent_id, pending", count: 2 };
pub(super) const COUNTED: &str = " ON CONFLICT (agent_id) DO UPDATE SET pending = inboxes.pending + 1";

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    runtime()?.block_on(async {
        let dir = tempfile::tempdir()?;
        let (ours_path, raw_path) = (dir.path().join("ours.db"), dir.path().join("raw.db"));
        let store = open_store(&ours_path, SqliteOptions::default()).await?;
        // No agent runs, so the messages stay in the inboxes.
        let limits = Limits { world_mail_max: 100_000_000, ..Limits::default() };
        let ctx = OperationContext::new(ghost_daemon::system_ports(), Redactor::default(), "bench", 1, limits);
        let receivers = Arc::new(population(&store, &ctx).await?);
        // The floor's file has the same schema and the same indexes.
        open_store(&raw_path, SqliteOptions::default()).await?.close().await;
        let (reader, raw) = (connect(&ours_path)?, connect(&raw_path)?);
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let before = (last(&reader, &MESSAGES)?, last(&reader, &EVENTS)?);
            let sending = send_all(&store, &ctx, &receivers).await?;
            let messages = rows_after(&reader, &MESSAGES, before.0)?;
            let events = rows_after(&reader, &EVENTS, before.1)?;
            if messages.len() != ROUND || events.len() != ROUND {
                return Err(format!("{ROUND} sends left {} messages, {} events", messages.len(), events.len()).into());
            }
            let inserting = insert_all(&raw, &messages, &events)?;
            // The first round warms up both.
            if round > 0 {
                ours.push(ROUND as f64 / sending);
                floor.push(ROUND as f64 / inserting);
            }
        }
        store.close().await;
        let (ours, floor) = (median(ours), median(floor));
        Ok(vec![Line {
            what: "durable sends, 64 senders, SQLite",
            floor: format!("{:.0}/s", floor),
            ours: format!("{:.0}/s", ours),
            ratio: ours / floor,
            bar: 0.5,
            aim: 0.8,
            sense: Sense::AtLeast,
        }])
    })
}

async fn population(store: &Store, ctx: &OperationContext) -> Outcome<Vec<AgentId>> {
    let mut receivers = Vec::with_capacity(RECEIVERS);
    for receiver in 0..RECEIVERS {
        let agent_id: AgentId = format!("receiver-{receiver}").parse()?;
        receivers.push(agent_id.clone());
        let new = worker(agent_id, AgentKind::Persistent, Chain::root(ctx));
        ctx.write(store, move |w| agents::create(w, &Party::System, new).map(drop)).await?;
    }
    Ok(receivers)
}

/// Sends a round from all senders at once. Returns the seconds that it took.
async fn send_all(store: &Store, ctx: &OperationContext, receivers: &Arc<Vec<AgentId>>) -> Outcome<f64> {
    let began = now();
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| tokio::spawn(send(store.clone(), ctx.clone(), Arc::clone(receivers), sender)))
        .collect();
    for sender in senders {
        sender.await??;
    }
    Ok(began.elapsed().as_secs_f64())
}

async fn send(store: Store, ctx: OperationContext, receivers: Arc<Vec<AgentId>>, sender: usize) -> Result<(), Refusal> {
    let from = Party::Agent(receivers[sender].clone());
    let chain = Chain::root(&ctx);
    for turn in 0..ROUND / SENDERS {
        let to = &receivers[(sender * 31 + turn * 7) % receivers.len()];
        let body = "The figures of the third quarter are in output/reports/q3.md; compare them with the second's before \
                    you write, and tell me which of the five lines differ by more than a tenth.";
        let new_message = NewMessage::new(to, from.clone(), Kind::Message, body, chain);
        ctx.write(&store, move |w| mail::deliver(w, new_message)).await?;
    }
    Ok(())
}

/// The column of [`MESSAGES`] that names the receiver.
const RECEIVER: usize = 2;

/// The rows that count messages in their inboxes.
pub(super) fn counted(messages: &[Vec<Cell>]) -> Vec<Vec<Cell>> {
    messages.iter().map(|row| vec![row[RECEIVER].clone(), Cell::Integer(1)]).collect()
}

/// A table to copy.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static str,
    pub(super) count: usize,
}

impl Table {
    /// The statement that inserts one row.
    pub(super) fn insert(&self) -> String {
        let values = vec!["?"; self.count].join(",");
        format!("INSERT INTO {} ({}) VALUES ({values})", self.name, self.columns)
    }
}

/// A connection with the settings of the store's writer: journal mode, durability, checkpoints, cache size.
pub(super) fn connect(path: &Path) -> Outcome<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; \
         PRAGMA wal_autocheckpoint = 2000; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;",
    )?;
    Ok(connection)
}

pub(super) fn last(reader: &Connection, table: &Table) -> Outcome<i64> {
    let sql = format!("SELECT coalesce(max(seq), 0) FROM {}", table.name);
    Ok(reader.query_row(&sql, [], |row| row.get(0))?)
}

fn rows_after(reader: &Connection, table: &Table, seq: i64) -> Outcome<Vec<Vec<Cell>>> {
    let sql = format!("SELECT {} FROM {} WHERE seq > {seq} ORDER BY seq", table.columns, table.name);
    rows(reader, &sql, table.count)
}

/// The rows of a query with `count` columns.
pub(super) fn rows(reader: &Connection, sql: &str, count: usize) -> Outcome<Vec<Vec<Cell>>> {
    let mut statement = reader.prepare(sql)?;
    let rows = statement
        .query_map([], |row| (0..count).map(|column| row.get::<_, Cell>(column)).collect::<Result<Vec<_>, _>>())?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Inserts the rows of a round, one commit for every 64 messages and their events. Returns the seconds that it took.
fn insert_all(raw: &Connection, messages: &[Vec<Cell>], events: &[Vec<Cell>]) -> Outcome<f64> {
    // The cache keeps them prepared from round to round.
    let (mut begin, mut commit) = (raw.prepare_cached("BEGIN IMMEDIATE")?, raw.prepare_cached("COMMIT")?);
    let (mut message, mut event) = (raw.prepare_cached(&MESSAGES.insert())?, raw.prepare_cached(&EVENTS.insert())?);
    let mut inbox = raw.prepare_cached(&format!("{}{COUNTED}", INBOXES.insert()))?;
    let began = now();
    for (messages, events) in messages.chunks_exact(TOGETHER).zip(events.chunks_exact(TOGETHER)) {
        begin.execute([])?;
        for row in messages {
            message.execute(params_from_iter(row))?;
            inbox.execute((&row[RECEIVER], 1))?;
        }
        for row in events {
            event.execute(params_from_iter(row))?;
        }
        commit.execute([])?;
    }
    Ok(began.elapsed().as_secs_f64())
}
