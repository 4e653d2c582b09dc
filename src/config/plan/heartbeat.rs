//! The heartbeats of a plan.

use std::time::Duration;

/// An agent's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatPlan {
    /// The interval.
    pub every: Duration,
    /// The hours with heartbeats. `None` means all hours.
    pub active: Option<ActiveHours>,
    /// Where an alert goes: `none`, `last` or a chat channel.
    pub target: String,
    /// The text of the heartbeat. `None` means a default question.
    pub prompt: Option<String>,
    /// Whether there is a HEARTBEAT.md without content. Then no heartbeat is needed.
    pub empty: bool,
}

/// Hours of a day, in minutes since midnight. They may span midnight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHours {
    /// The first minute of the hours.
    pub from: u32,
    /// The first minute after the hours.
    pub to: u32,
    /// The time zone, an IANA name.
    pub timezone: String,
}

impl ActiveHours {
    /// Whether the hours contain a minute of the day.
    #[must_use]
    pub fn covers(&self, minute: u32) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}
