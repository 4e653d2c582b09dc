//! The macros that name the columns of a table once: next to each column its value.
//!
//! They must never write a statement that cannot be read off their words: `insert!` inserts; `record!` inserts or
//! replaces by key, with the row as JSON in the column `record`.

/// The value of a column: that of the field with its name, unless another is given.
macro_rules! value {
    ($row:ident $column:ident) => {
        &$row.$column
    };
    ($row:ident $column:ident $value:expr) => {
        $value
    };
}
pub(super) use value;

/// The names of columns.
macro_rules! names {
    ($first:ident $($column:ident)*) => { concat!(stringify!($first) $(, ", ", stringify!($column))*) };
}
pub(super) use names;

/// The numbers of the values of so many columns.
macro_rules! numbers {
    (($($done:literal)*) $column:ident $($rest:ident)*; $next:literal $($number:literal)*) => {
        $crate::tables::record::numbers!(($($done)* $next) $($rest)*; $($number)*)
    };
    (($($done:literal)+); $($number:literal)*) => { concat!($($done),+) };
    ($($column:ident)+) => {
        $crate::tables::record::numbers!(() $($column)+; "$1" ", $2" ", $3" ", $4" ", $5" ", $6" ", $7" ", $8" ", $9" ", $10"
            ", $11" ", $12" ", $13" ", $14" ", $15" ", $16" ", $17" ", $18")
    };
}
pub(super) use numbers;

/// The condition for the key of one or two columns.
macro_rules! has_key {
    ($one:ident) => {
        concat!(stringify!($one), " = $1")
    };
    ($one:ident $two:ident) => {
        concat!(stringify!($one), " = $1 AND ", stringify!($two), " = $2")
    };
}
pub(super) use has_key;

/// A struct of a row: its fields are the columns from `$first` on, in order. Other fields have values of their own:
/// `fields!("posts", row, 0, Post { seq, hop; channel: name.clone() })`.
macro_rules! fields {
    ($table:expr, $row:ident, $first:literal,
     $type:ident { $($field:ident),+ $(; $($other:ident: $value:expr),+)? }) => {{
        let mut cells = $crate::row::Cells::of($table, $row, $first);
        $type { $($field: cells.take()?,)+ $($($other: $value),+)? }
    }};
}
pub(super) use fields;

/// A row that is inserted: `insert! { post: ChatPost, "chat_posts"; channel, seq, from_party = post.from.to_string() }`.
/// A text after the table's name ends the statement.
macro_rules! insert {
    ($row:ident: $type:ty, $table:literal $(, $end:literal)?; $($column:ident $(= $value:expr)?),+ $(,)?) => {
        impl $crate::row::Row for $type {
            const TABLE: &'static str = $table;
            const WRITE: $crate::sql::Sql = $crate::sql::sql!(
                "INSERT INTO ", $table, " (", $crate::tables::record::names!($($column)+), ") VALUES (",
                $crate::tables::record::numbers!($($column)+), ")" $(, " ", $end)?
            );

            fn bind(&self, args: &mut $crate::row::Args) -> $crate::error::Result<()> {
                let $row = self;
                $(args.push($crate::tables::record::value!($row $column $($value)?));)+
                Ok(())
            }
        }
    };
}
pub(super) use insert;

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
                "INSERT INTO ", $table, " (", $crate::tables::record::names!($($key)+ $($($kept)+)? $($column)* record),
                ") VALUES (", $crate::tables::record::numbers!($($key)+ $($($kept)+)? $($column)* record),
                ") ON CONFLICT (", $crate::tables::record::names!($($key)+), ") DO UPDATE SET ",
                $(stringify!($column), " = excluded.", stringify!($column), ", ",)* "record = excluded.record"
            );

            fn bind(&self, args: &mut $crate::row::Args) -> $crate::error::Result<()> {
                let $row = self;
                $(args.push($crate::tables::record::value!($row $key $($key_value)?));)+
                $($(args.push($crate::tables::record::value!($row $kept $($kept_value)?));)+)?
                $(args.push($crate::tables::record::value!($row $column $($value)?));)*
                args.push($crate::row::to_json($table, "a new row", self)?);
                Ok(())
            }
        }

        #[allow(unused_parens, reason = "a key has one part or several")]
        impl $crate::row::Keyed for $type {
            type Key = ($($key_type),+);
            const SELECT: $crate::sql::Sql =
                $crate::sql::sql!("SELECT record FROM ", $table, " WHERE ", $crate::tables::record::has_key!($($key)+));

            fn bind_key(($($key),+): &Self::Key, args: &mut $crate::row::Args) {
                $(args.push($key);)+
            }

            fn read(row: &$crate::row::ReadRow<'_>) -> $crate::error::Result<Self> {
                $crate::row::from_record($table, row)
            }
        }
    };
}
pub(super) use record;
