//! Makes the database of an old world out of a young one: it copies the young world's turns many
//! times.
//!
//! SQLite copies the rows, so the copies have the form that real turns write, and a million turns
//! take only minutes. Each copy has its own time in the past. Its ids begin with that time, as
//! UUIDs of version 7 do, and ids in JSON are changed in the same way. Rows that a world has only
//! once (agents, accounts, prompts) stay as they are.
//!
//! This module must never be used on a database that is still needed.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

/// The result type of this module.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The tables with rows for every turn.
const TABLES: [&str; 8] = ["turns", "journal", "messages", "ledger", "usage", "roots", "events", "asks"];

/// Distance between two copies, in units of the first 32 bits of an id. One unit is 65,536 ms.
const STEP: i64 = 8;
const UNIT_MS: i64 = 65_536;

/// Number of copies in one transaction.
const TOGETHER: i64 = 16;

/// The sizes of the two databases.
#[derive(Clone, Copy, Debug)]
pub struct Aged {
    /// Number of turns in the old database.
    pub turns: u64,
    /// Number of turns in the young database.
    pub young_turns: u64,
    /// Size of the old database file in bytes.
    pub bytes: u64,
    /// Size of the young database file in bytes.
    pub young_bytes: u64,
}

/// Makes the database `old` out of `young`, with at least `turns` turns. No one may have `young` open.
///
/// # Errors
/// If `young` has no turns or spans more than eight minutes, or if a file cannot be read or written.
pub async fn age(young: &Path, old: &Path, turns: u64) -> Outcome<Aged> {
    std::fs::copy(young, old)?;
    let mut conn = SqliteConnectOptions::new().filename(old).connect().await?;
    // Durability is not needed: after a failure the old database is made again.
    run(&mut conn, "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA cache_size = -262144;".into())
        .await?;
    let young_turns = u64::try_from(number(&mut conn, "SELECT count(*) FROM turns").await?)?;
    if young_turns == 0 {
        return Err("the young database holds no turns".into());
    }
    let copies = i64::try_from(turns.div_ceil(young_turns))?.max(1);
    let prefixes = prefixes(&mut conn).await?;
    // The triggers subtract the deleted rows from the totals.
    let attach = format!("ATTACH DATABASE '{}' AS young;", young.display().to_string().replace('\'', "''"));
    run(&mut conn, attach + &TABLES.map(|table| format!("DELETE FROM main.{table};")).concat()).await?;
    let mut plans = Vec::new();
    for table in TABLES {
        plans.push((table, columns(&mut conn, table).await?, stride(&mut conn, table).await?));
    }
    for copy in 0..copies {
        if copy % TOGETHER == 0 {
            run(&mut conn, "BEGIN".into()).await?;
        }
        for (table, columns, stride) in &plans {
            run(&mut conn, copy_of(table, columns, &prefixes, copies - 1 - copy, copy * stride)).await?;
        }
        if copy % TOGETHER == TOGETHER - 1 || copy == copies - 1 {
            run(&mut conn, "COMMIT".into()).await?;
        }
    }
    let turns = u64::try_from(number(&mut conn, "SELECT count(*) FROM main.turns").await?)?;
    run(&mut conn, "DETACH DATABASE young; PRAGMA journal_mode = WAL;".into()).await?;
    conn.close().await?;
    Ok(Aged { turns, young_turns, bytes: std::fs::metadata(old)?.len(), young_bytes: std::fs::metadata(young)?.len() })
}

/// Spreads the turns of a database and their usage over `agents` agents, `worker-0` and so on, and drops the records
/// of agents beyond them.
///
/// # Errors
/// If the file cannot be written.
pub async fn spread(database: &Path, agents: usize) -> Outcome<()> {
    let mut conn = SqliteConnectOptions::new().filename(database).connect().await?;
    // The triggers move the totals of usage with the rows.
    let sql = format!(
        "PRAGMA synchronous = OFF; BEGIN;
         DELETE FROM agents WHERE CAST(substr(agent_id, 8) AS INTEGER) >= {agents};
         CREATE TEMP TABLE numbered AS SELECT turn_id, row_number() OVER () AS n FROM turns;
         CREATE INDEX temp.numbered_turn ON numbered (turn_id);
         UPDATE turns SET agent_id = 'worker-' || (SELECT n % {agents} FROM numbered WHERE numbered.turn_id = turns.turn_id);
         UPDATE turns SET record = json_set(record, '$.agent_id', agent_id);
         CREATE TEMP TABLE spread AS SELECT * FROM usage;
         DELETE FROM usage;
         UPDATE spread SET agent_id = 'worker-' || (seq % {agents});
         INSERT INTO usage SELECT * FROM spread;
         COMMIT;"
    );
    run(&mut conn, sql).await?;
    conn.close().await?;
    Ok(())
}

/// The tables and indexes of a database with their bytes on disk, the largest first.
///
/// # Errors
/// If the file cannot be read, or if this SQLite lacks `dbstat`.
pub async fn weights(database: &Path) -> Outcome<Vec<(String, i64)>> {
    let mut conn = SqliteConnectOptions::new().filename(database).read_only(true).connect().await?;
    let sql = "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC";
    let rows = sqlx::query(sql).fetch_all(&mut conn).await?;
    let found = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect::<Result<_, sqlx::Error>>()?;
    conn.close().await?;
    Ok(found)
}

async fn run(conn: &mut SqliteConnection, sql: String) -> Outcome<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?;
    Ok(())
}

async fn number(conn: &mut SqliteConnection, sql: &str) -> Outcome<i64> {
    Ok(sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(conn).await?.try_get(0)?)
}

/// The first 32 bits of the ids to copy.
async fn prefixes(conn: &mut SqliteConnection) -> Outcome<Vec<i64>> {
    const SQL: &str = "SELECT DISTINCT substr(hex(id), 1, 8) FROM (SELECT turn_id AS id FROM turns UNION ALL \
        SELECT root_id FROM roots UNION ALL SELECT message_id FROM messages UNION ALL \
        SELECT root_id FROM messages UNION ALL SELECT call_id FROM ledger UNION ALL SELECT event_id FROM events) ORDER BY 1";
    let rows = sqlx::query(SQL).fetch_all(conn).await?;
    let mut found = Vec::new();
    for row in rows {
        found.push(i64::from_str_radix(row.try_get::<&str, _>(0)?, 16)?);
    }
    match (found.first(), found.last()) {
        (Some(first), Some(last)) if last - first < STEP => Ok(found),
        _ => Err("the turns of the young database are too far apart, or its ids do not begin with their time".into()),
    }
}

/// The columns of a table.
async fn columns(conn: &mut SqliteConnection, table: &str) -> Outcome<Vec<String>> {
    let sql = format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid");
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(conn).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// The distance between the sequence numbers of two copies; 0 if the table has no sequence.
async fn stride(conn: &mut SqliteConnection, table: &str) -> Outcome<i64> {
    match columns(conn, table).await?.iter().any(|column| column == "seq") {
        true => number(conn, &format!("SELECT ifnull(max(seq), 0) FROM young.{table}")).await,
        false => Ok(0),
    }
}

/// The statement that copies a table. The copy is `back` steps in the past; its sequence numbers follow `offset`.
fn copy_of(table: &str, columns: &[String], prefixes: &[i64], back: i64, offset: i64) -> String {
    let shift = back * STEP * UNIT_MS;
    let moved: Vec<(String, String)> =
        prefixes.iter().map(|prefix| (format!("{prefix:08x}"), format!("{:08x}", prefix - back * STEP))).collect();
    let text = |column: &str| {
        moved.iter().fold(column.to_owned(), |text, (from, to)| format!("replace({text}, '{from}-', '{to}-')"))
    };
    let values = columns.iter().map(|column| match column.as_str() {
        "seq" => format!("seq + {offset}"),
        "turn_id" | "message_id" | "root_id" | "call_id" | "event_id" | "ask_id" | "asker_turn" | "correlation" => {
            let cases = moved.iter().map(|(from, to)| format!(" WHEN '{}' THEN '{to}'", from.to_uppercase()));
            format!(
                "unhex(CASE substr(hex({column}), 1, 8){} END || substr(hex({column}), 9))",
                cases.collect::<String>()
            )
        }
        "at" | "ts" | "created_at" | "started_at" | "ended_at" | "closed_at" | "updated_at" => {
            format!("{column} - {shift}")
        }
        // The times in a record are the times in its columns, if it has such columns.
        "record" => {
            let times: Vec<&str> = columns.iter().map(String::as_str).filter(|name| name.ends_with("_at")).collect();
            let set: String = times.iter().map(|name| format!(", '$.{name}', {name} - {shift}")).collect();
            text(&if set.is_empty() { "record".to_owned() } else { format!("json_replace(record{set})") })
        }
        "step" | "payload" | "correlation_id" => text(column),
        other => other.to_owned(),
    });
    let values: Vec<String> = values.collect();
    let order = if columns.iter().any(|column| column == "seq") { " ORDER BY seq" } else { "" };
    format!("INSERT INTO main.{table} ({}) SELECT {} FROM young.{table}{order};", columns.join(", "), values.join(", "))
}

#[cfg(test)]
mod tests;
