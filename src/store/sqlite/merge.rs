//! Reads that merge rows in SQL with rows that wait in the write buffer. Most of them flush nothing.
//!
//! A read must never return an old version of a row while a newer one waits in the write buffer.

use super::row::{Args, Keyed, SqliteRow};
use super::session::Session;
use super::table_list::CachedRow;
use crate::tables::Result;

impl Session {
    /// Runs a query. Flushes the table first only if a pending row satisfies `wanted`. `wanted` must depend on the key
    /// alone. Then a pending row can replace a found row, but never exclude it.
    pub(super) fn list_flushed<R: CachedRow>(
        &mut self,
        sql: &'static str,
        args: Args,
        wanted: impl Fn(&R) -> bool + Send + Sync,
    ) -> Result<Vec<R>> {
        if self.buffer().is_some_and(|buffer| R::table(&buffer.tables).any_pending(&wanted)) {
            self.flush_before_read(R::SET)?;
        }
        self.decoded(sql, args)
    }

    /// Reads all rows that satisfy `wanted`, in order of key, from SQL and from the pending rows.
    /// The query must have no limit.
    pub(super) fn list_merged<R: CachedRow>(
        &mut self,
        sql: &'static str,
        args: Args,
        wanted: impl Fn(&R) -> bool + Send + Sync,
    ) -> Result<Vec<R>>
    where
        R::Key: Ord,
    {
        let found = self.decoded(sql, args)?;
        Ok(match self.buffer() {
            Some(buffer) => R::table(&buffer.tables).merge(found, wanted),
            None => found,
        })
    }

    /// Reads the one row that satisfies `wanted`. At most one may exist.
    pub(super) fn find<R: CachedRow>(
        &mut self,
        sql: &'static str,
        args: Args,
        wanted: impl Fn(&R) -> bool + Send + Sync,
    ) -> Result<Option<R>> {
        if let Some(found) =
            self.buffer().and_then(|buffer| R::table(&buffer.tables).newest_pending().find(|row| wanted(row)))
        {
            return Ok(Some(found.clone()));
        }
        let Some(found) = self.decoded::<R>(sql, args)?.into_iter().next() else { return Ok(None) };
        let in_savepoint = self.in_savepoint();
        if let Ok(buffer) = self.buffer_mut() {
            let table = R::table_mut(&mut buffer.tables);
            if table.has_pending(&found.key()) {
                return Ok(None);
            }
            table.cache_row(found.clone(), in_savepoint);
        }
        Ok(Some(found))
    }

    fn decoded<R: Keyed>(&mut self, sql: &'static str, args: Args) -> Result<Vec<R>> {
        let rows: Vec<SqliteRow> = self.rows(sql, args)?;
        rows.iter().map(R::read).collect()
    }
}
