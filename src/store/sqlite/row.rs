//! How nouns become rows: binding, decoding, and statements that take many rows at once.
//!
//! Must never: put a value into SQL text. Text is made of constants and question marks; values are bound.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use ghost_domain::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, Encode, Row as _, Sqlite, Type};
use uuid::Uuid;

use crate::StoreError;
use crate::tables::Result;

/// Variables that one statement may have (SQLITE_MAX_VARIABLE_NUMBER).
const VARIABLES_MAX: usize = 32_766;

/// How many rows a statement takes. Few sizes, so that their prepared statements are kept; every small one, because most
/// batches write few rows of most tables, and a second statement costs more than the rows in it; the others close enough
/// together that any count is a sum of two or three.
const CHUNKS: [usize; 50] = [
    512, 384, 256, 192, 128, 112, 96, 80, 72, 64, 56, 52, 48, 44, 40, 38, 36, 34, 32, 31, 30, 29, 28, 27, 26, 25, 24,
    23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1,
];

/// Values to bind, in order.
#[derive(Default)]
pub(super) struct Args {
    values: SqliteArguments,
    broken: Option<String>,
}

impl Args {
    /// Makes room for this many values.
    pub(super) fn reserve(&mut self, values: usize) {
        self.values.reserve(values, 0);
    }

    /// One value.
    pub(super) fn put<'q, T: Encode<'q, Sqlite> + Type<Sqlite>>(&mut self, value: T) -> &mut Self {
        if let Err(error) = self.values.add(value) {
            self.broken.get_or_insert(error.to_string());
        }
        self
    }

    /// A text.
    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.put(value)
    }

    /// A text, or NULL.
    pub(super) fn maybe_text(&mut self, value: Option<&str>) -> &mut Self {
        self.put(value)
    }

    /// An identifier.
    pub(super) fn id(&mut self, value: Uuid) -> &mut Self {
        self.put(value.as_bytes().as_slice())
    }

    /// An identifier, or NULL.
    pub(super) fn maybe_id(&mut self, value: Option<Uuid>) -> &mut Self {
        self.put(value.map(|id| id.as_bytes().to_vec()))
    }

    /// A whole number.
    pub(super) fn int(&mut self, value: i64) -> &mut Self {
        self.put(value)
    }

    /// A count; SQLite's numbers end at 2^63 - 1.
    pub(super) fn count(&mut self, value: u64) -> &mut Self {
        self.put(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// An instant, or NULL.
    pub(super) fn maybe_at(&mut self, value: Option<Timestamp>) -> &mut Self {
        self.put(value.map(|at| at.0))
    }

    /// The values, or what could not be bound.
    pub(super) fn finish(self) -> Result<SqliteArguments> {
        match self.broken {
            None => Ok(self.values),
            Some(what) => Err(StoreError::Database(format!("a value cannot be bound: {what}"))),
        }
    }
}

/// A statement over a list of rows: `head (?, ..), (?, ..) tail`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) head: &'static str,
    pub(super) columns: usize,
    pub(super) tail: &'static str,
}

/// What can be written many at once.
pub(super) trait Row: Clone + Send + Sync + 'static {
    /// The table, for messages.
    const TABLE: &'static str;
    /// The statement that writes it.
    const SHAPE: Shape;
    /// Binds the columns of the shape, in order.
    fn bind(&self, args: &mut Args) -> Result<()>;
}

/// A row of a table that is written by key and read back.
pub(super) trait Keyed: Row {
    /// What names it.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// Its place in the set of tables.
    const SET: u32;
    /// How many are remembered over batches; 0 for none.
    const KEPT: usize;
    /// Of how many keys without a row it is remembered that they have none; 0 for none.
    const ABSENT_KEPT: usize = 0;
    /// The statement that reads one by its key.
    const SELECT: &'static str;
    /// Rows in another table that are replaced with it.
    const CHILDREN: Option<Children<Self>> = None;
    /// Its key.
    fn key(&self) -> Self::Key;
    /// Binds a key for `SELECT`.
    fn bind_key(key: &Self::Key, args: &mut Args);
    /// Reads one back.
    fn read(row: &SqliteRow) -> Result<Self>;
    /// Whether it is worth remembering.
    fn keep(&self) -> bool {
        true
    }
}

/// Rows that belong to a row and are replaced as a whole: pairs of its id and another.
pub(super) struct Children<R> {
    pub(super) delete: Shape,
    pub(super) insert: Shape,
    pub(super) parent: fn(&R) -> Uuid,
    pub(super) of: fn(&R) -> Vec<Uuid>,
}

/// SQL texts by shape and number of rows, made once.
#[derive(Default)]
pub(super) struct Texts {
    made: HashMap<(&'static str, usize), Arc<str>>,
}

impl Texts {
    /// The text for `rows` rows of `shape`.
    pub(super) fn of(&mut self, shape: &Shape, rows: usize) -> Arc<str> {
        self.made
            .entry((shape.head, rows))
            .or_insert_with(|| {
                let one = format!("({})", vec!["?"; shape.columns].join(","));
                // Without OR FAIL, SQLite copies every page that it touches so that it could undo half a statement. A
                // batch with a failed statement is given up as a whole.
                let head = shape.head.replacen("INSERT INTO", "INSERT OR FAIL INTO", 1);
                format!("{}{}{}", head, vec![one; rows].join(","), shape.tail).into()
            })
            .clone()
    }
}

/// Splits `rows` rows of `columns` columns into statements: the sizes, in order.
pub(super) fn chunks(mut rows: usize, columns: usize) -> impl Iterator<Item = usize> {
    let fits = (VARIABLES_MAX / columns.max(1)).max(1);
    std::iter::from_fn(move || {
        let size = CHUNKS.iter().copied().find(|size| *size <= rows && *size <= fits)?;
        rows -= size;
        Some(size)
    })
}

/// A noun as JSON.
pub(super) fn to_json<T: Serialize>(table: &'static str, key: impl ToString, value: &T) -> Result<String> {
    let failed = |what: String| StoreError::Row { table, key: key.to_string(), what };
    // Most records have some hundred bytes: growing to that step by step costs more than writing them.
    let mut json = Vec::with_capacity(768);
    serde_json::to_writer(&mut json, value).map_err(|error| failed(format!("cannot be written as JSON: {error}")))?;
    String::from_utf8(json).map_err(|error| failed(error.to_string()))
}

/// A noun from the `record` column, which every query of such a table gives first.
pub(super) fn from_record<T: DeserializeOwned>(table: &'static str, row: &SqliteRow) -> Result<T> {
    let text: &str = get(table, row, 0)?;
    serde_json::from_str(text).map_err(|error| unreadable(table, text, error))
}

/// One column.
pub(super) fn get<'r, T>(table: &'static str, row: &'r SqliteRow, column: usize) -> Result<T>
where
    T: sqlx::Decode<'r, Sqlite> + Type<Sqlite>,
{
    row.try_get(column).map_err(|error| StoreError::Row {
        table,
        key: format!("column {column}"),
        what: error.to_string(),
    })
}

/// One identifier.
pub(super) fn get_id(table: &'static str, row: &SqliteRow, column: usize) -> Result<Uuid> {
    let bytes: &[u8] = get(table, row, column)?;
    Uuid::from_slice(bytes).map_err(|error| unreadable(table, &format!("column {column}"), error))
}

/// One identifier, or none.
pub(super) fn get_maybe_id(table: &'static str, row: &SqliteRow, column: usize) -> Result<Option<Uuid>> {
    let bytes: Option<&[u8]> = get(table, row, column)?;
    bytes.map(|b| Uuid::from_slice(b).map_err(|e| unreadable(table, &format!("column {column}"), e))).transpose()
}

/// One text that parses.
pub(super) fn get_parsed<T>(table: &'static str, row: &SqliteRow, column: usize) -> Result<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    let text: &str = get(table, row, column)?;
    text.parse().map_err(|error| unreadable(table, text, error))
}

/// One count that fits.
pub(super) fn get_count<T: TryFrom<i64>>(table: &'static str, row: &SqliteRow, column: usize) -> Result<T> {
    let number: i64 = get(table, row, column)?;
    T::try_from(number).map_err(|_| unreadable(table, &format!("column {column}"), "the number is out of range"))
}

/// The error of a row that does not read back.
pub(super) fn unreadable(table: &'static str, key: &str, what: impl std::fmt::Display) -> StoreError {
    StoreError::Row { table, key: ghost_domain::text::clip(key, 120).to_string(), what: what.to_string() }
}
