//! A table of functions of a transaction that are one statement, or one step.
//!
//! It must never hold a function that does more than its line says.

/// Functions, each with what it reads or writes. `first` reads the first row of a statement and `list` all of them;
/// `change` changes rows by a statement, and `remove` says whether there was one. The parameters are the values of the
/// statement, in this order. All others are one step of [`Tx`](crate::tx::Tx): `get` a row by its key, `put` a row, read the
/// `page` of a query that was built, or a `counted` number.
macro_rules! functions {
    ($($(#[$doc:meta])* $sort:ident $name:ident($($value:ident: $type:ty),*) -> $result:ty: $what:expr;)+) => {
        impl $crate::tx::Tx {
            $($(#[$doc])*
            pub fn $name(&mut self $(, $value: $type)*) -> $crate::error::Result<$result> {
                $crate::tables::functions::body!($sort self, $what, $($value)*)
            })+
        }
    };
}
pub(super) use functions;

/// The body of such a function.
macro_rules! body {
    (first $tx:ident, $sql:expr, $($value:ident)*) => {
        $tx.first($crate::sql::sql!($sql), $crate::row::args![$($value),*])
    };
    (list $tx:ident, $sql:expr, $($value:ident)*) => {
        $tx.list($crate::sql::sql!($sql), $crate::row::args![$($value),*])
    };
    (change $tx:ident, $sql:expr, $($value:ident)*) => {
        $tx.execute($crate::sql::sql!($sql), $crate::row::args![$($value),*]).map(drop)
    };
    (remove $tx:ident, $sql:expr, $($value:ident)*) => {
        Ok($tx.execute($crate::sql::sql!($sql), $crate::row::args![$($value),*])? > 0)
    };
    ($step:ident $tx:ident, $what:expr, $($value:ident)*) => { $tx.$step($what) };
}
pub(super) use body;
