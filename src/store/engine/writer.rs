//! The writer: the only thread that changes the database. It collects queued commands into a batch
//! and commits them together (group commit): commands that arrive during a commit share the next
//! one.
//!
//! The writer must never acknowledge or publish before COMMIT, or keep waiting when no command
//! arrives. It must never end because a command failed or panicked, or end without setting its
//! [`WriterState`].

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::queue::Queue;
use crate::error::StoreError;
use crate::handle::{Ack, Committed, Work};
use crate::tx::Tx;

/// State of the writer.
#[derive(Debug)]
pub(super) enum WriterState {
    /// The writer accepts commands.
    Running,
    /// The writer was closed and has ended.
    Closed,
    /// The writer has ended because of this failure.
    Broken(StoreError),
}

impl WriterState {
    /// The cause of the failure, if it has failed.
    pub(super) fn cause(&self) -> Option<&StoreError> {
        match self {
            Self::Broken(cause) => Some(cause),
            Self::Running | Self::Closed => None,
        }
    }
}

/// Starts the thread of the writer. It runs until the queue is closed and empty, then closes the connection; or until
/// a failure ends it. It sets `state` in both cases, and drops it at the end.
pub(super) fn start(
    session: Tx,
    queue: Arc<Queue>,
    committed: Committed,
    batch_max: usize,
    state: watch::Sender<WriterState>,
) -> Result<(), StoreError> {
    let thread = std::thread::Builder::new().name("store-writer".to_owned());
    thread
        .spawn(move || Writer { session, queue, committed, batch_max: batch_max.max(1) }.run(&state))
        .map(drop)
        .map_err(|error| StoreError::Busy(format!("the system gives the store no thread: {error}")))
}

/// The writer, on its thread.
struct Writer {
    session: Tx,
    queue: Arc<Queue>,
    committed: Committed,
    batch_max: usize,
}

/// The message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}

impl Writer {
    fn run(mut self, state: &watch::Sender<WriterState>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run_batches()));
        self.queue.end();
        let end = match outcome {
            Ok(Ok(())) => match self.session.close() {
                Err(error @ StoreError::Damaged { .. }) => WriterState::Broken(error),
                Err(error) => {
                    tracing::warn!(%error, "closing the database failed; all acknowledged changes are stored");
                    WriterState::Closed
                }
                Ok(()) => WriterState::Closed,
            },
            Ok(Err(error)) => {
                let kept = error.clone();
                state.send_replace(WriterState::Broken(error));
                // The last connection that is closed removes the log, so this one waits for those of the readers.
                self.queue.wait_for_close();
                match kept {
                    StoreError::Damaged { .. } => self.session.leave_open(),
                    _ => drop(self.session.close()),
                }
                return;
            }
            Err(panic) => {
                WriterState::Broken(StoreError::Broken(format!("its writer panicked: {}", panic_text(&*panic))))
            }
        };
        state.send_replace(end);
    }

    /// Runs batches until the queue is closed. Returns the cause as an error if the session can no
    /// longer be used.
    fn run_batches(&mut self) -> Result<(), StoreError> {
        let mut commit_delay = CommitDelay::default();
        while let Some(first) = self.queue.next() {
            self.batch(first, &mut commit_delay)?;
        }
        self.queue.check()
    }

    /// Runs `first` and the queued commands, then commits them together. Returns an error if no further
    /// batch can run.
    fn batch(&mut self, first: Work, commit_delay: &mut CommitDelay) -> Result<(), StoreError> {
        let mut acks: Vec<Ack> = Vec::new();
        let mut next = Some(first);
        let mut commands = 0;
        commit_delay.begin();
        while let Some(work) = next.take() {
            acks.extend(self.command(work));
            commands += 1;
            if commands < self.batch_max && !self.session.has_failed() {
                next = self.queue.try_next();
                while next.is_none() && commit_delay.should_wait(commands) {
                    // No result depends on this wait, and the simulation has no writer. It does not wait on
                    // the queue itself, because the delay exists to avoid a wake-up for each command.
                    #[allow(clippy::disallowed_methods)]
                    std::thread::sleep(PAUSE);
                    next = self.queue.try_next();
                    commit_delay.record_pause(commands, next.is_some());
                }
            }
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.session.commit()));
        match outcome.map(|committed| committed.and_then(|found| self.queue.check().map(|()| found))) {
            Ok(Ok((events, signals))) => {
                let published = catch_unwind(AssertUnwindSafe(|| self.committed.publish(events, &signals)));
                // The callers are notified first, even if publishing panicked: their changes are
                // stored.
                acks.into_iter().for_each(|ack| call_back(|| ack(Ok(()))));
                // If the signals were not sent, their receivers would wait forever. So the writer ends;
                // at the next start the daemon reads every inbox.
                published.unwrap_or_else(|panic| resume_unwind(panic));
                Ok(())
            }
            Ok(Err(error)) => {
                if let Some(batches) = self.committed.failed(&error.to_string()) {
                    tracing::error!(%error, batches, commands = acks.len(), "a batch could not be committed");
                }
                acks.into_iter().for_each(|ack| call_back(|| ack(Err(error.clone()))));
                match error {
                    StoreError::Broken(_) | StoreError::Damaged { .. } | StoreError::Gone { .. } => Err(error),
                    _ => Ok(()),
                }
            }
            Err(panic) => {
                let error = StoreError::Broken(format!("it failed in a commit: {}", panic_text(&*panic)));
                acks.into_iter().for_each(|ack| call_back(|| ack(Err(error.clone()))));
                resume_unwind(panic)
            }
        }
    }

    /// Runs one command. Returns the callback for the result of the batch, unless the command refused.
    fn command(&mut self, work: Work) -> Option<Ack> {
        let writes: &mut Tx = &mut self.session;
        // The handle catches panics of its commands. This catches panics of other users of the backend.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(writes)));
        match outcome {
            Ok(Ok(ack)) => match self.session.keep_command() {
                Ok(()) => Some(ack),
                Err(error) => {
                    call_back(|| ack(Err(error)));
                    None
                }
            },
            Ok(Err(nack)) => {
                self.session.undo_command();
                call_back(nack);
                None
            }
            Err(_) => {
                tracing::error!("a command panicked; its writes are undone");
                self.session.undo_command();
                None
            }
        }
    }
}

/// Calls one callback. A panic in it affects no other caller.
fn call_back(callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("the result callback of a command panicked");
    }
}

/// A batch with fewer commands never waits: there are probably no other clients.
const SIBLINGS: usize = 4;

/// A batch with this many commands does not wait.
const ENOUGH: usize = 48;

/// Length of one pause. After it the writer checks the queue again.
const PAUSE: Duration = Duration::from_millis(1);

/// Maximum number of pauses for one batch.
const PAUSES_MAX: u32 = 6;

/// Maximum number of batches for which the delay assumes that waiting is useless.
const REDUCED_MAX: u32 = 64;

/// Decides whether a batch waits for more commands before it is committed. A commit costs nearly the same for ten commands
/// as for forty, so in a busy world a short wait saves commits. The model is PostgreSQL's `commit_delay` and
/// `commit_siblings` (<https://www.postgresql.org/docs/current/runtime-config-wal.html>). Here the writer learns from
/// earlier waits when waiting is useless. A single command never waits.
#[derive(Debug)]
struct CommitDelay {
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
    fn begin(&mut self) {
        self.pauses_left = PAUSES_MAX;
        match self.reduced_for.checked_sub(1) {
            Some(left) => self.reduced_for = left,
            None => self.enough = ENOUGH,
        }
    }

    /// Whether a batch with this many commands should wait for [`PAUSE`], given that the queue is
    /// empty.
    fn should_wait(&mut self, commands: usize) -> bool {
        if !(SIBLINGS..self.enough).contains(&commands) || self.pauses_left == 0 {
            return false;
        }
        self.pauses_left -= 1;
        true
    }

    /// Records the result of a pause: whether a command had arrived. If each client sends its next
    /// command only after the last one is done, no more commands arrive than there are clients. So
    /// the delay pauses less and less often after pauses that brought no command.
    fn record_pause(&mut self, commands: usize, arrived: bool) {
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
    use tokio::sync::oneshot;

    use super::*;

    /// The failure is set by hand: no error of SQLite means that a connection is lost.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lost_connection_ends_the_writer() {
        let mut session = crate::sqlite::in_memory();
        session.fail(StoreError::Broken("its connection is lost".into()));
        let queue = Arc::new(Queue::new(4));
        let (state_sender, mut state) = watch::channel(WriterState::Running);
        let (sender, result) = oneshot::channel();
        let work: Work = Box::new(move |_: &mut Tx| {
            Ok(Box::new(move |result: Result<(), StoreError>| sender.send(result).unwrap()) as Ack)
        });
        queue.submit(work).await.unwrap();
        queue.close();
        start(session, Arc::clone(&queue), Committed::new(), 8, state_sender).unwrap();
        let result = result.await.unwrap().unwrap_err();
        assert!(matches!(result, StoreError::Broken(_)), "{result}");
        let end = state.wait_for(|state| !matches!(state, WriterState::Running)).await.unwrap();
        assert!(matches!(*end, WriterState::Broken(_)), "{:?}", *end);
    }
}

#[cfg(test)]
mod commit_delay_tests {
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
