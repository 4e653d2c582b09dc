//! Commit delay: decides whether a batch waits for more commands before it is committed. A commit
//! costs nearly the same for ten commands as for forty, so in a busy world a short wait saves
//! commits. The model is PostgreSQL's `commit_delay` and `commit_siblings`
//! (<https://www.postgresql.org/docs/current/runtime-config-wal.html>). Here the writer learns from
//! earlier waits when waiting is useless.
//!
//! The delay must never affect a single command. It must never wait again and again if no more
//! commands arrive.

use std::time::Duration;

/// A batch with fewer commands never waits: there are probably no other clients.
const SIBLINGS: usize = 4;

/// A batch with this many commands does not wait.
const ENOUGH: usize = 48;

/// Length of one pause. After it the writer checks the queue again.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// Maximum number of pauses for one batch.
const PAUSES_MAX: u32 = 6;

/// Maximum number of batches for which the delay assumes that waiting is useless.
const REDUCED_MAX: u32 = 64;

/// The results of earlier pauses, and the state of the current batch.
#[derive(Debug)]
pub(super) struct CommitDelay {
    /// Pauses that the current batch may still take.
    pauses_left: u32,
    /// A batch with this many commands does not wait at present: [`ENOUGH`], or the size of the
    /// last batch whose pause brought no command.
    enough: usize,
    /// Size of the last batch whose pause brought no command.
    vain_size: usize,
    /// Number of further batches for which `enough` stays reduced.
    reduced_for: u32,
    /// The value of `reduced_for` after the last pause that brought no command. It doubles with
    /// each one.
    last_reduction: u32,
}

impl Default for CommitDelay {
    fn default() -> Self {
        Self { pauses_left: 0, enough: ENOUGH, vain_size: 0, reduced_for: 0, last_reduction: 0 }
    }
}

impl CommitDelay {
    /// Starts a new batch.
    pub(super) fn begin(&mut self) {
        self.pauses_left = PAUSES_MAX;
        match self.reduced_for.checked_sub(1) {
            Some(left) => self.reduced_for = left,
            None => self.enough = ENOUGH,
        }
    }

    /// Whether a batch with this many commands should wait for [`PAUSE`], given that the queue is
    /// empty.
    pub(super) fn should_wait(&mut self, commands: usize) -> bool {
        if !(SIBLINGS..self.enough).contains(&commands) || self.pauses_left == 0 {
            return false;
        }
        self.pauses_left -= 1;
        true
    }

    /// Records the result of a pause: whether a command had arrived. If each client sends its next
    /// command only after the last one is done, no more commands arrive than there are clients. So
    /// the delay pauses less and less often after pauses that brought no command.
    pub(super) fn record_pause(&mut self, commands: usize, arrived: bool) {
        if !arrived {
            self.pauses_left = 0;
            self.last_reduction = (self.last_reduction * 2).clamp(1, REDUCED_MAX);
            self.reduced_for = self.last_reduction;
            self.enough = commands;
            self.vain_size = commands;
        } else if commands >= self.vain_size {
            self.last_reduction = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a batch that starts with `first` commands, where `clients` clients each wait for the
    /// last batch to end. Returns the number of pauses and the number of commands.
    fn batch(commit_delay: &mut CommitDelay, first: usize, clients: usize) -> (u32, usize) {
        commit_delay.begin();
        let (mut waits, mut commands) = (0, first);
        while commit_delay.should_wait(commands) {
            waits += 1;
            let more = clients - commands;
            commit_delay.record_pause(commands, more > 0);
            commands = clients;
        }
        (waits, commands)
    }

    #[test]
    fn a_single_command_and_a_full_batch_never_wait() {
        let mut commit_delay = CommitDelay::default();
        for commands in [1, SIBLINGS - 1, ENOUGH, ENOUGH + 1] {
            assert_eq!(batch(&mut commit_delay, commands, 1_000), (0, commands));
        }
    }

    #[test]
    fn a_batch_waits_while_commands_arrive_up_to_the_limit() {
        let mut commit_delay = CommitDelay::default();
        for _ in 0..100 {
            commit_delay.begin();
            let waits = (SIBLINGS..ENOUGH).take_while(|commands| {
                let waits = commit_delay.should_wait(*commands);
                commit_delay.record_pause(*commands, true);
                waits
            });
            assert_eq!(waits.count(), PAUSES_MAX as usize);
        }
    }

    #[test]
    fn the_number_of_clients_is_learned() {
        let mut commit_delay = CommitDelay::default();
        let batches: Vec<(u32, usize)> = (0..1_000).map(|_| batch(&mut commit_delay, 6, 10)).collect();
        // Each batch gets all ten commands, and rarely waits for an eleventh.
        assert!(batches.iter().all(|(_, commands)| *commands == 10), "{batches:?}");
        assert!(batches.iter().filter(|(waits, _)| *waits > 1).count() < 25, "{batches:?}");
        // A larger number of clients is detected, and then every batch gets all of them.
        let noticed = (0..=REDUCED_MAX).position(|_| batch(&mut commit_delay, 10, 20).1 == 20);
        assert!(noticed.is_some());
        for _ in 0..1_000 {
            assert_eq!(batch(&mut commit_delay, 16, 20).1, 20);
        }
    }

    #[test]
    fn vain_pauses_become_rare() {
        let mut commit_delay = CommitDelay::default();
        let waits: u32 = (0..1_000).map(|_| batch(&mut commit_delay, SIBLINGS, SIBLINGS).0).sum();
        assert!(waits < 25, "{waits}");
    }
}
