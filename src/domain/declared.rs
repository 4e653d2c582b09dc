//! What a world file declares besides agents: chat channels and cron jobs. The file wants them; what becomes of the records
//! is the commons' rule.
//!
//! Must never: hold anything that differs between two readings of one file, such as an instant of "now": a declaration that
//! is equal to the last one changes nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ChannelName};
use crate::schedule::{JobOptions, Missed, When};

/// A chat channel of the world file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclaredChannel {
    /// Its name.
    pub channel: ChannelName,
    /// Who is in it.
    pub members: BTreeSet<AgentId>,
    /// Whether posts wake nobody.
    pub gated: bool,
    /// What it is about.
    pub topic: Option<String>,
}

/// A cron job of the world file. `(agent_id, name)` is unique there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclaredJob {
    /// Whom it wakes.
    pub agent_id: AgentId,
    /// What it is called.
    pub name: String,
    /// When it goes off. An interval counts from 1970, so that it means the same at every reading.
    pub when: When,
    /// What is to be done.
    pub message: String,
    /// What becomes of missed slots.
    pub missed: Missed,
    /// How it runs.
    pub options: JobOptions,
    /// Whether it goes off.
    pub enabled: bool,
}

/// All that a world file declares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    /// Chat channels, in order of name.
    pub channels: Vec<DeclaredChannel>,
    /// Cron jobs, in the order of the file.
    pub jobs: Vec<DeclaredJob>,
}
