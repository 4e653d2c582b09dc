//! SQL that every driver takes: one text, from which the text of each dialect is made. The text of a constant statement
//! is made by the compiler, so it costs nothing at run time.
//!
//! A value is written `$1`, `$2`, … and may be used several times. PostgreSQL reads this as it is. SQLite would read a
//! name, numbered by its first appearance, so it gets `?1`. Where the dialects differ, the text has a mark:
//!
//! - `{index NAME}` after a table: SQLite must read it by this index. Its planner has no statistics, because Ghost never
//!   runs ANALYZE. PostgreSQL has them and chooses for itself.
//! - `{limit $n}`: `LIMIT`. SQLite plans a query with a bare `LIMIT ?` anew for each value that is bound.
//! - `{in $n}`: `IN` a list of texts, which is one bound value: a JSON array. So the text does not depend on the length.
//! - `{ids $n}`: the same for ids, written in hexadecimal without hyphens.
//! - `{each $n}` in FROM: the texts of such an array, as a table with the column `value`.
//! - `{bytes}`: the bytes of storage in use.
//!
//! A wrong mark, and a value whose number is left out, is an error of the compiler. Everything else must be the same in
//! both: NULLs have their order said, sums are cast to BIGINT, texts are compared by their bytes (PostgreSQL's columns
//! have the collation "C"), LIKE is not used because SQLite's ignores case, and truth is the number 1.
//!
//! A text must never contain a value.

use std::borrow::Cow;

/// A driver's own SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// A constant statement, in the text of each dialect. The macro [`sql!`] makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sql {
    sqlite: &'static str,
    postgres: &'static str,
}

impl Sql {
    /// A statement of two expanded texts. Only the macros call it.
    pub(crate) const fn expanded(sqlite: &'static [u8], postgres: &'static [u8]) -> Self {
        match (std::str::from_utf8(sqlite), std::str::from_utf8(postgres)) {
            (Ok(sqlite), Ok(postgres)) => Self { sqlite, postgres },
            // The expansion copies whole characters.
            _ => panic!("the statement is not UTF-8"),
        }
    }

    /// The text for SQLite.
    pub(crate) const fn sqlite(self) -> &'static str {
        self.sqlite
    }

    /// The text for PostgreSQL.
    pub(crate) const fn postgres(self) -> &'static str {
        self.postgres
    }
}

/// Makes a [`Sql`] of literals that are joined.
macro_rules! text {
    ($($part:tt)+) => {{
        use $crate::sql::{Dialect, Sql, expand, length};
        const TEXT: &str = concat!($($part)+);
        const SQLITE: [u8; length(TEXT, Dialect::Sqlite)] = expand(TEXT, Dialect::Sqlite);
        const POSTGRES: [u8; length(TEXT, Dialect::Postgres)] = expand(TEXT, Dialect::Postgres);
        const SQL: Sql = Sql::expanded(&SQLITE, &POSTGRES);
        SQL
    }};
}

/// Makes a [`Sql`] that a table uses. In a test it also becomes one of `STATEMENTS`.
macro_rules! sql {
    ($($part:tt)+) => {{
        const STATEMENT: $crate::sql::Sql = $crate::sql::text!($($part)+);
        #[cfg(test)]
        #[allow(unsafe_code, reason = "linkme names the section of a test program that holds the list")]
        const _: () = {
            #[linkme::distributed_slice($crate::sql::STATEMENTS)]
            static LISTED: $crate::sql::Sql = STATEMENT;
        };
        STATEMENT
    }};
}
pub(crate) use {sql, text};

/// All constant statements of the tables.
#[cfg(test)]
#[allow(unsafe_code, reason = "as above")]
#[linkme::distributed_slice]
pub(crate) static STATEMENTS: [Sql];

/// A statement: constant, or built from parts and expanded when it runs. Only lists for people are built.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Fixed(Sql),
    Built(String),
}

impl Statement {
    /// The text for a dialect.
    pub(crate) fn text(&self, dialect: Dialect) -> Cow<'static, str> {
        match (self, dialect) {
            (Self::Fixed(sql), Dialect::Sqlite) => Cow::Borrowed(sql.sqlite),
            (Self::Fixed(sql), Dialect::Postgres) => Cow::Borrowed(sql.postgres),
            (Self::Built(text), dialect) => {
                let mut bytes = vec![0; length(text, dialect)];
                write(text.as_bytes(), dialect, &mut bytes);
                Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }
}

impl From<Sql> for Statement {
    fn from(sql: Sql) -> Self {
        Self::Fixed(sql)
    }
}

/// Bytes of the text in a dialect.
pub(crate) const fn length(text: &str, dialect: Dialect) -> usize {
    write(text.as_bytes(), dialect, &mut [])
}

/// The text in a dialect. `N` is its [`length`].
pub(crate) const fn expand<const N: usize>(text: &str, dialect: Dialect) -> [u8; N] {
    let mut bytes = [0; N];
    write(text.as_bytes(), dialect, &mut bytes);
    bytes
}

/// Where the text of a dialect is written; only counted if there is no room.
struct Out<'o> {
    bytes: &'o mut [u8],
    length: usize,
}

impl Out<'_> {
    const fn push(&mut self, byte: u8) {
        if self.length < self.bytes.len() {
            self.bytes[self.length] = byte;
        }
        self.length += 1;
    }

    const fn text(&mut self, text: &[u8]) {
        self.part(text, 0, text.len());
    }

    /// Writes the part of a text from one place to another.
    const fn part(&mut self, text: &[u8], from: usize, to: usize) {
        let mut at = from;
        while at < to {
            self.push(text[at]);
            at += 1;
        }
    }
}

/// Writes the text in a dialect. Returns its length.
const fn write(text: &[u8], dialect: Dialect, bytes: &mut [u8]) -> usize {
    let mut out = Out { bytes, length: 0 };
    // The numbers of the values, as bits.
    let mut used: u64 = 0;
    let mut in_quotes = false;
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        if byte == b'\'' {
            in_quotes = !in_quotes;
        }
        if in_quotes {
            out.push(byte);
            at += 1;
            continue;
        }
        match byte {
            b'$' => at = value(text, at, dialect, &mut out, &mut used),
            b'{' => at = mark(text, at, dialect, &mut out, &mut used),
            b'?' | b'}' => panic!("a value is written $1, and a mark begins with {{"),
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    assert!(!in_quotes, "a literal has no end");
    assert!(used & (used + 1) == 0, "the numbers of the values have a gap");
    out.length
}

/// Writes the value whose `$` is at `at`. Returns the place after it.
const fn value(text: &[u8], at: usize, dialect: Dialect, out: &mut Out<'_>, used: &mut u64) -> usize {
    let mut end = at + 1;
    let mut number = 0;
    while end < text.len() && text[end].is_ascii_digit() {
        number = number * 10 + (text[end] - b'0') as u32;
        assert!(number < 64, "a statement has at most 63 values");
        end += 1;
    }
    assert!(number > 0, "a value has a number from 1");
    *used |= 1 << (number - 1);
    out.push(match dialect {
        Dialect::Sqlite => b'?',
        Dialect::Postgres => b'$',
    });
    out.part(text, at + 1, end);
    end
}

/// Writes what the mark at `at` stands for. Returns the place after it.
const fn mark(text: &[u8], at: usize, dialect: Dialect, out: &mut Out<'_>, used: &mut u64) -> usize {
    let mut word = at + 1;
    while word < text.len() && text[word].is_ascii_lowercase() {
        word += 1;
    }
    let mut end = word;
    while end < text.len() && text[end] != b'}' {
        end += 1;
    }
    assert!(end < text.len(), "a mark has no end");
    let (before, after): (&[u8], &[u8]) = match (name(text, at + 1, word), dialect) {
        (Mark::Index, Dialect::Sqlite) => {
            out.text(b" INDEXED BY");
            out.part(text, word, end);
            return end + 1;
        }
        (Mark::Index, Dialect::Postgres) => return end + 1,
        (Mark::Bytes, Dialect::Sqlite) => {
            out.text(
                b"(SELECT (pages.page_count - free.freelist_count) * size.page_size FROM pragma_page_count AS pages, \
                pragma_freelist_count AS free, pragma_page_size AS size)",
            );
            return end + 1;
        }
        (Mark::Bytes, Dialect::Postgres) => {
            out.text(
                b"(SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::BIGINT FROM pg_class AS c JOIN pg_namespace AS n \
                ON n.oid = c.relnamespace WHERE n.nspname = current_setting('search_path') AND c.relkind = 'r')",
            );
            return end + 1;
        }
        (Mark::Limit, Dialect::Sqlite) => (b"LIMIT ", b"+0"),
        (Mark::Limit, Dialect::Postgres) => (b"LIMIT ", b""),
        (Mark::In, Dialect::Sqlite) => (b"IN (SELECT value FROM json_each(", b"))"),
        (Mark::In, Dialect::Postgres) => {
            (b"IN (SELECT value FROM jsonb_array_elements_text(CAST(CAST(", b" AS TEXT) AS JSONB)))")
        }
        (Mark::Ids, Dialect::Sqlite) => (b"IN (SELECT unhex(value) FROM json_each(", b"))"),
        (Mark::Ids, Dialect::Postgres) => {
            (b"IN (SELECT decode(value, 'hex') FROM jsonb_array_elements_text(CAST(CAST(", b" AS TEXT) AS JSONB)))")
        }
        (Mark::Each, Dialect::Sqlite) => (b"json_each(", b")"),
        (Mark::Each, Dialect::Postgres) => (b"jsonb_array_elements_text(CAST(CAST(", b" AS TEXT) AS JSONB))"),
    };
    assert!(word + 1 < end && text[word] == b' ' && text[word + 1] == b'$', "this mark has a value");
    out.text(before);
    assert!(value(text, word + 1, dialect, out, used) == end, "this mark has one value");
    out.text(after);
    end + 1
}

enum Mark {
    Index,
    Limit,
    In,
    Ids,
    Each,
    Bytes,
}

const fn name(text: &[u8], from: usize, to: usize) -> Mark {
    let word = text.split_at(to).0.split_at(from).1;
    match word {
        b"index" => Mark::Index,
        b"limit" => Mark::Limit,
        b"in" => Mark::In,
        b"ids" => Mark::Ids,
        b"each" => Mark::Each,
        b"bytes" => Mark::Bytes,
        _ => panic!("there is no such mark"),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::batch::Counters;
    use crate::row::{args, get};
    use crate::sqlite::{SqliteDriver, schema};
    use crate::tx::Tx;

    #[test]
    fn a_text_is_expanded_for_each_dialect() {
        for (sql, sqlite, postgres) in [
            (text!("SELECT a FROM t WHERE b = $2 AND c = $1"), "SELECT a FROM t WHERE b = ?2 AND c = ?1", ""),
            (
                text!("SELECT '$x {y} ?' FROM t{index t_a}"),
                "SELECT '$x {y} ?' FROM t INDEXED BY t_a",
                "SELECT '$x {y} ?' FROM t",
            ),
            (text!("{limit $1}"), "LIMIT ?1+0", "LIMIT $1"),
            (
                text!("a {in $1}"),
                "a IN (SELECT value FROM json_each(?1))",
                "a IN (SELECT value FROM jsonb_array_elements_text(CAST(CAST($1 AS TEXT) AS JSONB)))",
            ),
            (
                text!("a {ids $1} é"),
                "a IN (SELECT unhex(value) FROM json_each(?1)) é",
                "a IN (SELECT decode(value, 'hex') FROM jsonb_array_elements_text(CAST(CAST($1 AS TEXT) AS JSONB))) é",
            ),
            (
                text!("FROM {each $1} AS k"),
                "FROM json_each(?1) AS k",
                "FROM jsonb_array_elements_text(CAST(CAST($1 AS TEXT) AS JSONB)) AS k",
            ),
        ] {
            assert_eq!(sql.sqlite(), sqlite);
            let postgres = if postgres.is_empty() { sqlite.replace('?', "$") } else { postgres.to_owned() };
            assert_eq!(sql.postgres(), postgres);
        }
    }

    #[test]
    fn a_text_with_a_wrong_mark_or_value_is_refused() {
        for wrong in [
            "a = ?",
            "a = $",
            "a = $0",
            "a = $2",
            "{limit}",
            "{limit 1}",
            "{in $1, $2}",
            "{of $1}",
            "{in $1",
            "a }",
            "'a",
        ] {
            let refused = std::panic::catch_unwind(|| length(wrong, Dialect::Sqlite));
            assert!(refused.is_err(), "{wrong}");
        }
    }

    /// Left to itself, SQLite would number `$2` first.
    #[test]
    fn values_have_the_numbers_that_are_written() {
        let conn = Connection::open_in_memory().unwrap();
        let driver = SqliteDriver::new(conn, std::path::Path::new("memory").into());
        let mut tx = Tx::writer(Box::new(driver), Counters::default());
        let sql = text!("SELECT $2 || ' ' || $1 || ' ' || $2");
        let found: Option<String> = tx.row(sql, args!["one", "two"], |row| get("none", row, 0)).unwrap();
        assert_eq!(found.as_deref(), Some("two one two"));
    }

    #[test]
    fn sqlite_prepares_every_statement() {
        let mut conn = Connection::open_in_memory().unwrap();
        schema::migrate(&mut conn, 0).unwrap();
        assert!(STATEMENTS.len() > 150, "{}", STATEMENTS.len());
        for sql in STATEMENTS {
            let prepared = conn.prepare(sql.sqlite());
            assert!(prepared.is_ok(), "{}: {}", sql.sqlite(), prepared.err().unwrap());
        }
    }
}
