//! The chat channels and cron jobs that `world-config.yaml` declares. `ghost-operations` compares them
//! with the stored records and changes the records.
//!
//! A declaration must never contain a value that differs between two readings of the same file,
//! such as the present time. A reload changes nothing if the declaration is equal to the previous
//! one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, ChannelName};
use crate::schedule::{JobMode, Missed, When};

/// A chat channel that `world-config.yaml` declares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclaredChannel {
    /// Name of the channel.
    pub channel: ChannelName,
    /// Members of the channel.
    pub members: BTreeSet<AgentId>,
    /// Whether the channel is gated: a chat message wakes no member.
    pub gated: bool,
    /// Topic of the channel.
    pub topic: Option<String>,
}

/// A cron job that `world-config.yaml` declares. `(agent_id, name)` is unique in the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclaredJob {
    /// Agent that the job sends mail to.
    pub agent_id: AgentId,
    /// Name of the job.
    pub name: String,
    /// When the job runs. An interval counts from 1970, so each reading of the file gives the same
    /// slots.
    pub when: When,
    /// Text of the mail.
    pub message: String,
    /// What happens to slots that passed while the daemon was down.
    pub missed: Missed,
    /// How the job runs.
    #[serde(rename = "options")]
    pub mode: JobMode,
    /// Whether the job runs at all.
    pub enabled: bool,
}

/// All channels and cron jobs of `world-config.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    /// Chat channels, sorted by name.
    pub channels: Vec<DeclaredChannel>,
    /// Cron jobs, in the order of the file.
    pub jobs: Vec<DeclaredJob>,
}
