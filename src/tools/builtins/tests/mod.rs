//! Tests of every tool against an in-memory store and an inline workspace.

mod tool_world;

mod agents;
mod approvals;
mod channel;
mod chat;
mod files;
mod knowledge;
mod mail;
mod patch;
mod schedules;
mod schemas;
mod sessions;
mod shared_state;
mod skills;
mod tasks;
