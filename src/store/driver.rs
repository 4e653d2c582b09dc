//! What a transaction needs of a database's connection: statements, and the orders that begin and end what they belong to.
//! Each database has one driver. A driver is used on one thread.
//!
//! A driver must never answer `Commit` with success before the commit is durable, and never repeat a statement of a
//! transaction that was lost.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::{Result, StoreError};
use crate::row::{Args, ReadRow};
use crate::sql::{Sql, Statement};

/// Why a statement that changes rows has failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A row breaks a rule of its table, such as a unique name. The text says which.
    Rule(String),
    /// The transaction cannot go on.
    Store(StoreError),
}

/// What begins or ends with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Begins the writer's batch.
    Begin,
    /// Begins a query whose statements see the same commit. It ends with `Commit`.
    BeginSnapshot,
    /// Begins a command that can be undone alone.
    Savepoint,
    /// Keeps what the command has written.
    Release,
    /// Undoes what the command has written.
    UndoCommand,
    /// Commits the batch.
    Commit,
    /// Undoes the batch, or what a failure has left of it.
    Rollback,
}

/// A connection.
pub(crate) trait Driver: Send {
    /// Runs a query and shows its rows to `next`, until that returns `false` or an error. The outer error is a failure of the
    /// transaction, the inner one that of `next`.
    fn read(&mut self, sql: &Statement, args: &Args, next: &mut NextRow<'_>) -> Result<Result<()>>;

    /// Runs a statement that changes rows. Returns their number.
    fn execute(&mut self, sql: Sql, args: &Args) -> Result<u64, Failure>;

    /// Follows an order.
    fn order(&mut self, order: Order) -> Result<()>;

    /// Whether deleted rows make the database smaller, so that it may be held below a size by deleting.
    fn frees_space(&self) -> bool {
        true
    }

    /// Checks, outside transactions, that the database is still the one that was opened.
    fn check(&mut self) -> Result<()>;

    /// Interrupts the statements of the next query once `has_left` is set.
    fn interrupt_when(&mut self, has_left: Arc<AtomicBool>);

    /// Closes the connection. If the database is damaged or gone, it may stay open instead.
    fn close(self: Box<Self>) -> Result<()>;

    /// Leaks the connection until the process ends, as in a kill.
    fn leave_open(self: Box<Self>);
}

/// Takes the rows of a query.
pub(crate) type NextRow<'n> = dyn FnMut(&ReadRow<'_>) -> Result<bool> + 'n;
