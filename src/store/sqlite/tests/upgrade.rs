//! A database of an earlier schema version is migrated and keeps its rows.

use std::path::Path;

use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::UsageSum;
use ghost_domain::{Agent, ChatChannel, Envelope, Money, Party, Scope, Timestamp};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use super::tools::{depth, id_of, mail, open, send};
use crate::StoreError;
use crate::sqlite::is_current;
use crate::sqlite::row::{Args, Row};
use crate::sqlite::schema;
use crate::tables::UsageFilter;

const FIRST: &str = include_str!("../migrations/0001_spine.sql");
const SECOND: &str = include_str!("../migrations/0002_together.sql");
const THIRD: &str = include_str!("../migrations/0003_lean.sql");
const FOURTH: &str = include_str!("../migrations/0004_cron_turns.sql");
const FIFTH: &str = include_str!("../migrations/0005_unpriced.sql");

/// An agent record as version 1 wrote it.
const AGENT: &str = r#"{"agent_id":"a","incarnation":3,"archetype":"writer","name":"Ann","team":null,"owner":null,
    "kind":"persistent","desired":"running","status":"running","status_reason":null,"restarts":2,"overrides":{},"node":"n",
    "epoch":0,"created_at":5,"updated_at":6,"last_active_at":null,"deleted_at":null}"#;

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

async fn number(conn: &mut SqliteConnection, sql: &'static str) -> i64 {
    sqlx::query(sql).fetch_one(conn).await.unwrap().try_get(0).unwrap()
}

/// A file as version 1 left it: an agent, two messages, and pruned sequences.
async fn first_version(path: &Path) {
    let mut conn = connect(path).await;
    sqlx::raw_sql(FIRST).execute(&mut conn).await.unwrap();
    let stamp = format!("PRAGMA application_id = {}; PRAGMA user_version = 1;", schema::APPLICATION_ID);
    sqlx::raw_sql(AssertSqlSafe(stamp)).execute(&mut conn).await.unwrap();
    sqlx::query("INSERT INTO agents (agent_id, kind, node, epoch, deleted_at, record) VALUES ('a', 'persistent', 'n', 0, NULL, ?)")
        .bind(AGENT)
        .execute(&mut conn)
        .await
        .unwrap();
    for (n, seq) in [(1, 1), (2, 2)] {
        let mut args = Args::default();
        Envelope { seq, ..mail(n, "a", "from before") }.bind(&mut args).unwrap();
        // Version 1 had no column `read_at`, the last one.
        let head = Envelope::SHAPE.head.replace(", read_at", "").replace(" VALUES ", "");
        let columns: Vec<String> = (1..Envelope::SHAPE.columns).map(|n| format!("column{n}")).collect();
        let values = vec!["?"; Envelope::SHAPE.columns].join(",");
        let sql = format!("{head} SELECT {} FROM (VALUES ({values}))", columns.join(","));
        sqlx::query_with(AssertSqlSafe(sql), args.finish().unwrap()).execute(&mut conn).await.unwrap();
    }
    sqlx::query("INSERT INTO counters (name, value) VALUES ('messages', 40), ('events', 70)")
        .execute(&mut conn)
        .await
        .unwrap();
    conn.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_first_version_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    first_version(&path).await;
    for opened in 0..2_u32 {
        let store = open(&path).await;
        assert_eq!(store.last_seq(), 70 + i64::from(opened));
        assert_eq!(depth(&store, "a").await, 2 + opened);
        let agents: Vec<Agent> =
            store.read::<_, StoreError, _>(|r| Box::pin(async move { r.agent_list(true).await })).await.unwrap();
        assert_eq!(agents, vec![serde_json::from_str(AGENT).unwrap()]);
        if opened == 0 {
            // New tables work, and the old sequences continue.
            let channel = ChatChannel {
                channel: "lounge".parse().unwrap(),
                creator: Party::Agent(id_of("a")),
                gated: false,
                topic: Some("tea".to_owned()),
                members: 1,
                last_seq: 0,
                created_at: Timestamp(9),
            };
            store
                .write::<_, StoreError, _>(move |w| Box::pin(async move { w.chat_channel_put(&channel).await }))
                .await
                .unwrap();
            send(&store, 3, "a").await.unwrap();
            let inbox = store
                .read::<_, StoreError, _>(|r| Box::pin(async move { r.inbox_pending(&id_of("a"), 10).await }))
                .await
                .unwrap();
            assert_eq!(inbox.iter().map(|mail| mail.seq).collect::<Vec<_>>(), [1, 2, 41]);
            assert_eq!(inbox[0].body, "from before");
        }
        let channels =
            store.read::<_, StoreError, _>(|r| Box::pin(async move { r.chat_channel_count().await })).await.unwrap();
        assert_eq!(channels, 1);
        store.close().await;
    }
    let mut conn = connect(&path).await;
    assert_eq!(number(&mut conn, "PRAGMA user_version").await, schema::VERSION);
    conn.close().await.unwrap();
}

/// Reservations held at the end of version 2 are charged, and shared state is kept as text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_second_version_counts_what_was_held_and_keeps_its_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    first_version(&path).await;
    assert!(!is_current(&path));
    let mut conn = connect(&path).await;
    sqlx::raw_sql(SECOND).execute(&mut conn).await.unwrap();
    let rows = r#"PRAGMA user_version = 2;
        INSERT INTO budgets (scope, limited, record) VALUES ('world', 1, '{"scope":"world","limits":{"tokens":900,
            "money":null},"spent_tokens":100,"spent_money":7,"reserved_tokens":30,"reserved_money":2,"updated_at":5}');
        INSERT INTO shared_state (key, record) VALUES
            ('a', '{"key":"a","value":{"n":[1,2]},"version":3,"writer":"agent:a","updated_at":5}'),
            ('b', '{"key":"b","value":"calm","version":1,"writer":"agent:a","updated_at":5}');"#;
    sqlx::raw_sql(rows).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let store = open(&path).await;
    let (budget, a, b) = store
        .read::<_, StoreError, _>(|r| {
            Box::pin(async move {
                Ok((r.budget_get(&Scope::World).await?, r.state_get("a").await?, r.state_get("b").await?))
            })
        })
        .await
        .unwrap();
    let budget = budget.unwrap();
    assert_eq!((budget.spent_tokens, budget.spent_money, budget.reserved_tokens), (130, Money(9), 0));
    assert_eq!((a.unwrap().value.as_str(), b.unwrap().value.as_str()), (r#"{"n":[1,2]}"#, r#""calm""#));
    store.close().await;
    assert!(is_current(&path), "the header of a closed database contains its version");
}

/// A migrated database has the same tables and indexes as a new one.
// covers: CONF-12, STORE-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgraded_database_is_like_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old.db"), dir.path().join("new.db"));
    first_version(&old).await;
    let mut schemas = Vec::new();
    for path in [old, new] {
        open(&path).await.close().await;
        let mut conn = connect(&path).await;
        let rows = sqlx::query("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
            .fetch_all(&mut conn)
            .await
            .unwrap();
        let column = |row: &sqlx::sqlite::SqliteRow, n: usize| row.try_get::<Option<String>, _>(n).unwrap();
        schemas.push(rows.iter().map(|row| [0, 1, 2, 3].map(|n| column(row, n))).collect::<Vec<_>>());
        conn.close().await.unwrap();
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
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ghost.db");
        first_version(&path).await;
        let mut conn = connect(&path).await;
        for sql in [SECOND, THIRD, more, "PRAGMA user_version = 3"] {
            sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
        }
        assert_eq!(number(&mut conn, index).await, count);
        conn.close().await.unwrap();
        assert!(!is_current(&path));
        let store = open(&path).await;
        assert_eq!(depth(&store, "a").await, 2);
        store.close().await;
        let mut conn = connect(&path).await;
        assert_eq!(
            (number(&mut conn, index).await, number(&mut conn, "PRAGMA user_version").await),
            (1, schema::VERSION)
        );
        conn.close().await.unwrap();
    }
}

/// Before version 5 a missing price was not recorded. The stored cost of such rows stays as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_fourth_version_keeps_its_usage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    first_version(&path).await;
    let mut conn = connect(&path).await;
    let row = "INSERT INTO usage (seq, agent_id, turn_id, root_id, provider, model, input, output, cache_read, cache_write, cost, \
        estimated, duration_ms, at) VALUES (1, 'a', zeroblob(16), zeroblob(16), 'p', 'm', 90, 10, 0, 0, 7, 1, 3, 5)";
    for sql in [SECOND, THIRD, FOURTH, row, "PRAGMA user_version = 4"] {
        sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
    }
    conn.close().await.unwrap();
    let store = open(&path).await;
    let sums = store
        .read::<_, StoreError, _>(|r| Box::pin(async move { r.usage_sum(&UsageFilter::default()).await }))
        .await
        .unwrap();
    let was = UsageSum {
        calls: 1,
        tokens: TokenUsage { input: 90, output: 10, ..TokenUsage::default() },
        cost: Money(7),
        estimated_calls: 1,
        estimated_cost: Money(7),
        ..UsageSum::new(&id_of("a"), "m")
    };
    assert_eq!(sums, [was]);
    store.close().await;
}

/// Before version 6 there were no totals. The migration computes them from the rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_the_fifth_version_gets_its_totals() {
    const DAY: i64 = 86_400_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    first_version(&path).await;
    let mut conn = connect(&path).await;
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
    for sql in [SECOND, THIRD, FOURTH, FIFTH] {
        sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
    }
    sqlx::raw_sql(AssertSqlSafe(rows)).execute(&mut conn).await.unwrap();
    sqlx::raw_sql("PRAGMA user_version = 5").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let store = open(&path).await;
    let calls = async |filter: UsageFilter| {
        let sums =
            store.read::<_, StoreError, _>(|r| Box::pin(async move { r.usage_sum(&filter).await })).await.unwrap();
        sums.iter()
            .map(|sum| (sum.calls, sum.tokens.input, sum.cost.0, sum.unpriced_tokens, sum.free_tokens))
            .collect::<Vec<_>>()
    };
    let any = UsageFilter::default;
    // A call without a cost was not charged to a budget then, and still is not.
    assert_eq!(calls(any()).await, [(2, 130, 7, 60, 0), (1, 5, 9, 0, 0), (1, 8, 0, 0, 10)]);
    assert_eq!(
        calls(UsageFilter { provider: Some("p".into()), ..any() }).await,
        [(1, 90, 7, 0, 0), (1, 5, 9, 0, 0), (1, 8, 0, 0, 10)]
    );
    let root = ghost_domain::RootId(uuid::Uuid::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]));
    assert_eq!(calls(UsageFilter { root_id: Some(root), ..any() }).await, [(1, 5, 9, 0, 0)]);
    assert_eq!(calls(UsageFilter { since: Some(Timestamp(DAY)), ..any() }).await, [(1, 40, 0, 60, 0), (1, 5, 9, 0, 0)]);
    assert_eq!(
        calls(UsageFilter { before: Some(Timestamp(DAY + 1)), ..any() }).await,
        [(2, 130, 7, 60, 0), (1, 8, 0, 0, 10)]
    );
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_the_sixth_version_gets_its_new_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    open(&path).await.close().await;
    let mut conn = connect(&path).await;
    let old = "PRAGMA user_version = 6; DROP INDEX jobs_task; DROP TABLE sessions; DROP TABLE approvals; ALTER TABLE messages DROP COLUMN read_at; DROP INDEX turns_session;
        DROP TABLE acl_grants; DROP TABLE artifacts; DROP TABLE droids; ALTER TABLE ledger DROP COLUMN cost_micros;
        CREATE INDEX turns_said ON turns (agent_id) WHERE status = 'finished';
        INSERT INTO events (seq, event_id, ts, kind, payload) VALUES (1, zeroblob(16), 5, 'storm.held', '{}');";
    sqlx::raw_sql(old).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let store = open(&path).await;
    let found = store
        .read::<_, StoreError, _>(|r| Box::pin(async move { r.event_list(0, &EventFilter::default(), 9).await }))
        .await
        .unwrap();
    assert_eq!(found.0.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::LimitReached]);
    store.close().await;
}
