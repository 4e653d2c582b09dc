//! Flushes pending rows to SQL, many rows in one statement.
//!
//! Must never: write the head of a mail before the mail itself.

use std::path::Path;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::row::{Args, Keyed, Row, Shape, SqlTexts, chunks};
use super::table_cache::{Flushable, Owner, TableCache};
use super::write_buffer::WriteBuffer;
use super::{fault, table_set};
use crate::StoreError;
use crate::tables::Result;

/// The connection to write to, and the cached statement texts.
pub(super) struct FlushTarget<'c> {
    pub(super) conn: &'c mut SqliteConnection,
    pub(super) texts: &'c mut SqlTexts,
}

/// Why a flush failed.
pub(super) enum FlushError {
    Sql(sqlx::Error),
    Store(StoreError),
}

impl FlushError {
    /// Converts it to a [`StoreError`].
    pub(super) fn into_store(self, path: &Path) -> StoreError {
        match self {
            Self::Sql(error) => fault::from_sqlx(path, &error),
            Self::Store(error) => error,
        }
    }
}

impl From<StoreError> for FlushError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Runs one statement for each chunk of `rows`.
async fn run<T: Sync>(
    out: &mut FlushTarget<'_>,
    shape: &Shape,
    rows: &[T],
    bind: impl Fn(&T, &mut Args) -> Result<()> + Send + Sync,
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
        let done = sqlx::query_with(AssertSqlSafe(text), args.finish()?).execute(&mut *out.conn).await;
        done.map_err(FlushError::Sql)?;
    }
    Ok(())
}

/// Writes the pending rows of one table.
async fn write_table<R: Row>(
    out: &mut FlushTarget<'_>,
    table: &mut (impl Flushable<R> + Send + Sync),
    owner: Owner,
) -> std::result::Result<(), FlushError> {
    if !table.has_rows(owner) {
        return Ok(());
    }
    let rows = table.pending_rows(owner);
    run(out, &R::SHAPE, &rows, |row, args| row.bind(args)).await?;
    table.mark_flushed(owner);
    Ok(())
}

/// Writes the pending rows of one table, and replaces their child rows.
async fn write_with_children<R: Keyed>(
    out: &mut FlushTarget<'_>,
    table: &mut TableCache<R>,
    owner: Owner,
) -> std::result::Result<(), FlushError> {
    if let Some(children) = R::CHILDREN {
        let rows = table.pending_rows(owner);
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
        })
        .await?;
        run(out, &children.insert, &pairs, |(parent, child), args| {
            args.id(*parent).id(*child);
            Ok(())
        })
        .await?;
    }
    write_table(out, table, owner).await
}

/// Writes the pending rows of `tables`.
pub(super) async fn flush(
    out: &mut FlushTarget<'_>,
    buffer: &mut WriteBuffer,
    tables: u32,
    owner: Owner,
) -> std::result::Result<(), FlushError> {
    macro_rules! families {
        ($($bit:ident => $table:ident),+ $(,)?) => {
            $(if tables & table_set::$bit != 0 {
                write_with_children(out, &mut buffer.$table, owner).await?;
            })+
        };
    }
    // A head refers to its mail, so the mail is written first, even if only heads were asked for.
    if tables & (table_set::MAIL | table_set::HEADS) != 0 {
        write_table(out, &mut buffer.mail, owner).await?;
    }
    families! {
        META => meta, AGENTS => agents, SKILLS => skills, JOBS => jobs, HEADS => heads, ASKS => asks, TURNS => turns,
        PROMPTS => prompts, BUDGETS => budgets, CALLS => calls, REQUESTS => requests,
        DEAD_LETTERS => dead_letters, TASKS => tasks, CHAT_CHANNELS => chat_channels, CHAT_MEMBERS => chat_members,
        CONVERSATIONS => conversations, ENTRIES => entries, KNOWLEDGE => knowledge,
        KNOWLEDGE_VERSIONS => knowledge_versions, STATE => state, ROOTS => roots, SCHEDULES => schedules,
        SCHEDULE_RUNS => schedule_runs, SNAPSHOTS => snapshots,
    }
    if tables & table_set::JOURNAL != 0 {
        write_table(out, &mut buffer.journal, owner).await?;
    }
    if tables & table_set::USAGE != 0 {
        write_table(out, &mut buffer.usage, owner).await?;
    }
    if tables & table_set::TASK_EVENTS != 0 {
        write_table(out, &mut buffer.task_events, owner).await?;
    }
    if tables & table_set::CHAT_POSTS != 0 {
        write_table(out, &mut buffer.chat_posts, owner).await?;
    }
    if tables & table_set::EVENTS != 0 && owner == Owner::Batch {
        let rows: Vec<_> = buffer.events[buffer.events_written..].iter().collect();
        run(out, &<ghost_domain::Event as Row>::SHAPE, &rows, |row, args| row.bind(args)).await?;
        buffer.events_written = buffer.events.len();
    }
    Ok(())
}

impl WriteBuffer {
    /// Whether any of `tables` has pending rows. Events of the running command never count, because
    /// they have no sequence number yet.
    pub(super) fn has(&self, tables: u32, owner: Owner) -> bool {
        macro_rules! any {
            ($($bit:ident => $table:ident),+ $(,)?) => {
                false $(|| (tables & table_set::$bit != 0 && self.$table.has_rows(owner)))+
            };
        }
        let rows = any! {
            META => meta, AGENTS => agents, SKILLS => skills, JOBS => jobs, MAIL => mail, HEADS => heads,
            ASKS => asks, TURNS => turns, PROMPTS => prompts, BUDGETS => budgets,
            CALLS => calls, REQUESTS => requests, DEAD_LETTERS => dead_letters, TASKS => tasks, JOURNAL => journal,
            USAGE => usage, TASK_EVENTS => task_events, CHAT_CHANNELS => chat_channels, CHAT_MEMBERS => chat_members,
            CHAT_POSTS => chat_posts, CONVERSATIONS => conversations, ENTRIES => entries, KNOWLEDGE => knowledge,
            KNOWLEDGE_VERSIONS => knowledge_versions, STATE => state, ROOTS => roots, SCHEDULES => schedules,
            SCHEDULE_RUNS => schedule_runs, SNAPSHOTS => snapshots,
        };
        rows || (tables & table_set::EVENTS != 0 && owner == Owner::Batch && self.events_written < self.events.len())
    }
}
