//! Tests of the PostgreSQL backend alone, and the contract suite on it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use ghost_domain::time::BoxFuture;

use super::testing::{Cluster, empty};
use super::{PostgresOptions, open_store};
use crate::contract::{CHECKS, Medium};
use crate::row::Args;
use crate::sql::{STATEMENTS, Sql, text};
use crate::{Store, StoreError};

const SCHEMA: &str = include_str!("migrations/0001_base.sql");

#[test]
fn postgresql_prepares_every_statement() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    cluster.psql(SCHEMA).unwrap();
    let statements = STATEMENTS.iter().enumerate();
    let prepared: String = statements.map(|(n, sql)| format!("PREPARE s{n} AS {};\n", sql.postgres())).collect();
    // A value of another type could not be bound as an integer, a text or bytes.
    let others = "SELECT statement FROM pg_prepared_statements \
                  WHERE NOT parameter_types::text[] <@ '{bigint,text,bytea}'::text[];";
    assert_eq!(cluster.psql(&(prepared + others)).unwrap(), "");
}

/// A schema of a cluster.
struct Schema {
    cluster: Arc<Cluster>,
    name: String,
}

impl Medium for Schema {
    fn open(&self) -> BoxFuture<'_, Result<Store, StoreError>> {
        Box::pin(open_store(PostgresOptions::new(self.cluster.url(), &self.name)))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_postgresql() {
    let Some(cluster) = Cluster::start_or_skip().map(Arc::new) else { return };
    let (checks, failed) = (Arc::new(Mutex::new(CHECKS.iter())), Arc::new(Mutex::new(Vec::new())));
    let workers = (0..3).map(|n| {
        let medium = Arc::new(Schema { cluster: Arc::clone(&cluster), name: format!("ghost_{n}") });
        let (checks, failed) = (Arc::clone(&checks), Arc::clone(&failed));
        tokio::spawn(async move {
            let next = || checks.lock().unwrap().next();
            while let Some((name, check)) = next() {
                empty(&medium.cluster.url(), &medium.name);
                if tokio::spawn(check(medium.clone())).await.is_err() {
                    failed.lock().unwrap().push(*name);
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert_eq!(*failed.lock().unwrap(), Vec::<&str>::new());
}

async fn open(cluster: &Cluster) -> Store {
    open_store(PostgresOptions::new(cluster.url(), "ghost_a")).await.unwrap()
}

async fn refused(options: PostgresOptions) -> StoreError {
    open_store(options).await.map(drop).unwrap_err()
}

async fn put(store: &Store, key: &'static str, value: &'static str) -> Result<(), StoreError> {
    store.write(move |w| w.meta_put(key, value)).await
}

async fn get(store: &Store, key: &'static str) -> Result<Option<String>, StoreError> {
    store.read(move |r| r.meta_get(key)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_opened_is_refused_without_its_password() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let dir = cluster.directory().display().to_string();
    cluster
        .psql("CREATE ROLE bare LOGIN; CREATE ROLE owner LOGIN; CREATE SCHEMA ghost_made AUTHORIZATION owner")
        .unwrap();
    let wrong = [
        ("mysql://ghost:hunter2@localhost/postgres".to_owned(), "ghost_a"),
        ("postgres://ghost:hunter2@[::1/postgres".to_owned(), "ghost_a"),
        ("postgres://ghost:hunter2@127.0.0.1:1/postgres".to_owned(), "ghost_a"),
        (format!("postgres://nobody:hunter2@localhost/postgres?host={dir}"), "ghost_a"),
        (format!("postgres://ghost:hunter2@localhost/missing?host={dir}"), "ghost_a"),
        (format!("postgres://bare:hunter2@localhost/postgres?host={dir}"), "ghost_a"),
        (cluster.url(), "Ghost"),
        (cluster.url(), "a\"; DROP SCHEMA public"),
        (cluster.url(), ""),
    ];
    for (url, schema) in wrong {
        let error = refused(PostgresOptions::new(&url, schema)).await;
        assert!(matches!(error, StoreError::Open { .. }), "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    // A role that owns its schema needs no right on the database.
    let url = format!("postgres://owner@localhost/postgres?host={dir}");
    open_store(PostgresOptions::new(url, "ghost_made")).await.unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_that_is_not_this_worlds_is_kept() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let options =
        PostgresOptions { expected: Some("a world has run"), ..PostgresOptions::new(cluster.url(), "ghost_a") };
    assert!(matches!(refused(options).await, StoreError::Open { .. }));
    let store = open(&cluster).await;
    put(&store, "key", "kept").await.unwrap();
    let second = refused(PostgresOptions::new(cluster.url(), "ghost_a")).await;
    assert!(matches!(second, StoreError::InUse { .. }), "{second}");
    store.close().await;
    // A role without rights sees no damage.
    cluster.psql("CREATE ROLE stranger LOGIN").unwrap();
    let url = format!("postgres://stranger@localhost/postgres?host={}", cluster.directory().display());
    let unseen = refused(PostgresOptions::new(url, "ghost_a")).await;
    assert!(matches!(unseen, StoreError::Open { .. }), "{unseen}");
    cluster.psql("UPDATE ghost_a.counters SET value = 999 WHERE name = 'schema_version'").unwrap();
    let newer = refused(PostgresOptions::new(cluster.url(), "ghost_a")).await;
    assert!(matches!(newer, StoreError::Newer { found: 999, .. }), "{newer}");
    assert_eq!(cluster.psql("SELECT value FROM ghost_a.world_meta WHERE key = 'key'").unwrap().trim(), "kept");
    cluster.psql("CREATE SCHEMA ghost_b; CREATE TABLE ghost_b.of_others (n INT)").unwrap();
    let other = refused(PostgresOptions::new(cluster.url(), "ghost_b")).await;
    assert!(matches!(other, StoreError::Damaged { .. }), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_goes_on_when_its_server_is_back() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let store = open(&cluster).await;
    put(&store, "key", "before").await.unwrap();
    cluster.stop();
    assert!(matches!(put(&store, "key", "lost").await, Err(StoreError::Busy(_))));
    assert!(matches!(get(&store, "key").await, Err(StoreError::Busy(_))));
    assert!(matches!(store.answers().await, Err(StoreError::Busy(_))));
    cluster.resume();
    // Nobody has to open it again, and an idle connection that the restart ended costs no query and no command.
    assert_eq!(get(&store, "key").await.unwrap().as_deref(), Some("before"));
    put(&store, "key", "after").await.unwrap();
    cluster.stop();
    cluster.resume();
    assert_eq!(get(&store, "key").await.unwrap().as_deref(), Some("after"));
    assert_eq!(store.read_latest::<_, StoreError, _>(|r| r.meta_get("key")).await.unwrap().as_deref(), Some("after"));
    put(&store, "key", "at last").await.unwrap();
    store.close().await;
    assert_eq!(get(&open(&cluster).await, "key").await.unwrap().as_deref(), Some("at last"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_ends_if_another_daemon_has_written() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let store = open(&cluster).await;
    cluster.stop();
    cluster.resume();
    cluster.psql("UPDATE ghost_a.counters SET value = value + 1 WHERE name = 'batches'").unwrap();
    let error = put(&store, "key", "lost").await.unwrap_err();
    assert!(matches!(error, StoreError::Broken(_)), "{error}");
    assert!(matches!(store.broken().await, StoreError::Broken(_)));
}

/// What a [`Proxy`] does with the next COMMIT of the writer.
const PASS: usize = 0;
const CUT_BEFORE: usize = 1;
const CUT_AFTER: usize = 2;
/// As [`CUT_AFTER`], and no further connection reaches the server.
const CUT_FOR_GOOD: usize = 3;
const CUT: usize = 4;

/// Stands between a store and its server, and cuts the connection around a COMMIT.
struct Proxy {
    dir: tempfile::TempDir,
    plan: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(server: &Path) -> Self {
        let (dir, plan) = (tempfile::tempdir().unwrap(), Arc::new(AtomicUsize::new(PASS)));
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let (server, its_plan) = (server.join(".s.PGSQL.5432"), Arc::clone(&plan));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                if its_plan.load(Ordering::SeqCst) == CUT {
                    continue;
                }
                let server = UnixStream::connect(&server).unwrap();
                let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                // Whether the answers still reach the client.
                let open = Arc::new(Mutex::new(true));
                let (theirs, plan) = (Arc::clone(&open), Arc::clone(&its_plan));
                thread::spawn(move || {
                    let mut buffer = [0; 65_536];
                    while let Ok(length @ 1..) = answers.read(&mut buffer) {
                        if !*theirs.lock().unwrap() || to_client.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                    drop(to_client.shutdown(std::net::Shutdown::Both));
                });
                thread::spawn(move || relay(client, server, &plan, &open));
            }
        });
        Self { dir, plan }
    }

    fn url(&self) -> String {
        format!("postgres://ghost@localhost/postgres?host={}", self.dir.path().display())
    }
}

fn relay(mut client: UnixStream, mut server: UnixStream, plan: &AtomicUsize, open: &Mutex<bool>) {
    let mut buffer = [0; 65_536];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let sent = &buffer[..length];
        let is_commit = sent.windows(7).any(|bytes| bytes == b"'; COMM") || sent.windows(9).any(|b| b == b"'batches'");
        let met = if is_commit && sent[0] == b'Q' { plan.load(Ordering::SeqCst) } else { PASS };
        if met != PASS {
            plan.store(if met == CUT_FOR_GOOD { CUT } else { PASS }, Ordering::SeqCst);
        }
        let plan = met;
        *open.lock().unwrap() = plan == PASS;
        if plan == CUT_BEFORE || server.write_all(sent).is_err() {
            break;
        }
    }
    drop(client.shutdown(std::net::Shutdown::Both));
    drop(server.shutdown(std::net::Shutdown::Write));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_settled() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let proxy = Proxy::start(cluster.directory());
    let store = open_store(PostgresOptions::new(proxy.url(), "ghost_a")).await.unwrap();
    put(&store, "key", "first").await.unwrap();
    for (plan, value) in [(CUT_AFTER, "stored"), (CUT_BEFORE, "lost"), (CUT_AFTER, "again")] {
        proxy.plan.store(plan, Ordering::SeqCst);
        let outcome = put(&store, "key", value).await;
        assert_eq!(proxy.plan.load(Ordering::SeqCst), PASS, "a COMMIT was met");
        let stored = get(&store, "key").await.unwrap();
        // What is answered is what is stored.
        match plan {
            CUT_AFTER => assert!(outcome.is_ok() && stored.as_deref() == Some(value), "{outcome:?} {stored:?}"),
            _ => assert!(
                matches!(outcome, Err(StoreError::Busy(_))) && stored.as_deref() != Some(value),
                "{outcome:?} {stored:?}"
            ),
        }
    }
    put(&store, "key", "last").await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_whose_caller_has_left_ends_on_the_server() {
    const ENDLESS: Sql =
        text!("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 - 1 FROM n) SELECT count(*) FROM n");
    const RUNNING: &str =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'WITH RECURSIVE%' AND state = 'active'";
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let store = open(&cluster).await;
    let running = || cluster.psql(RUNNING).unwrap().trim() == "1";
    let query = tokio::spawn({
        let store = store.clone();
        async move { store.read::<u64, StoreError, _>(|r| r.count("n", ENDLESS, Args::default())).await }
    });
    while !running() {
        tokio::task::yield_now().await;
    }
    query.abort();
    while running() {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(&store, "key").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_with_nul_comes_back() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let store = open(&cluster).await;
    for value in ["", "plain", "a\0b", "\u{FDD0}0", "\u{FDD0}\0\u{FDD0}1", "\0\0", "\u{FDD0}"] {
        put(&store, "key", value).await.unwrap();
        assert_eq!(get(&store, "key").await.unwrap().as_deref(), Some(value));
    }
}

/// Its files do not shrink, so a limit of bytes must not delete rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_size_is_known_and_deleting_does_not_lower_it() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let read = open(&cluster).await.read_latest(|r| Ok::<_, StoreError>((r.store_bytes()?, r.frees_space()))).await;
    let (bytes, frees_space) = read.unwrap();
    assert!(bytes > 8_192 && !frees_space, "{bytes}");
}

/// A COMMIT that cannot be settled must not hold up the end of the daemon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_closes_while_its_server_is_away() {
    let Some(cluster) = Cluster::start_or_skip() else { return };
    let proxy = Proxy::start(cluster.directory());
    let store = open_store(PostgresOptions::new(proxy.url(), "ghost_a")).await.unwrap();
    proxy.plan.store(CUT_FOR_GOOD, Ordering::SeqCst);
    let write = tokio::spawn({
        let store = store.clone();
        async move { put(&store, "key", "unknown").await }
    });
    while proxy.plan.load(Ordering::SeqCst) != CUT || store.failing().is_none() {
        tokio::task::yield_now().await;
    }
    // Nothing else is accepted until it is known.
    assert!(matches!(put(&store, "key", "more").await, Err(StoreError::Busy(_))));
    store.close().await;
    let outcome = write.await.unwrap();
    assert!(matches!(outcome, Err(StoreError::Broken(_))), "{outcome:?}");
    // The next start reads what is stored.
    assert_eq!(get(&open(&cluster).await, "key").await.unwrap().as_deref(), Some("unknown"));
}
