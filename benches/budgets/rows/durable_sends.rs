//! Durable sends: 64 senders send messages through the rules and the store, and each waits for its
//! commits. The floor writes the same rows with multi-row statements of 64 rows, one commit for 64
//! messages.

use std::path::Path;
use std::sync::Arc;

use ghost_domain::redact::Redactor;
use ghost_domain::{AgentId, AgentKind, Desired, Kind, Limits, Party, Refusal};
use ghost_operations::OperationContext;
use ghost_operations::agents::{self, NewAgent};
use ghost_operations::mail::{self, Chain, NewMessage};
use ghost_store::Store;
use ghost_store::sqlite::{SqliteOptions, open_store};
use serde_json::Value;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, ConnectOptions, Connection, Row, TypeInfo, ValueRef};

use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

const SENDERS: usize = 64;
const ROUND: usize = 16_384;
const ROUNDS: usize = 7;
/// Number of receivers. With so many, no inbox reaches its limit.
const RECEIVERS: usize = 256;
/// Number of rows in one statement of the floor.
const TOGETHER: usize = 64;

pub(super) const MESSAGES: Table = Table {
    name: "messages",
    columns: "seq, message_id, to_agent, from_party, kind, subject, body, attachments, ask_id, conversation_id, \
              root_id, hop, wake, created_at, state, turn_id, crashes",
    count: 17,
};
pub(super) const EVENTS: Table =
    Table { name: "events", columns: "seq, event_id, ts, kind, agent_id, channel, correlation_id, payload", count: 8 };

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
        let mut reader = connect(&ours_path).await?;
        let mut raw = connect(&raw_path).await?;
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let before = (last(&mut reader, &MESSAGES).await?, last(&mut reader, &EVENTS).await?);
            let sending = send_all(&store, &ctx, &receivers).await?;
            let messages = rows_after(&mut reader, &MESSAGES, before.0).await?;
            let events = rows_after(&mut reader, &EVENTS, before.1).await?;
            if messages.len() != ROUND || events.len() != ROUND {
                return Err(format!("{ROUND} sends left {} messages, {} events", messages.len(), events.len()).into());
            }
            let inserting = insert_all(&mut raw, &messages, &events).await?;
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
        let new = NewAgent {
            name: agent_id.to_string(),
            agent_id,
            archetype: "worker".into(),
            team: None,
            kind: AgentKind::Persistent,
            desired: Desired::Running,
            overrides: Value::Null,
            daily_money: None,
            heartbeat: None,
            owner: None,
            goal: None,
            chain: Chain::root(ctx),
        };
        let ctx = ctx.clone();
        store
            .write(move |w| Box::pin(async move { agents::create(w, &ctx, &Party::System, new).await.map(drop) }))
            .await?;
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
        let ctx = ctx.clone();
        store.write(move |w| Box::pin(async move { mail::deliver(w, &ctx, new_message).await })).await?;
    }
    Ok(())
}

/// A table to copy.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static str,
    pub(super) count: usize,
}

/// A value of a column.
pub(super) enum Cell {
    Null,
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// A connection with the settings of the store's writer: journal mode, durability, cache size.
pub(super) async fn connect(path: &Path) -> Outcome<SqliteConnection> {
    let mut connection =
        SqliteConnectOptions::new().filename(path).foreign_keys(false).disable_statement_logging().connect().await?;
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; PRAGMA \
                   cache_size = -16384; PRAGMA temp_store = MEMORY;";
    sqlx::raw_sql(pragmas).execute(&mut connection).await?;
    Ok(connection)
}

pub(super) async fn last(reader: &mut SqliteConnection, table: &Table) -> Outcome<i64> {
    let sql = format!("SELECT coalesce(max(seq), 0) FROM {}", table.name);
    Ok(sqlx::query(AssertSqlSafe(sql)).fetch_one(reader).await?.try_get(0)?)
}

async fn rows_after(reader: &mut SqliteConnection, table: &Table, seq: i64) -> Outcome<Vec<Vec<Cell>>> {
    let sql = format!("SELECT {} FROM {} WHERE seq > {seq} ORDER BY seq", table.columns, table.name);
    rows(reader, sql, table.count).await
}

/// The rows of a query with `count` columns.
pub(super) async fn rows(reader: &mut SqliteConnection, sql: String, count: usize) -> Outcome<Vec<Vec<Cell>>> {
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(reader).await?;
    let mut cells = Vec::with_capacity(rows.len());
    for row in rows {
        let mut line = Vec::with_capacity(count);
        for column in 0..count {
            let value = row.try_get_raw(column)?;
            let kind = value.type_info().name().to_owned();
            line.push(match kind.as_str() {
                _ if value.is_null() => Cell::Null,
                "INTEGER" => Cell::Integer(row.try_get(column)?),
                "TEXT" => Cell::Text(row.try_get(column)?),
                _ => Cell::Blob(row.try_get(column)?),
            });
        }
        cells.push(line);
    }
    Ok(cells)
}

/// Inserts the rows of a round, one commit for every 64 messages and their events. Returns the seconds that it took.
async fn insert_all(raw: &mut SqliteConnection, messages: &[Vec<Cell>], events: &[Vec<Cell>]) -> Outcome<f64> {
    let (message_sql, event_sql) = (insert(&MESSAGES), insert(&EVENTS));
    let began = now();
    for (messages, events) in messages.chunks_exact(TOGETHER).zip(events.chunks_exact(TOGETHER)) {
        let mut transaction = raw.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query_with(AssertSqlSafe(message_sql.clone()), bound(messages)?).execute(&mut *transaction).await?;
        sqlx::query_with(AssertSqlSafe(event_sql.clone()), bound(events)?).execute(&mut *transaction).await?;
        transaction.commit().await?;
    }
    Ok(began.elapsed().as_secs_f64())
}

fn insert(table: &Table) -> Arc<str> {
    let one = format!("({})", vec!["?"; table.count].join(","));
    format!("INSERT INTO {} ({}) VALUES {}", table.name, table.columns, vec![one; TOGETHER].join(",")).into()
}

pub(super) fn bound(rows: &[Vec<Cell>]) -> Outcome<SqliteArguments> {
    let mut arguments = SqliteArguments::default();
    for cell in rows.iter().flatten() {
        match cell {
            Cell::Null => arguments.add(None::<i64>)?,
            Cell::Integer(number) => arguments.add(*number)?,
            Cell::Text(text) => arguments.add(text.as_str())?,
            Cell::Blob(bytes) => arguments.add(bytes.as_slice())?,
        }
    }
    Ok(arguments)
}
