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

use tokio::sync::watch;

use super::commit_delay::{self, CommitDelay};
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
                    std::thread::sleep(commit_delay::PAUSE);
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
