//! Agents, turns, tools, messages, tasks, budgets and the ledger, as a client over the socket sees them.

mod agents;
mod any_input;
mod board;
mod messages;
mod rig;
mod tools;
