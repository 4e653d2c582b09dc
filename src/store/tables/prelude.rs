//! What the files of this folder use: the macros that describe a table once, and names of the store.
//!
//! `insert!` describes a row that is inserted. `record!` describes a row with the whole record as JSON in the column
//! `record`, which is inserted or replaced by key. `functions!` is a table of functions that are one statement or one step.

pub(super) use crate::error::{Result, StoreError};
pub(super) use crate::query::{Conditions, PAGE_MAX, list_limit};
pub(super) use crate::row::{Args, Bind, Keyed, ReadRow, Row, args, from_json, from_record, get, to_json, unreadable};
pub(super) use crate::sql::{Sql, Statement, sql};
pub(super) use crate::tx::Tx;

/// The value of a column: that of the field with its name, unless another is given.
macro_rules! value {
    ($row:ident $column:ident) => {
        &$row.$column
    };
    ($row:ident $column:ident $value:expr) => {
        $value
    };
}

/// The names of columns.
macro_rules! names {
    ($first:ident $($column:ident)*) => { concat!(stringify!($first) $(, ", ", stringify!($column))*) };
}

/// The numbers of the values of so many columns.
macro_rules! numbers {
    (($($done:literal)*) $column:ident $($rest:ident)*; $next:literal $($number:literal)*) => {
        $crate::tables::prelude::numbers!(($($done)* $next) $($rest)*; $($number)*)
    };
    (($($done:literal)+); $($number:literal)*) => { concat!($($done),+) };
    ($($column:ident)+) => {
        $crate::tables::prelude::numbers!(() $($column)+; "$1" ", $2" ", $3" ", $4" ", $5" ", $6" ", $7" ", $8" ", $9" ", $10"
            ", $11" ", $12" ", $13" ", $14" ", $15" ", $16" ", $17" ", $18")
    };
}

/// The condition for the key of one or two columns.
macro_rules! has_key {
    ($one:ident) => {
        concat!(stringify!($one), " = $1")
    };
    ($one:ident $two:ident) => {
        concat!(stringify!($one), " = $1 AND ", stringify!($two), " = $2")
    };
}

/// A struct of a row: its fields are the columns from `$first` on, in order. Other fields have values of their own:
/// `fields!("posts", row, 0, Post { seq, hop; channel: name.clone() })`.
macro_rules! fields {
    ($table:expr, $row:ident, $first:literal,
     $type:ident { $($field:ident),+ $(; $($other:ident: $value:expr),+)? }) => {{
        let mut cells = $crate::row::Cells::of($table, $row, $first);
        $type { $($field: cells.take()?,)+ $($($other: $value),+)? }
    }};
}

/// A row that is inserted: `insert! { post: ChatPost, "chat_posts"; channel, seq, from_party = post.from.to_string() }`.
/// A text after the table's name ends the statement.
macro_rules! insert {
    ($row:ident: $type:ty, $table:literal $(, $end:literal)?; $($column:ident $(= $value:expr)?),+ $(,)?) => {
        impl $crate::row::Row for $type {
            const TABLE: &'static str = $table;
            const WRITE: $crate::sql::Sql = $crate::sql::sql!(
                "INSERT INTO ", $table, " (", $crate::tables::prelude::names!($($column)+), ") VALUES (",
                $crate::tables::prelude::numbers!($($column)+), ")" $(, " ", $end)?
            );

            fn bind(&self, args: &mut $crate::row::Args) -> $crate::error::Result<()> {
                let $row = self;
                $(args.push($crate::tables::prelude::value!($row $column $($value)?));)+
                Ok(())
            }
        }
    };
}

/// A record with its key: `record! { grant: Grant, "acl_grants"; key grant_id: GrantId; agent_id, expires_at }`. Columns in
/// brackets keep the value with which they were inserted.
macro_rules! record {
    (
        $row:ident: $type:ty, $table:literal; key $($key:ident: $key_type:ty $(= $key_value:expr)?),+;
        $([$($kept:ident $(= $kept_value:expr)?),+])? $($column:ident $(= $value:expr)?),* $(,)?
    ) => {
        impl $crate::row::Row for $type {
            const TABLE: &'static str = $table;
            const WRITE: $crate::sql::Sql = $crate::sql::sql!(
                "INSERT INTO ", $table, " (", $crate::tables::prelude::names!($($key)+ $($($kept)+)? $($column)* record),
                ") VALUES (", $crate::tables::prelude::numbers!($($key)+ $($($kept)+)? $($column)* record),
                ") ON CONFLICT (", $crate::tables::prelude::names!($($key)+), ") DO UPDATE SET ",
                $(stringify!($column), " = excluded.", stringify!($column), ", ",)* "record = excluded.record"
            );

            fn bind(&self, args: &mut $crate::row::Args) -> $crate::error::Result<()> {
                let $row = self;
                $(args.push($crate::tables::prelude::value!($row $key $($key_value)?));)+
                $($(args.push($crate::tables::prelude::value!($row $kept $($kept_value)?));)+)?
                $(args.push($crate::tables::prelude::value!($row $column $($value)?));)*
                args.push($crate::row::to_json($table, "a new row", self)?);
                Ok(())
            }
        }

        #[allow(unused_parens, reason = "a key has one part or several")]
        impl $crate::row::Keyed for $type {
            type Key = ($($key_type),+);
            const SELECT: $crate::sql::Sql =
                $crate::sql::sql!("SELECT record FROM ", $table, " WHERE ", $crate::tables::prelude::has_key!($($key)+));

            fn bind_key(($($key),+): &Self::Key, args: &mut $crate::row::Args) {
                $(args.push($key);)+
            }

            fn read(row: &$crate::row::ReadRow<'_>) -> $crate::error::Result<Self> {
                $crate::row::from_record($table, row)
            }
        }
    };
}

/// Functions, each with what it reads or writes. `first` reads the first row of a statement and `list` all of them; `value`
/// reads the first column of the first row, `values` that of all rows, and `number` a value that is 0 if there is none;
/// `change` changes rows by a statement, and `remove` says whether there was one. The parameters are the values of the
/// statement, in this order. All others are one step of [`Tx`](crate::tx::Tx): `get` a row by its key, `put` a row, read the
/// `page` of a query that was built, or a `counted` number, and `put_counted` a row that a limit counts.
macro_rules! functions {
    ($($(#[$doc:meta])* $sort:ident $name:ident($($value:ident: $type:ty),*) -> $result:ty: $($what:expr),+;)+) => {
        impl $crate::tx::Tx {
            $($(#[$doc])*
            pub fn $name(&mut self $(, $value: $type)*) -> $crate::error::Result<$result> {
                $crate::tables::prelude::body!($sort self, ($($what),+), $($value)*)
            })+
        }
    };
}

/// The body of such a function.
macro_rules! body {
    (first $tx:ident, ($sql:expr), $($value:ident)*) => {
        $tx.first($crate::sql::sql!($sql), $crate::row::args![$($value),*])
    };
    (list $tx:ident, ($sql:expr), $($value:ident)*) => {
        $tx.list($crate::sql::sql!($sql), $crate::row::args![$($value),*])
    };
    (value $tx:ident, ($table:expr, $sql:expr), $($value:ident)*) => {
        $tx.row($crate::sql::sql!($sql), $crate::row::args![$($value),*], |row| $crate::row::get($table, row, 0))
    };
    (values $tx:ident, ($table:expr, $sql:expr), $($value:ident)*) => {
        $tx.rows($crate::sql::sql!($sql), $crate::row::args![$($value),*], |row| $crate::row::get($table, row, 0))
    };
    (number $tx:ident, ($table:expr, $sql:expr), $($value:ident)*) => {
        $tx.count($table, $crate::sql::sql!($sql), $crate::row::args![$($value),*])
    };
    (change $tx:ident, ($sql:expr), $($value:ident)*) => {
        $tx.execute($crate::sql::sql!($sql), $crate::row::args![$($value),*]).map(drop)
    };
    (remove $tx:ident, ($sql:expr), $($value:ident)*) => {
        Ok($tx.execute($crate::sql::sql!($sql), $crate::row::args![$($value),*])? > 0)
    };
    (put_counted $tx:ident, ($key:expr, $stored:expr, $count:expr), $row:ident) => {
        $tx.put_counted($row, $key, $crate::sql::sql!($stored), $count)
    };
    ($step:ident $tx:ident, ($what:expr), $($value:ident)*) => { $tx.$step($what) };
}
pub(super) use {body, fields, functions, has_key, insert, names, numbers, record, value};
