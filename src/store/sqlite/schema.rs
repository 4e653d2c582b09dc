//! The versions of the schema, and how an older database becomes a newer one.
//!
//! Must never: change a migration that a release has run, or drop what it does not know.

use sqlx::sqlite::SqliteConnection;

/// What the header of a database of ours carries: "Ghst".
pub(super) const APPLICATION_ID: i64 = 0x4768_7374;

/// The migrations, oldest first. The version of a database is how many of them it has seen.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_spine.sql"),
    include_str!("migrations/0002_together.sql"),
    include_str!("migrations/0003_lean.sql"),
    include_str!("migrations/0004_cron_turns.sql"),
    include_str!("migrations/0005_unpriced.sql"),
    include_str!("migrations/0006_age.sql"),
];

/// The version that this program knows.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Brings a database of version `found` to [`VERSION`], in one transaction.
pub(super) async fn migrate(conn: &mut SqliteConnection, found: i64) -> Result<(), sqlx::Error> {
    if found >= VERSION {
        return Ok(());
    }
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *conn).await?;
    let done = steps(conn, found).await;
    let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = sqlx::query(end).execute(&mut *conn).await;
    // The first error is the cause; a rollback that fails after it adds nothing.
    done.and(ended.map(|_| ()))
}

async fn steps(conn: &mut SqliteConnection, found: i64) -> Result<(), sqlx::Error> {
    let seen = usize::try_from(found).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(seen) {
        sqlx::raw_sql(*migration).execute(&mut *conn).await?;
    }
    // Pragmas take no bound values; both are constants of this program.
    let stamp = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};");
    sqlx::raw_sql(sqlx::AssertSqlSafe(stamp)).execute(&mut *conn).await?;
    Ok(())
}
