//! Every tool against a store in memory and a workspace that runs inline.

mod rig;

mod agents;
mod channel;
mod chat;
mod files;
mod knowledge;
mod mail;
mod schedules;
mod schemas;
mod shared_state;
mod skills;
mod tasks;
