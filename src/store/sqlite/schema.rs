//! Schema versions and migrations.
//!
//! A migration that was part of a release must never change. A migration must never drop tables or
//! columns that it does not know.

use rusqlite::{Connection, TransactionBehavior};

/// SQLite's application id of a Ghost database: "Ghst".
pub(super) const APPLICATION_ID: i64 = 0x4768_7374;

/// The migrations, oldest first. The schema version of a database is the number of migrations
/// applied to it.
pub(super) const MIGRATIONS: &[&str] = &[
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
    include_str!("migrations/0017_columns.sql"),
    include_str!("migrations/0018_counts.sql"),
];

/// The schema version of this program.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// How much free space a migration needs while it runs, in percent of the database. Only those that rewrite large tables
/// are here. Each was measured on a database of 1,000,000 turns, and has some more; see the head of its file.
const ROOM: [(i64, u64); 1] = [(17, 100)];

/// The free space that the migration of a database from version `found` needs, in bytes.
pub(super) fn room_needed(found: i64, bytes: u64) -> u64 {
    let percent = ROOM.iter().filter(|(version, _)| *version > found).map(|(_, percent)| percent).sum::<u64>();
    bytes / 100 * percent
}

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
