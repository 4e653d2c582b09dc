//! The record of tool calls.

pub mod list;
