//! The heartbeats of a plan (HB-01, HB-04).

use std::time::Duration;

/// An agent's heartbeat (HB-01, HB-04).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatPlan {
    /// How often.
    pub every: Duration,
    /// In which hours; at all hours if none.
    pub active: Option<ActiveHours>,
    /// Where an alert goes: `none`, `last` or a chat channel.
    pub target: String,
    /// What it is asked; `None` is a plain question.
    pub prompt: Option<String>,
    /// Whether there is a HEARTBEAT.md that says nothing, so that there is nothing to ask.
    pub empty: bool,
}

/// Hours of a day, in minutes since midnight; they may go over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHours {
    /// The first minute.
    pub from: u32,
    /// The first minute after.
    pub to: u32,
    /// The zone, an IANA name.
    pub timezone: String,
}

impl ActiveHours {
    /// Whether a minute of the day is among them.
    #[must_use]
    pub fn covers(&self, minute: u32) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}
