//! The pace of notes on progress.
//!
//! It must never let a flood of updates become a flood of notes.

use std::time::Duration;

use tokio::time::Instant;

use crate::bounds::NOTES_PER_SECOND;

#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    given: u32,
    left_out: u64,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, given: 0, left_out: 0 }
    }

    /// Whether a note may be given now, and how many were left out before it.
    pub(crate) fn note(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.given) = (now, 0);
        }
        if self.given >= NOTES_PER_SECOND {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.given += 1;
        Some(std::mem::take(&mut self.left_out))
    }

    /// How many were left out and not told.
    pub(crate) fn rest(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_becomes_a_few_notes_and_a_number() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let given = (0..1000).filter(|_| pace.note(start).is_some()).count();
        assert_eq!(given, NOTES_PER_SECOND as usize);
        assert_eq!(pace.note(start + Duration::from_secs(1)), Some(968));
        assert_eq!(pace.note(start + Duration::from_secs(1)), Some(0));
        assert_eq!(pace.rest(), 0);
    }
}
