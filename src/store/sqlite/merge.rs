//! Reads that see what waits to be written without bringing it to SQL first.
//!
//! Must never: give a row as SQL has it while a newer one waits.

use sqlx::sqlite::SqliteRow;

use super::row::{Args, Keyed};
use super::session::Session;
use super::write_buffer::CachedRow;
use crate::tables::Result;

impl Session {
    /// Reads rows of one kind; what waits goes to SQL first only if a row of `wanted` is among it. For queries whose
    /// every row is `wanted` by its key, so that no row that waits can take one away.
    pub(super) async fn list_waiting<R: CachedRow>(
        &mut self,
        sql: &'static str,
        args: Args,
        wanted: impl Fn(&R) -> bool + Send + Sync,
    ) -> Result<Vec<R>> {
        if self.buffer().is_some_and(|buffer| R::table(buffer).waits(&wanted)) {
            self.scan(R::SET).await?;
        }
        self.decoded(sql, args).await
    }

    /// Reads every row that is `wanted`, in order of key: those that the query gives, without a limit, and those that
    /// wait.
    pub(super) async fn list_over<R: CachedRow>(
        &mut self,
        sql: &'static str,
        args: Args,
        wanted: impl Fn(&R) -> bool + Send + Sync,
    ) -> Result<Vec<R>>
    where
        R::Key: Ord,
    {
        let found = self.decoded(sql, args).await?;
        Ok(match self.buffer() {
            Some(buffer) => R::table(buffer).merge(found, wanted),
            None => found,
        })
    }

    /// Reads the row that is `wanted`, of which there is one at most.
    pub(super) async fn find<R: CachedRow>(
        &mut self,
        sql: &'static str,
        args: Args,
        wanted: impl Fn(&R) -> bool + Send + Sync,
    ) -> Result<Option<R>> {
        if let Some(found) = self.buffer().and_then(|buffer| R::table(buffer).newest().find(|row| wanted(row))) {
            return Ok(Some(found.clone()));
        }
        let Some(found) = self.decoded::<R>(sql, args).await?.into_iter().next() else { return Ok(None) };
        let saved = self.saved();
        if let Ok(buffer) = self.pending() {
            let table = R::table_mut(buffer);
            if table.has_newer(&found.key()) {
                return Ok(None);
            }
            table.learn(found.clone(), saved);
        }
        Ok(Some(found))
    }

    async fn decoded<R: Keyed>(&mut self, sql: &'static str, args: Args) -> Result<Vec<R>> {
        let rows: Vec<SqliteRow> = self.rows(sql, args).await?;
        rows.iter().map(R::read).collect()
    }
}
