//! `ghostctl ledger`: the record of all tool calls.

pub mod list;
mod rows;
mod totals;
