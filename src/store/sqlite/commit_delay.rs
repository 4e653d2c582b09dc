//! Whether a batch that has run out of commands waits a little for more before it is committed. In a busy world commands
//! come faster than one at a time, and a commit costs much the same for ten as for forty: PostgreSQL's `commit_delay` and
//! `commit_siblings` (<https://www.postgresql.org/docs/current/runtime-config-wal.html>), with the number of siblings
//! found out.
//!
//! Must never: hold up a command that is alone, or go on waiting where nobody comes.

use std::time::Duration;

/// Commands that make a batch worth waiting for: below it whoever waits is likely alone.
const SIBLINGS: usize = 4;

/// Commands that are company enough.
const ENOUGH: usize = 48;

/// How long the writer waits before it looks again.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// How often it looks for one batch, at most.
const PAUSES_MAX: u32 = 6;

/// For how many batches it is believed, at most, that nobody comes any more.
const HELD_MAX: u32 = 64;

/// What earlier waiting brought, and where the current batch stands.
#[derive(Debug)]
pub(super) struct CommitDelay {
    /// How often the current batch may still wait.
    pauses_left: u32,
    /// Commands that are enough for now.
    enough: usize,
    /// Commands of the batch that last waited in vain.
    vain: usize,
    /// For how many more batches that many are enough.
    held: u32,
    /// For how many they were last time.
    hold: u32,
}

impl Default for CommitDelay {
    fn default() -> Self {
        Self { pauses_left: 0, enough: ENOUGH, vain: 0, held: 0, hold: 0 }
    }
}

impl CommitDelay {
    /// A new batch begins.
    pub(super) fn begin(&mut self) {
        self.pauses_left = PAUSES_MAX;
        match self.held.checked_sub(1) {
            Some(left) => self.held = left,
            None => self.enough = ENOUGH,
        }
    }

    /// Whether a batch of this many commands, with none left in the queue, waits for [`PAUSE`] and looks again.
    pub(super) fn worth_waiting(&mut self, commands: usize) -> bool {
        if !(SIBLINGS..self.enough).contains(&commands) || self.pauses_left == 0 {
            return false;
        }
        self.pauses_left -= 1;
        true
    }

    /// What a wait of a batch of this many commands came to: whether anybody had come. Where each command is queued when
    /// the one before it is done, no more come than there are clients: waiting for more is tried ever less often.
    pub(super) fn waited(&mut self, commands: usize, anyone: bool) {
        if !anyone {
            self.pauses_left = 0;
            self.hold = (self.hold * 2).clamp(1, HELD_MAX);
            self.held = self.hold;
            self.enough = commands;
            self.vain = commands;
        } else if commands >= self.vain {
            self.hold = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a batch that finds `first` commands, where `clients` wait for each other's batches. Gives how often it waited
    /// and how many commands it took.
    fn batch(commit_delay: &mut CommitDelay, first: usize, clients: usize) -> (u32, usize) {
        commit_delay.begin();
        let (mut waits, mut commands) = (0, first);
        while commit_delay.worth_waiting(commands) {
            waits += 1;
            let more = clients - commands;
            commit_delay.waited(commands, more > 0);
            commands = clients;
        }
        (waits, commands)
    }

    #[test]
    fn a_command_alone_and_a_full_batch_never_wait() {
        let mut commit_delay = CommitDelay::default();
        for commands in [1, SIBLINGS - 1, ENOUGH, ENOUGH + 1] {
            assert_eq!(batch(&mut commit_delay, commands, 1_000), (0, commands));
        }
    }

    #[test]
    fn a_batch_waits_while_more_come_and_only_so_long() {
        let mut commit_delay = CommitDelay::default();
        for _ in 0..100 {
            commit_delay.begin();
            let waits = (SIBLINGS..ENOUGH).take_while(|commands| {
                let waits = commit_delay.worth_waiting(*commands);
                commit_delay.waited(*commands, true);
                waits
            });
            assert_eq!(waits.count(), PAUSES_MAX as usize);
        }
    }

    #[test]
    fn a_number_of_clients_that_wait_for_each_other_is_found_out() {
        let mut commit_delay = CommitDelay::default();
        let batches: Vec<(u32, usize)> = (0..1_000).map(|_| batch(&mut commit_delay, 6, 10)).collect();
        // All ten are waited for, and hardly ever an eleventh.
        assert!(batches.iter().all(|(_, commands)| *commands == 10), "{batches:?}");
        assert!(batches.iter().filter(|(waits, _)| *waits > 1).count() < 25, "{batches:?}");
        // More of them are noticed, and then each time.
        let noticed = (0..=HELD_MAX).position(|_| batch(&mut commit_delay, 10, 20).1 == 20);
        assert!(noticed.is_some());
        for _ in 0..1_000 {
            assert_eq!(batch(&mut commit_delay, 16, 20).1, 20);
        }
    }

    #[test]
    fn where_nobody_comes_waiting_is_tried_ever_less_often() {
        let mut commit_delay = CommitDelay::default();
        let waits: u32 = (0..1_000).map(|_| batch(&mut commit_delay, SIBLINGS, SIBLINGS).0).sum();
        assert!(waits < 25, "{waits}");
    }
}
