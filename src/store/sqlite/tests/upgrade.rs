//! A database of an earlier schema version is migrated and keeps its rows.

use std::path::{Path, PathBuf};

use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::UsageSum;
use ghost_domain::{Agent, Envelope, Money, Scope, Timestamp};
use rusqlite::{Connection, params_from_iter};

use super::tools::{alter, depth, id_of, keep, mail, open, place, reading, refused, send, shows};
use crate::contract::rows_shared::channel;
use crate::error::StoreError;
use crate::row::{Args, Row};
use crate::sqlite::{SqliteOptions, is_current, schema};
use crate::tables::UsageFilter;

/// An agent record as version 1 wrote it.
const AGENT: &str = r#"{"agent_id":"a","incarnation":3,"archetype":"writer","name":"Ann","team":null,"owner":null,
    "kind":"persistent","desired":"running","status":"running","status_reason":null,"restarts":2,"overrides":{},"node":"n",
    "epoch":0,"created_at":5,"updated_at":6,"last_active_at":null,"deleted_at":null}"#;

fn connect(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}

fn number(conn: &Connection, sql: &str) -> i64 {
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The number that a query of a closed database returns.
fn number_in(path: &Path, sql: &str) -> i64 {
    let conn = connect(path);
    let found = number(&conn, sql);
    conn.close().unwrap();
    found
}

/// The first column of a query's rows.
fn texts(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

/// The columns of a table.
fn columns(conn: &Connection, database: &str, table: &str) -> Vec<String> {
    texts(conn, &format!("SELECT name FROM pragma_table_info('{table}', '{database}') ORDER BY cid"))
}

/// A file as version 1 left it: an agent, two messages, and pruned sequences.
fn first_version(path: &Path) {
    let conn = connect(path);
    conn.execute_batch(schema::MIGRATIONS[0]).unwrap();
    let stamp = format!("PRAGMA application_id = {}; PRAGMA user_version = 1;", schema::APPLICATION_ID);
    conn.execute_batch(&stamp).unwrap();
    let agent = "INSERT INTO agents (agent_id, kind, node, epoch, deleted_at, record) VALUES ('a', 'persistent', 'n', 0, NULL, ?)";
    conn.execute(agent, [AGENT]).unwrap();
    for (n, seq) in [(1, 1), (2, 2)] {
        let mut args = Args::default();
        Envelope { seq, ..mail(n, "a", "from before") }.bind(&mut args).unwrap();
        // Version 1 had no column `read_at`, the last one.
        let sql = Envelope::WRITE.sqlite().replace(", read_at", "").replace(", ?18)", ")");
        let values = &args.values()[..args.values().len() - 1];
        conn.execute(&sql, params_from_iter(values)).unwrap();
    }
    conn.execute("INSERT INTO counters (name, value) VALUES ('messages', 40), ('events', 70)", []).unwrap();
    conn.close().unwrap();
}

/// Such a file, brought to a later version, with rows that were written then.
fn of_version(version: usize, rows: &str) -> (tempfile::TempDir, PathBuf) {
    let (dir, path) = place();
    first_version(&path);
    let stamp = format!("PRAGMA user_version = {version}");
    for sql in schema::MIGRATIONS[1..version].iter().copied().chain([rows, &stamp]) {
        alter(&path, sql);
    }
    (dir, path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_first_version_keeps_its_rows() {
    let (_dir, path) = place();
    first_version(&path);
    for opened in 0..2_u32 {
        let store = open(&path).await;
        assert_eq!(store.last_seq(), 70 + i64::from(opened));
        assert_eq!(depth(&store, "a").await, 2 + opened);
        let agent: Agent = serde_json::from_str(AGENT).unwrap();
        assert_eq!(reading!(&store, |r| { r.agent_list(true)? }), [agent]);
        if opened == 0 {
            // New tables work, and the old sequences continue.
            keep!(&store, |w| { w.chat_channel_put(&channel("lounge", 0))? });
            send(&store, 3, "a").await.unwrap();
            let inbox = reading!(&store, |r| { r.inbox_pending(&id_of("a"), 10)? });
            assert_eq!(inbox.iter().map(|mail| mail.seq).collect::<Vec<_>>(), [1, 2, 41]);
            assert_eq!(inbox[0].body, "from before");
        }
        shows!(&store, |r| { r.chat_channel_count()? => 1; });
        store.close().await;
    }
    assert_eq!(number_in(&path, "PRAGMA user_version"), schema::VERSION);
}

/// Reservations held at the end of version 2 are charged, and shared state is kept as text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_second_version_counts_what_was_held_and_keeps_its_state() {
    let rows = r#"INSERT INTO budgets (scope, limited, record) VALUES ('world', 1, '{"scope":"world","limits":{"tokens":900,
            "money":null},"spent_tokens":100,"spent_money":7,"reserved_tokens":30,"reserved_money":2,"updated_at":5}');
        INSERT INTO shared_state (key, record) VALUES
            ('a', '{"key":"a","value":{"n":[1,2]},"version":3,"writer":"agent:a","updated_at":5}'),
            ('b', '{"key":"b","value":"calm","version":1,"writer":"agent:a","updated_at":5}');"#;
    let (_dir, path) = of_version(2, rows);
    assert!(!is_current(&path));
    let store = open(&path).await;
    reading!(&store, |r| {
        let budget = r.budget_get(&Scope::World)?.unwrap();
        assert_eq!((budget.spent_tokens, budget.spent_money, budget.reserved_tokens), (130, Money(9), 0));
        assert_eq!(r.state_get("a")?.unwrap().value.as_str(), r#"{"n":[1,2]}"#);
        assert_eq!(r.state_get("b")?.unwrap().value.as_str(), r#""calm""#);
    });
    store.close().await;
    assert!(is_current(&path), "the header of a closed database contains its version");
}

/// A migrated database has the same tables and indexes as a new one.
// covers: CONF-12, STORE-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgraded_database_is_like_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old.db"), dir.path().join("new.db"));
    first_version(&old);
    let mut schemas = Vec::new();
    for path in [old, new] {
        open(&path).await.close().await;
        let conn = connect(&path);
        let sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name";
        let mut statement = conn.prepare(sql).unwrap();
        let column = |row: &rusqlite::Row<'_>, n: usize| row.get::<_, Option<String>>(n).unwrap();
        let rows = statement.query_map([], |row| Ok([0, 1, 2, 3].map(|n| column(row, n)))).unwrap();
        schemas.push(rows.collect::<rusqlite::Result<Vec<_>>>().unwrap());
        drop(statement);
        conn.close().unwrap();
    }
    assert!(schemas[0].iter().any(|row| row[1].as_deref() == Some("chat_members")));
    assert_eq!(schemas[0], schemas[1]);
}

/// Migration 3 was changed after some databases had run it, so some of them already have the index
/// that migration 4 adds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_database_of_the_third_version_gets_the_index_of_turns_of_cron_jobs() {
    let index = "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name = 'turns_cron_ended'";
    let changed = "CREATE INDEX turns_cron_ended ON turns (ended_at) WHERE source = 'cron' AND status <> 'open'";
    for (more, count) in [("", 0), (changed, 1)] {
        let (_dir, path) = of_version(3, more);
        assert_eq!(number_in(&path, index), count);
        assert!(!is_current(&path));
        let store = open(&path).await;
        assert_eq!(depth(&store, "a").await, 2);
        store.close().await;
        assert_eq!((number_in(&path, index), number_in(&path, "PRAGMA user_version")), (1, schema::VERSION));
    }
}

/// Before version 5 a missing price was not recorded. The stored cost of such rows stays as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_fourth_version_keeps_its_usage() {
    let row = "INSERT INTO usage (seq, agent_id, turn_id, root_id, provider, model, input, output, cache_read, cache_write, cost, \
        estimated, duration_ms, at) VALUES (1, 'a', zeroblob(16), zeroblob(16), 'p', 'm', 90, 10, 0, 0, 7, 1, 3, 5)";
    let (_dir, path) = of_version(4, row);
    let store = open(&path).await;
    let was = UsageSum {
        calls: 1,
        tokens: TokenUsage { input: 90, output: 10, ..TokenUsage::default() },
        cost: Money(7),
        estimated_calls: 1,
        estimated_cost: Money(7),
        ..UsageSum::new(&id_of("a"), "m")
    };
    shows!(&store, |r| { r.usage_sum(&UsageFilter::default())? => [was]; });
}

/// Before version 6 there were no totals. The migration computes them from the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_fifth_version_gets_its_totals() {
    const DAY: i64 = 86_400_000;
    let rows = format!(
        "INSERT INTO usage (seq, agent_id, turn_id, root_id, provider, model, input, output, cache_read, cache_write, cost, \
         estimated, unpriced, duration_ms, at) VALUES \
         (1, 'a', zeroblob(16), zeroblob(16), 'p', 'm', 90, 10, 1, 2, 7, 1, 0, 3, 5), \
         (2, 'a', zeroblob(16), zeroblob(16), 'q', 'm', 40, 20, 0, 0, 0, 0, 1, 3, {}), \
         (3, 'b', zeroblob(16), unhex('000102030405060708090a0b0c0d0e0f'), 'p', 'm', 5, 5, 0, 0, 9, 0, 0, 3, {}), \
         (4, 'c', zeroblob(16), zeroblob(16), 'p', 'm', 8, 2, 0, 0, 0, 0, 0, 3, 5)",
        DAY,
        DAY * 3 + 1
    );
    let (_dir, path) = of_version(5, &rows);
    let store = open(&path).await;
    let any = UsageFilter::default;
    let root = ghost_domain::RootId(uuid::Uuid::from_u128(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f));
    let (a, b, c) = ((2, 130, 7, 60, 0), (1, 5, 9, 0, 0), (1, 8, 0, 0, 10));
    // A call without a cost was not charged to a budget then, and still is not.
    for (filter, wanted) in [
        (any(), &[a, b, c][..]),
        (UsageFilter { provider: Some("p".into()), ..any() }, &[(1, 90, 7, 0, 0), b, c]),
        (UsageFilter { root_id: Some(root), ..any() }, &[b]),
        (UsageFilter { since: Some(Timestamp(DAY)), ..any() }, &[(1, 40, 0, 60, 0), b]),
        (UsageFilter { before: Some(Timestamp(DAY + 1)), ..any() }, &[a, c]),
    ] {
        let found = reading!(&store, |r| { r.usage_sum(&filter)? }).into_iter();
        let found = found.map(|s| (s.calls, s.tokens.input, s.cost.0, s.unpriced_tokens, s.free_tokens));
        assert_eq!(found.collect::<Vec<_>>(), wanted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_the_sixth_version_gets_its_new_name() {
    let event =
        "INSERT INTO events (seq, event_id, ts, kind, payload) VALUES (71, zeroblob(16), 5, 'storm.held', '{}')";
    let (_dir, path) = of_version(6, event);
    let store = open(&path).await;
    let found = reading!(&store, |r| { r.event_list(0, &EventFilter::default(), 9)? });
    assert_eq!(found.0.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::LimitReached]);
}

/// Version 17 took from the records what statements read of them. It finds what a row of today has in its columns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_sixteenth_version_gets_its_columns() {
    const VERSION: usize = 16;
    /// What the later version changes or counts in its own way.
    const OTHERS: [&str; 4] = ["turn_roots", "usage_totals", "usage_days", "usage_roots"];
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old.db"), dir.path().join("new.db"));
    let store = open(&new).await;
    crate::contract::model::fill(&store).await;
    let sums = reading!(&store, |r| { r.usage_sum(&UsageFilter::default())? });
    store.close().await;
    let conn = connect(&old);
    for sql in &schema::MIGRATIONS[..VERSION] {
        conn.execute_batch(sql).unwrap();
    }
    conn.execute_batch(&format!("ATTACH DATABASE '{}' AS new", new.display())).unwrap();
    let tables = texts(&conn, "SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY name");
    for table in tables.iter().filter(|table| !OTHERS.contains(&table.as_str())) {
        let columns = columns(&conn, "main", table).join(", ");
        // Then a record had what now is in columns.
        let values = match table.as_str() {
            "ledger" => columns.replace(
                "record",
                "json_patch(record, json_object('duration_ms', duration_ms, 'bytes_in', bytes_in, 'bytes_out', bytes_out, \
                 'tokens', tokens))",
            ),
            _ => columns.clone(),
        };
        conn.execute_batch(&format!("INSERT INTO main.{table} ({columns}) SELECT {values} FROM new.{table}")).unwrap();
    }
    // The triggers listed no root that a turn took on later, and kept those that it gave back.
    let more = format!(
        "DELETE FROM main.counters WHERE name = 'usage_totals';
         DELETE FROM main.turn_roots WHERE root_id = (SELECT max(root_id) FROM main.turn_roots);
         INSERT INTO main.turn_roots SELECT zeroblob(16), turn_id FROM main.turns;
         PRAGMA main.application_id = {}; PRAGMA main.user_version = {VERSION};",
        schema::APPLICATION_ID
    );
    conn.execute_batch(&more).unwrap();
    conn.close().unwrap();
    let store = open(&old).await;
    shows!(&store, |r| {
        r.usage_sum(&UsageFilter::default())? => sums;
        r.wrong_counts()? => [];
    });
    store.close().await;
    let conn = connect(&old);
    conn.execute_batch(&format!("ATTACH DATABASE '{}' AS new", new.display())).unwrap();
    for table in tables.iter().filter(|table| *table == "turn_roots" || !OTHERS.contains(&table.as_str())) {
        let columns = columns(&conn, "new", table);
        // A record of the ledger keeps what it had, and the counters have one of the totals.
        let compared: Vec<&str> = columns.iter().map(String::as_str).filter(|name| *name != "record").collect();
        let columns = if table == "ledger" { compared.join(", ") } else { columns.join(", ") };
        let but = if table == "counters" { " WHERE name <> 'usage_totals'" } else { "" };
        for (one, other) in [("main", "new"), ("new", "main")] {
            let sql = format!(
                "SELECT count(*) FROM (SELECT {columns} FROM {one}.{table}{but} EXCEPT SELECT {columns} FROM {other}.{table})"
            );
            assert_eq!(number(&conn, &sql), 0, "{table}: {one} has more");
        }
    }
    for rows in [
        "turns WHERE standing IS NOT NULL",
        "turns WHERE log_from IS NOT NULL AND length(other_roots) = 32 AND length(conversation_id) = 16",
        "turns WHERE in_log = 1",
        "turn_roots WHERE root_id <> (SELECT min(root_id) FROM turn_roots)",
        "ledger WHERE duration_ms IS NOT NULL",
        "budgets WHERE length(root_id) = 16 AND updated_at > 0",
        "tasks WHERE length(root_id) = 16",
        "jobs WHERE length(root_id) = 16",
        "schedules WHERE length(root_id) = 16",
        "knowledge WHERE creator <> ''",
        "conversation_entries WHERE length(message_id) = 16",
    ] {
        assert!(number(&conn, &format!("SELECT count(*) FROM main.{rows}")) > 0, "{rows}");
    }
    conn.close().unwrap();
}

/// Without room for it, an upgrade does not begin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_room_for_its_upgrade_is_left_as_it_is() {
    let (_dir, path) = of_version(16, "");
    let before = std::fs::read(&path).unwrap();
    let pages = u32::try_from(before.len() / 4_096).unwrap();
    let options = SqliteOptions { page_limit: Some(pages + 1), ..SqliteOptions::default() };
    let refused = refused(&path, options).await;
    assert!(matches!(refused, StoreError::NoRoom { free: 4_096, .. }), "{refused}");
    assert_eq!(number_in(&path, "PRAGMA user_version"), 16);
    assert_eq!(depth(&open(&path).await, "a").await, 2);
}
