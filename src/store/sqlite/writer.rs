//! The writer: the only task that changes the database. It collects queued commands into a batch
//! and commits them together (group commit): commands that arrive during a commit share the next
//! one.
//!
//! The writer must never acknowledge or publish before COMMIT, or keep waiting when no command
//! arrives. It must never end because a command failed or panicked, or end without setting its
//! [`WriterState`].

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};

use super::commit_delay::{self, CommitDelay};
use super::fault;
use super::session::Session;
use crate::handle::{Ack, Committed, Work};
use crate::{StoreError, Writes};

/// State of the writer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriterState {
    /// The writer accepts commands.
    Running,
    /// The writer was closed and has ended.
    Closed,
    /// The writer has ended because of a failure; the text is the cause.
    Broken(String),
}

impl WriterState {
    /// The cause of the failure, if it has failed.
    pub(super) fn cause(&self) -> Option<&String> {
        match self {
            Self::Broken(cause) => Some(cause),
            Self::Running | Self::Closed => None,
        }
    }
}

/// Runs until the queue is closed and empty, then closes the connection; or until a failure ends
/// it. Sets `state` in both cases.
pub(super) async fn run(
    session: Session,
    queue: mpsc::Receiver<Work>,
    stop: watch::Receiver<bool>,
    committed: Committed,
    batch_max: usize,
    state: watch::Sender<WriterState>,
) {
    let outcome = AssertUnwindSafe(run_batches(session, queue, stop, committed, batch_max)).catch_unwind().await;
    let end = match outcome {
        Ok(Ok(())) => WriterState::Closed,
        Ok(Err(what)) => WriterState::Broken(what),
        Err(panic) => WriterState::Broken(format!("its writer panicked: {}", panic_text(&*panic))),
    };
    state.send_replace(end);
}

/// The message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message")
}

/// Runs batches until the queue is closed. Returns the cause as an error if the session can no
/// longer be used.
async fn run_batches(
    mut session: Session,
    mut queue: mpsc::Receiver<Work>,
    mut stop: watch::Receiver<bool>,
    committed: Committed,
    batch_max: usize,
) -> Result<(), String> {
    let mut commit_delay = CommitDelay::default();
    loop {
        let first = tokio::select! {
            biased;
            work = queue.recv() => work,
            // This fires too when the sender is dropped. Then no caller is left that could queue a
            // command.
            _ = stop.changed(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
        };
        let Some(first) = first else { break };
        batch(&mut session, first, &mut queue, &committed, batch_max, &mut commit_delay).await?;
    }
    if let Err(error) = session.close().await {
        tracing::warn!(%error, "closing the database failed; all acknowledged changes are stored");
    }
    Ok(())
}

/// Runs `first` and the queued commands, then commits them together. Returns an error if no further
/// batch can run.
async fn batch(
    session: &mut Session,
    first: Work,
    queue: &mut mpsc::Receiver<Work>,
    committed: &Committed,
    batch_max: usize,
    commit_delay: &mut CommitDelay,
) -> Result<(), String> {
    let mut acks: Vec<Ack> = Vec::new();
    let mut next = Some(first);
    let mut room = batch_max.max(1);
    commit_delay.begin();
    while let Some(work) = next.take() {
        acks.extend(command(session, work).await);
        room -= 1;
        if room > 0 && !session.has_failed() {
            next = queue.try_recv().ok();
            let commands = batch_max.max(1) - room;
            while next.is_none() && commit_delay.should_wait(commands) {
                // This uses the runtime's clock, not the Clock port: no result depends on this
                // wait, and the simulation has its own backend. It does not wait on the queue
                // itself, because the delay exists to avoid a wake-up for each command.
                #[allow(clippy::disallowed_methods)]
                tokio::time::sleep(commit_delay::PAUSE).await;
                next = queue.try_recv().ok();
                commit_delay.record_pause(commands, next.is_some());
            }
        }
    }
    match AssertUnwindSafe(session.commit()).catch_unwind().await {
        Ok(Ok((events, signals))) => {
            let published = catch_unwind(AssertUnwindSafe(|| committed.publish(events, &signals)));
            // The callers are notified first, even if publishing panicked: their changes are
            // stored.
            acks.into_iter().for_each(|ack| call_back(|| ack(Ok(()))));
            // If the signals were not sent, their receivers would wait forever. So the writer ends;
            // at the next start the daemon reads every inbox.
            published.unwrap_or_else(|panic| resume_unwind(panic));
            Ok(())
        }
        Ok(Err(error)) => {
            if let Some(batches) = committed.failed(&error.to_string()) {
                tracing::error!(%error, batches, commands = acks.len(), "a batch could not be committed");
            }
            acks.into_iter().for_each(|ack| call_back(|| ack(Err(fault::copy(&error)))));
            match error {
                StoreError::Broken(what) => Err(what),
                _ => Ok(()),
            }
        }
        Err(panic) => {
            let error = StoreError::Broken(format!("it failed in a commit: {}", panic_text(&*panic)));
            acks.into_iter().for_each(|ack| call_back(|| ack(Err(fault::copy(&error)))));
            resume_unwind(panic)
        }
    }
}

/// Calls one callback. A panic in it affects no other caller.
fn call_back(callback: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("the result callback of a command panicked");
    }
}

/// Runs one command. Returns the callback for the result of the batch, unless the command refused.
async fn command(session: &mut Session, work: Work) -> Option<Ack> {
    let writes: &mut dyn Writes = session;
    // The handle catches panics of its commands. This catches panics of other users of the backend.
    let outcome = AssertUnwindSafe(async { work(writes).await }).catch_unwind().await;
    // If `accept` or `reject` fails, the session keeps the error and the batch fails.
    match outcome {
        Ok(Ok(ack)) => {
            if let Err(error) = session.accept().await {
                tracing::debug!(%error, "accepting a command failed");
            }
            Some(ack)
        }
        Ok(Err(nack)) => {
            if let Err(error) = session.reject().await {
                tracing::debug!(%error, "undoing a command failed");
            }
            call_back(nack);
            None
        }
        Err(_) => {
            tracing::error!("a command panicked; its writes are undone");
            if let Err(error) = session.reject().await {
                tracing::debug!(%error, "undoing a command failed");
            }
            None
        }
    }
}
