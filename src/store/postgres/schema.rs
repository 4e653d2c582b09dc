//! Schema versions and migrations. The versions are those of SQLite's schema; the first one here is 18.
//!
//! A migration that was part of a release must never change. A migration must never drop tables or columns that it does
//! not know.

use std::time::Duration;

use sqlx::Row as _;

use super::connect::{Link, opening};
use crate::batch::Counters;
use crate::error::{Result, StoreError};

/// The oldest version of PostgreSQL that works, as the server numbers it.
const OLDEST: i64 = 150_000;

/// The migrations, oldest first: the version that each leads to, and its text.
const MIGRATIONS: &[(i64, &str)] = &[(18, include_str!("migrations/0001_base.sql"))];

/// The schema version of this program.
const VERSION: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// How long an open waits for a daemon that still has the schema, and the time between two looks. A daemon that was killed
/// has it until the server notices.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The lock of the schema belongs to the session, so it ends with the connection.
const LOCK: &str = "SELECT CASE WHEN pg_try_advisory_lock(hashtextextended('ghost/' || current_setting('search_path'), 0)) \
    THEN 1 ELSE 0 END::BIGINT";

/// What an opened schema held.
pub(super) struct Found {
    pub(super) counters: Counters,
    /// The mark of the last batch; see [`MARK`].
    pub(super) mark: i64,
}

/// The mark of the last batch: a random number. It settles whether a COMMIT whose answer was lost has happened, and shows
/// whether another writer has been here.
const MARK: &str = "SELECT value FROM counters WHERE name = 'batches'";

/// Connects the writer: only one has the lock of the schema. A link that fails here is not connected afterwards, because
/// the next batch would write without the lock.
///
/// Errors: [`StoreError::Open`], [`StoreError::InUse`].
fn connect(link: &mut Link) -> Result<()> {
    link.connect()?;
    locked(link).inspect_err(|_| link.disconnect())
}

/// As [`connect`], for a schema that has been opened before. Returns its [`MARK`].
pub(super) fn connect_to(link: &mut Link) -> Result<Option<i64>> {
    connect(link)?;
    link.number(MARK).inspect_err(|_| link.disconnect())
}

fn locked(link: &mut Link) -> Result<()> {
    // A standby has locks of its own, and may not have the last batches.
    if link.number("SELECT 1::BIGINT WHERE pg_is_in_recovery()")?.is_some() {
        let what = "it is a standby: give the URL of the primary".to_owned();
        return Err(StoreError::Open { path: link.target().name.to_path_buf(), what });
    }
    let tries = LOCK_WAIT.as_millis() / LOOK_AGAIN.as_millis();
    for _ in 0..tries {
        if link.number(LOCK)? == Some(1) {
            return Ok(());
        }
        // The thread may wait: it is the writer's, or one of an opening. The simulation has no PostgreSQL.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(LOOK_AGAIN);
    }
    Err(StoreError::InUse { path: link.target().name.to_path_buf() })
}

/// Connects the writer, and creates or migrates the schema.
pub(super) fn open(link: &mut Link, expected: Option<&str>) -> Result<Found> {
    connect(link)?;
    let path = link.target().name.to_path_buf();
    let refused = |what: String| StoreError::Open { path: path.clone(), what };
    let damaged = |what: String| StoreError::Damaged { path: path.clone(), what };
    let number = link.number("SELECT current_setting('server_version_num')::BIGINT")?.unwrap_or_default();
    if number < OLDEST {
        return Err(refused(format!("the server has version {}: PostgreSQL 15 or newer is needed", number / 10_000)));
    }
    if link.number("SELECT 1::BIGINT WHERE current_setting('server_encoding') = 'UTF8'")?.is_none() {
        return Err(refused("the database must have the encoding UTF8".to_owned()));
    }
    const TABLES: &str = "SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = current_setting('search_path')";
    const COUNTERS: &str = "SELECT count(*) FROM pg_catalog.pg_tables \
        WHERE schemaname = current_setting('search_path') AND tablename = 'counters'";
    let found = match (link.number(TABLES)?, link.number(COUNTERS)?) {
        (Some(0), _) => 0,
        (_, Some(1)) => {
            if link
                .number("SELECT 1::BIGINT WHERE has_schema_privilege(current_setting('search_path'), 'USAGE')")?
                .is_none()
            {
                return Err(refused(
                    "the role may not use the schema: grant it USAGE and its tables, or make it the owner".into(),
                ));
            }
            let version = link.number("SELECT value FROM counters WHERE name = 'schema_version'")?;
            version.ok_or_else(|| damaged("it has no schema version".to_owned()))?
        }
        _ => return Err(damaged("it has tables of another program".to_owned())),
    };
    if let Some(evidence) = expected.filter(|_| found == 0) {
        let what =
            format!("it has no tables, but {evidence}: give the URL of the database with its records, or restore them");
        return Err(refused(what));
    }
    if found > VERSION {
        return Err(StoreError::Newer { path, found, known: VERSION });
    }
    migrate(link, found)?;
    let mark = link.number(MARK)?.ok_or_else(|| damaged("it has no mark of its last batch".to_owned()))?;
    Ok(Found { counters: last_numbers(link)?, mark })
}

/// Migrates a schema from version `found` to [`VERSION`] in one transaction. A failure closes the connection, which undoes
/// it.
fn migrate(link: &mut Link, found: i64) -> Result<()> {
    if found == VERSION {
        return Ok(());
    }
    let schema = link.target().schema.clone();
    let done = link.with(async |conn| {
        sqlx::raw_sql("BEGIN").execute(&mut *conn).await?;
        if found == 0 {
            // The name is a word; see `Target::parse`.
            let create = format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"");
            // The schema may be there, made for a role that may not create one.
            let there = sqlx::query("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1").bind(&schema);
            if there.fetch_optional(&mut *conn).await?.is_none() {
                sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut *conn).await?;
            }
        }
        for (_, migration) in MIGRATIONS.iter().filter(|(version, _)| *version > found) {
            sqlx::raw_sql(*migration).execute(&mut *conn).await?;
        }
        let stamp = format!(
            "INSERT INTO counters (name, value) VALUES ('batches', 0) ON CONFLICT (name) DO NOTHING; \
             INSERT INTO counters (name, value) VALUES ('schema_version', {VERSION}) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value; COMMIT"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(stamp)).execute(conn).await.map(drop)
    });
    done.map_err(|error| {
        let error = opening(&link.target().name, &error);
        link.disconnect();
        error
    })
}

/// The last number of each sequence, as SQLite's `last_numbers` finds it.
fn last_numbers(link: &mut Link) -> Result<Counters> {
    const SQL: &str = "SELECT \
        greatest((SELECT max(seq) FROM messages), (SELECT value FROM counters WHERE name = 'messages'), 0), \
        greatest((SELECT max(seq) FROM journal), (SELECT value FROM counters WHERE name = 'journal'), 0), \
        greatest((SELECT max(seq) FROM usage), (SELECT value FROM counters WHERE name = 'usage'), 0), \
        greatest((SELECT max(seq) FROM task_events), (SELECT value FROM counters WHERE name = 'task_events'), 0), \
        greatest((SELECT max(seq) FROM events), (SELECT value FROM counters WHERE name = 'events'), 0), \
        coalesce((SELECT sum(pending) FROM inboxes), 0)::BIGINT";
    link.run(async |conn| {
        let row = sqlx::query(SQL).fetch_one(conn).await?;
        Ok(Counters {
            messages: row.try_get(0)?,
            journal: row.try_get(1)?,
            usage: row.try_get(2)?,
            task_events: row.try_get(3)?,
            events: row.try_get(4)?,
            pending: row.try_get(5)?,
        })
    })
}
