//! Flushes pending rows to SQL, many rows in one statement.

use std::path::Path;

use rusqlite::Connection;
use uuid::Uuid;

use super::fault;
use super::row::{Args, Keyed, Row, Shape, SqlTexts, chunks};
use super::table_cache::{Flushable as _, Log, Owner, TableCache};
use crate::StoreError;
use crate::tables::Result;

/// The connection to write to, and the cached statement texts.
pub(super) struct FlushTarget<'c> {
    pub(super) conn: &'c Connection,
    pub(super) texts: &'c mut SqlTexts,
}

/// Why a flush failed.
pub(super) enum FlushError {
    Sql(rusqlite::Error),
    Store(StoreError),
}

impl FlushError {
    /// Converts it to a [`StoreError`].
    pub(super) fn into_store(self, path: &Path) -> StoreError {
        match self {
            Self::Sql(error) => fault::from_sqlite(path, &error),
            Self::Store(error) => error,
        }
    }
}

impl From<StoreError> for FlushError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Runs a statement that returns no rows. Returns the number of changed rows.
pub(super) fn execute(conn: &Connection, sql: &str, args: &Args) -> rusqlite::Result<usize> {
    let mut statement = conn.prepare_cached(sql)?;
    args.bind(&mut statement)?;
    statement.raw_execute()
}

/// Runs one statement for each chunk of `rows`.
fn run<T>(
    out: &mut FlushTarget<'_>,
    shape: &Shape,
    rows: &[T],
    bind: impl Fn(&T, &mut Args) -> Result<()>,
) -> std::result::Result<(), FlushError> {
    let mut rest = rows;
    for size in chunks(rows.len(), shape.columns) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut args = Args::default();
        args.reserve(size * shape.columns);
        for row in chunk {
            bind(row, &mut args)?;
        }
        let text = out.texts.get(shape, size);
        execute(out.conn, &text, &args).map_err(FlushError::Sql)?;
    }
    Ok(())
}

/// Writes rows.
pub(super) fn write_rows<R: Row>(out: &mut FlushTarget<'_>, rows: &[&R]) -> std::result::Result<(), FlushError> {
    run(out, &R::SHAPE, rows, |row, args| row.bind(args))
}

/// Writes the pending rows of a table that only grows.
pub(super) fn write_log<R: Row>(
    out: &mut FlushTarget<'_>,
    log: &mut Log<R>,
    owner: Owner,
) -> std::result::Result<(), FlushError> {
    write_rows(out, &log.pending_rows(owner))?;
    log.mark_flushed(owner);
    Ok(())
}

/// Writes the pending rows of a table with keys, and replaces their child rows.
pub(super) fn write_table<R: Keyed>(
    out: &mut FlushTarget<'_>,
    table: &mut TableCache<R>,
    owner: Owner,
) -> std::result::Result<(), FlushError> {
    let rows = table.pending_rows(owner);
    if let Some(children) = R::CHILDREN {
        let parents: Vec<Uuid> = rows.iter().map(|row| (children.parent_of)(row)).collect();
        let pairs: Vec<(Uuid, Uuid)> = rows
            .iter()
            .flat_map(|row| {
                let parent = (children.parent_of)(row);
                (children.children_of)(row).into_iter().map(move |child| (parent, child))
            })
            .collect();
        run(out, &children.delete, &parents, |parent, args| {
            args.id(*parent);
            Ok(())
        })?;
        run(out, &children.insert, &pairs, |(parent, child), args| {
            args.id(*parent).id(*child);
            Ok(())
        })?;
    }
    write_rows(out, &rows)?;
    table.mark_flushed(owner);
    Ok(())
}
