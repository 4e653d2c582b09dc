//! Schema versions and migrations.
//!
//! A migration that was part of a release must never change. A migration must never drop tables or
//! columns that it does not know.

use rusqlite::{Connection, TransactionBehavior};

/// SQLite's application id of a Ghost database: "Ghst".
pub(super) const APPLICATION_ID: i64 = 0x4768_7374;

/// The migrations, oldest first. The schema version of a database is the number of migrations
/// applied to it.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_spine.sql"),
    include_str!("migrations/0002_together.sql"),
    include_str!("migrations/0003_lean.sql"),
    include_str!("migrations/0004_cron_turns.sql"),
    include_str!("migrations/0005_unpriced.sql"),
    include_str!("migrations/0006_age.sql"),
    include_str!("migrations/0007_names.sql"),
    include_str!("migrations/0008_lists.sql"),
    include_str!("migrations/0009_sessions.sql"),
    include_str!("migrations/0010_logs.sql"),
    include_str!("migrations/0011_bounds.sql"),
    include_str!("migrations/0012_read_mail.sql"),
    include_str!("migrations/0013_approvals.sql"),
    include_str!("migrations/0014_grants.sql"),
    include_str!("migrations/0015_droids.sql"),
    include_str!("migrations/0016_inboxes.sql"),
    include_str!("migrations/0017_counts.sql"),
];

/// The schema version of this program.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Migrates a database from version `found` to [`VERSION`] in one transaction.
pub(crate) fn migrate(conn: &mut Connection, found: i64) -> rusqlite::Result<()> {
    if found >= VERSION {
        return Ok(());
    }
    // An error on the way drops the transaction, which undoes it.
    let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let applied = usize::try_from(found).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(applied) {
        transaction.execute_batch(migration)?;
    }
    // Pragmas take no bound values. Both values are constants of this program.
    let stamp = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};");
    transaction.execute_batch(&stamp)?;
    transaction.commit()
}
