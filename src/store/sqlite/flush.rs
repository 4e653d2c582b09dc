//! Brings waiting rows into SQL, many in one statement.
//!
//! Must never: write mail after the changes of mail, which name it.

use std::path::Path;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::row::{Args, Keyed, Row, Shape, Texts, chunks};
use super::table_cache::{Pending, Side, TableCache};
use super::write_buffer::WriteBuffer;
use super::{fault, table_set};
use crate::StoreError;
use crate::tables::Result;

/// Where rows go.
pub(super) struct Out<'c> {
    pub(super) conn: &'c mut SqliteConnection,
    pub(super) texts: &'c mut Texts,
}

/// Why rows did not get there.
pub(super) enum Trouble {
    Sql(sqlx::Error),
    Store(StoreError),
}

impl Trouble {
    /// In the store's words.
    pub(super) fn into_store(self, path: &Path) -> StoreError {
        match self {
            Self::Sql(error) => fault::of(path, &error),
            Self::Store(error) => error,
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Runs one statement for each chunk of `rows`.
async fn run<T: Sync>(
    out: &mut Out<'_>,
    shape: &Shape,
    rows: &[T],
    bind: impl Fn(&T, &mut Args) -> Result<()> + Send + Sync,
) -> std::result::Result<(), Trouble> {
    let mut rest = rows;
    for size in chunks(rows.len(), shape.columns) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut args = Args::default();
        args.reserve(size * shape.columns);
        for row in chunk {
            bind(row, &mut args)?;
        }
        let text = out.texts.of(shape, size);
        let done = sqlx::query_with(AssertSqlSafe(text), args.finish()?).execute(&mut *out.conn).await;
        done.map_err(Trouble::Sql)?;
    }
    Ok(())
}

/// Writes what waits in one table.
async fn write_table<R: Row>(
    out: &mut Out<'_>,
    table: &mut (impl Pending<R> + Send + Sync),
    side: Side,
) -> std::result::Result<(), Trouble> {
    if !table.has(side) {
        return Ok(());
    }
    let rows = table.waiting(side);
    run(out, &R::SHAPE, &rows, |row, args| row.bind(args)).await?;
    table.written(side);
    Ok(())
}

/// Writes what waits in one table, and the rows that belong to it.
async fn write_with_children<R: Keyed>(
    out: &mut Out<'_>,
    table: &mut TableCache<R>,
    side: Side,
) -> std::result::Result<(), Trouble> {
    if let Some(children) = R::CHILDREN {
        let rows = table.waiting(side);
        let parents: Vec<Uuid> = rows.iter().map(|row| (children.parent)(row)).collect();
        let pairs: Vec<(Uuid, Uuid)> = rows
            .iter()
            .flat_map(|row| {
                let parent = (children.parent)(row);
                (children.of)(row).into_iter().map(move |child| (parent, child))
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
    write_table(out, table, side).await
}

/// Writes what waits in `tables`.
pub(super) async fn flush(
    out: &mut Out<'_>,
    buffer: &mut WriteBuffer,
    tables: u32,
    side: Side,
) -> std::result::Result<(), Trouble> {
    macro_rules! families {
        ($($bit:ident => $table:ident),+ $(,)?) => {
            $(if tables & table_set::$bit != 0 {
                write_with_children(out, &mut buffer.$table, side).await?;
            })+
        };
    }
    // The changes of mail name it: the mail itself goes first, whichever of the two was asked for.
    if tables & (table_set::MAIL | table_set::HEADS) != 0 {
        write_table(out, &mut buffer.mail, side).await?;
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
        write_table(out, &mut buffer.journal, side).await?;
    }
    if tables & table_set::USAGE != 0 {
        write_table(out, &mut buffer.usage, side).await?;
    }
    if tables & table_set::TASK_EVENTS != 0 {
        write_table(out, &mut buffer.task_events, side).await?;
    }
    if tables & table_set::CHAT_POSTS != 0 {
        write_table(out, &mut buffer.chat_posts, side).await?;
    }
    if tables & table_set::EVENTS != 0 && side == Side::Batch {
        let rows: Vec<_> = buffer.events[buffer.events_written..].iter().collect();
        run(out, &<ghost_domain::Event as Row>::SHAPE, &rows, |row, args| row.bind(args)).await?;
        buffer.events_written = buffer.events.len();
    }
    Ok(())
}

impl WriteBuffer {
    /// Whether rows wait in any of `tables`. Events of a running command have no place yet and never wait.
    pub(super) fn has(&self, tables: u32, side: Side) -> bool {
        macro_rules! any {
            ($($bit:ident => $table:ident),+ $(,)?) => {
                false $(|| (tables & table_set::$bit != 0 && self.$table.has(side)))+
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
        rows || (tables & table_set::EVENTS != 0 && side == Side::Batch && self.events_written < self.events.len())
    }
}
