//! Reads the database of a daemon that has ended, to count its rows.
//!
//! This module must never write to the database.

use std::path::Path;
use std::time::Duration;

use ghost_store::postgres::testing::Cluster;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// Maximum time that a query waits for a daemon that still holds the database.
const PATIENCE: Duration = Duration::from_secs(5);

/// Gives PostgreSQL the function of SQLite that the tests' queries use, in a schema of its own.
const JSON_EXTRACT: &str = "\
CREATE SCHEMA IF NOT EXISTS testing;
CREATE OR REPLACE FUNCTION testing.json_extract(record text, path text) RETURNS text LANGUAGE sql AS
$$ SELECT jsonb_path_query_first(record::jsonb, path::jsonpath) #>> '{}' $$;
";

/// An open database.
pub struct Database<'c>(Opened<'c>);

enum Opened<'c> {
    File(Connection),
    Schema(&'c Cluster, String),
}

/// The columns of one row.
type Columns = Vec<Value>;

impl Database<'static> {
    /// Opens `<data>/ghost.db`.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[must_use]
    pub fn open(data: &Path) -> Self {
        // Not read-only, because opening it must recover the write-ahead log of a killed daemon.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(data.join("ghost.db"), flags).expect("the daemon's database");
        connection.busy_timeout(PATIENCE).expect("a busy timeout");
        Self(Opened::File(connection))
    }
}

impl<'c> Database<'c> {
    /// Opens a schema of PostgreSQL.
    ///
    /// # Panics
    /// If the cluster does not answer.
    #[must_use]
    pub fn of_schema(cluster: &'c Cluster, schema: &str) -> Self {
        cluster.psql(JSON_EXTRACT).expect("a function for the tests");
        Self(Opened::Schema(cluster, schema.to_owned()))
    }

    fn rows(&self, query: &str) -> Vec<Columns> {
        match &self.0 {
            Opened::File(connection) => of_file(connection, query).expect("rows of a query without parameters"),
            Opened::Schema(cluster, schema) => {
                let sql = format!(
                    "SET search_path TO {schema}, testing;\nSELECT coalesce(json_agg(q), '[]') FROM ({query}) q;\n"
                );
                let rows = cluster.psql(&sql).unwrap_or_else(|error| panic!("{query}: {error}"));
                let rows: Vec<serde_json::Map<String, Value>> = serde_json::from_str(&rows).expect("rows as JSON");
                // A map has its keys in the order of the columns.
                rows.into_iter().map(|row| row.into_iter().map(|(_, value)| value).collect()).collect()
            }
        }
    }

    /// The number that a query returns.
    ///
    /// # Panics
    /// If it returns none.
    #[must_use]
    pub fn number(&self, query: &'static str) -> i64 {
        self.rows(query).first().and_then(|row| row.first()?.as_i64()).expect("a number")
    }

    /// The texts that a query with one column returns.
    ///
    /// # Panics
    /// If it returns something else.
    #[must_use]
    pub fn texts(&self, query: &'static str) -> Vec<String> {
        self.rows(query).iter().map(|row| text(row, 0)).collect()
    }

    /// The pairs of texts that a query with two columns returns.
    ///
    /// # Panics
    /// If it returns something else.
    #[must_use]
    pub fn pairs(&self, query: &'static str) -> Vec<(String, String)> {
        self.rows(query).iter().map(|row| (text(row, 0), text(row, 1))).collect()
    }

    /// The result of SQLite's integrity check: `ok`, or a description of the damage. PostgreSQL, which has no such
    /// check of its own, is always `ok`.
    #[must_use]
    pub fn integrity(&self) -> String {
        match &self.0 {
            Opened::File(_) => self.texts("PRAGMA integrity_check").join("; "),
            Opened::Schema(..) => "ok".to_owned(),
        }
    }
}

fn of_file(connection: &Connection, query: &str) -> rusqlite::Result<Vec<Columns>> {
    let mut statement = connection.prepare(query)?;
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        let value = |at| {
            Ok(match row.get_ref(at)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(number) => number.into(),
                ValueRef::Real(number) => number.into(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
                ValueRef::Blob(_) => panic!("column {at} of {query} is bytes"),
            })
        };
        (0..columns).map(value).collect()
    })?;
    rows.collect()
}

fn text(row: &Columns, at: usize) -> String {
    row.get(at).and_then(Value::as_str).unwrap_or_else(|| panic!("no text in column {at} of {row:?}")).to_owned()
}
