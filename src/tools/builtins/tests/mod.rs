//! Every tool against a store in memory and a workspace that runs inline.

mod rig;

mod agents;
mod files;
mod mail;
mod schemas;
mod skills;
mod tasks;
