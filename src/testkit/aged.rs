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

use rusqlite::{Connection, OpenFlags};

/// The result type of this module.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The tables with rows for every turn.
const TABLES: [&str; 9] = ["turns", "turn_roots", "journal", "messages", "ledger", "usage", "roots", "events", "asks"];

/// Computes the totals of usage again, and says up to which row they are.
const TOTALS: &str = "DELETE FROM usage_totals; DELETE FROM usage_days; DELETE FROM usage_roots;
    INSERT INTO usage_roots SELECT root_id, (at - (at % 86400000 + 86400000) % 86400000) / 86400000, agent_id, provider, model,
        count(*), sum(input), sum(output), sum(cache_read), sum(cache_write), sum(cost), sum(estimated),
        sum(iif(estimated, cost, 0)), sum(iif(unpriced, input + output, 0)), sum(iif(free, input + output, 0))
        FROM usage GROUP BY 1, 2, 3, 4, 5;
    INSERT INTO usage_days SELECT day, agent_id, provider, model, sum(calls), sum(input), sum(output), sum(cache_read),
        sum(cache_write), sum(cost), sum(estimated), sum(estimated_cost), sum(unpriced), sum(free)
        FROM usage_roots GROUP BY 1, 2, 3, 4;
    INSERT INTO usage_totals SELECT agent_id, provider, model, sum(calls), sum(input), sum(output), sum(cache_read),
        sum(cache_write), sum(cost), sum(estimated), sum(estimated_cost), sum(unpriced), sum(free)
        FROM usage_days GROUP BY 1, 2, 3;
    INSERT OR REPLACE INTO counters (name, value) SELECT 'usage_totals', max(seq) FROM usage;";

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
pub fn age(young: &Path, old: &Path, turns: u64) -> Outcome<Aged> {
    std::fs::copy(young, old)?;
    let conn = Connection::open(old)?;
    // Durability is not needed: after a failure the old database is made again.
    conn.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA cache_size = -262144;")?;
    let young_turns = u64::try_from(number(&conn, "SELECT count(*) FROM turns")?)?;
    if young_turns == 0 {
        return Err("the young database holds no turns".into());
    }
    let copies = i64::try_from(turns.div_ceil(young_turns))?.max(1);
    let prefixes = prefixes(&conn)?;
    let attach = format!("ATTACH DATABASE '{}' AS young;", young.display().to_string().replace('\'', "''"));
    conn.execute_batch(&(attach + &TABLES.map(|table| format!("DELETE FROM main.{table};")).concat()))?;
    let mut plans = Vec::new();
    for table in TABLES {
        plans.push((table, columns(&conn, table)?, stride(&conn, table)?));
    }
    for copy in 0..copies {
        if copy % TOGETHER == 0 {
            conn.execute_batch("BEGIN")?;
        }
        for (table, columns, stride) in &plans {
            conn.execute_batch(&copy_of(table, columns, &prefixes, copies - 1 - copy, copy * stride))?;
        }
        if copy % TOGETHER == TOGETHER - 1 || copy == copies - 1 {
            conn.execute_batch("COMMIT")?;
        }
    }
    let turns = u64::try_from(number(&conn, "SELECT count(*) FROM main.turns")?)?;
    conn.execute_batch(TOTALS)?;
    conn.execute_batch("DETACH DATABASE young; PRAGMA journal_mode = WAL;")?;
    closed(conn)?;
    Ok(Aged { turns, young_turns, bytes: std::fs::metadata(old)?.len(), young_bytes: std::fs::metadata(young)?.len() })
}

/// Spreads the turns of a database and their usage over `agents` agents, `worker-0` and so on, and drops the records
/// of agents beyond them.
///
/// # Errors
/// If the file cannot be written.
pub fn spread(database: &Path, agents: usize) -> Outcome<()> {
    let conn = Connection::open(database)?;
    let sql = format!(
        "PRAGMA synchronous = OFF; BEGIN;
         DELETE FROM agents WHERE CAST(substr(agent_id, 8) AS INTEGER) >= {agents};
         CREATE TEMP TABLE numbered AS SELECT turn_id, row_number() OVER () AS n FROM turns;
         CREATE INDEX temp.numbered_turn ON numbered (turn_id);
         UPDATE turns SET agent_id = 'worker-' || (SELECT n % {agents} FROM numbered WHERE numbered.turn_id = turns.turn_id);
         UPDATE turns SET record = json_set(record, '$.agent_id', agent_id);
         UPDATE usage SET agent_id = 'worker-' || (seq % {agents});
         {TOTALS}
         COMMIT;"
    );
    conn.execute_batch(&sql)?;
    closed(conn)
}

/// The tables and indexes of a database with their bytes on disk, the largest first.
///
/// # Errors
/// If the file cannot be read, or if this SQLite lacks `dbstat`.
pub fn weights(database: &Path) -> Outcome<Vec<(String, i64)>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(database, flags)?;
    let mut statement = conn.prepare("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Closes the connection. A drop would hide an error.
fn closed(conn: Connection) -> Outcome<()> {
    conn.close().map_err(|(_, error)| error.into())
}

fn number(conn: &Connection, sql: &str) -> Outcome<i64> {
    Ok(conn.query_row(sql, [], |row| row.get(0))?)
}

/// The texts that a query with one column returns.
fn texts(conn: &Connection, sql: &str) -> Outcome<Vec<String>> {
    let mut statement = conn.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The first 32 bits of the ids to copy.
fn prefixes(conn: &Connection) -> Outcome<Vec<i64>> {
    const SQL: &str = "SELECT DISTINCT substr(hex(id), 1, 8) FROM (SELECT turn_id AS id FROM turns UNION ALL \
        SELECT root_id FROM roots UNION ALL SELECT message_id FROM messages UNION ALL \
        SELECT root_id FROM messages UNION ALL SELECT call_id FROM ledger UNION ALL SELECT event_id FROM events) ORDER BY 1";
    let mut found = Vec::new();
    for prefix in texts(conn, SQL)? {
        found.push(i64::from_str_radix(&prefix, 16)?);
    }
    match (found.first(), found.last()) {
        (Some(first), Some(last)) if last - first < STEP => Ok(found),
        _ => Err("the turns of the young database are too far apart, or its ids do not begin with their time".into()),
    }
}

/// The columns of a table.
fn columns(conn: &Connection, table: &str) -> Outcome<Vec<String>> {
    texts(conn, &format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid"))
}

/// The distance between the sequence numbers of two copies; 0 if the table has no sequence.
fn stride(conn: &Connection, table: &str) -> Outcome<i64> {
    match columns(conn, table)?.iter().any(|column| column == "seq") {
        true => number(conn, &format!("SELECT ifnull(max(seq), 0) FROM young.{table}")),
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
        "at" | "ts" | "created_at" | "started_at" | "ended_at" | "closed_at" | "updated_at" | "log_from" => {
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
