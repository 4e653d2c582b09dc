//! The writer: the one task that changes the database. Commands that are queued while a commit is on its way to the
//! disk share the next one.
//!
//! Must never: acknowledge or publish before COMMIT, wait for company that does not come, die of a command, or end unheard.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};

use super::commit_delay::{self, CommitDelay};
use super::fault;
use super::session::Session;
use crate::handle::{Ack, Committed, Work};
use crate::{StoreError, Writes};

/// How it stands with the writer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It takes commands.
    Runs,
    /// It was told to end, and has.
    Closed,
    /// It has ended because it could not go on; why.
    Broken(String),
}

impl Standing {
    /// Why it could not go on.
    pub(super) fn why(&self) -> Option<&String> {
        match self {
            Self::Broken(why) => Some(why),
            Self::Runs | Self::Closed => None,
        }
    }
}

/// Runs until the queue is closed and empty, then closes the connection; or until it cannot go on. Either is told to `ended`.
pub(super) async fn run(
    session: Session,
    queue: mpsc::Receiver<Work>,
    stop: watch::Receiver<bool>,
    committed: Committed,
    batch_max: usize,
    ended: watch::Sender<Standing>,
) {
    let worked = AssertUnwindSafe(work(session, queue, stop, committed, batch_max)).catch_unwind().await;
    let end = match worked {
        Ok(Ok(())) => Standing::Closed,
        Ok(Err(what)) => Standing::Broken(what),
        Err(panic) => Standing::Broken(format!("its writer panicked: {}", words(&*panic))),
    };
    ended.send_replace(end);
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without words")
}

/// Gives an error, in words, if the session is of no use any more.
async fn work(
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
            // Also when the sender is gone: then so is everyone who could queue a command.
            _ = stop.changed(), if !queue.is_closed() => {
                queue.close();
                continue;
            }
        };
        let Some(first) = first else { break };
        batch(&mut session, first, &mut queue, &committed, batch_max, &mut commit_delay).await?;
    }
    if let Err(error) = session.close().await {
        tracing::warn!(%error, "the database did not close well; what was acknowledged is in it");
    }
    Ok(())
}

/// Runs `first` and what else is queued, and commits it all at once. Gives an error if no other batch can be.
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
            while next.is_none() && commit_delay.worth_waiting(commands) {
                // The runtime's clock and no Clock port: nothing of what happens depends on this wait, and simulation has
                // a store of its own. Not the queue's own event: a wake-up for each command is what is to be saved.
                #[allow(clippy::disallowed_methods)]
                tokio::time::sleep(commit_delay::PAUSE).await;
                next = queue.try_recv().ok();
                commit_delay.waited(commands, next.is_some());
            }
        }
    }
    match AssertUnwindSafe(session.commit()).catch_unwind().await {
        Ok(Ok((events, signals))) => {
            let published = catch_unwind(AssertUnwindSafe(|| committed.publish(events, &signals)));
            // First, whatever became of that: it is kept.
            acks.into_iter().for_each(|ack| tell(|| ack(Ok(()))));
            // Whoever was not told would wait for ever. A start looks at everything.
            published.unwrap_or_else(|panic| resume_unwind(panic));
            Ok(())
        }
        Ok(Err(error)) => {
            if let Some(batches) = committed.failed(&error.to_string()) {
                tracing::error!(%error, batches, commands = acks.len(), "a batch could not be committed");
            }
            acks.into_iter().for_each(|ack| tell(|| ack(Err(fault::again(&error)))));
            match error {
                StoreError::Broken(what) => Err(what),
                _ => Ok(()),
            }
        }
        Err(panic) => {
            let error = StoreError::Broken(format!("it failed in a commit: {}", words(&*panic)));
            acks.into_iter().for_each(|ack| tell(|| ack(Err(fault::again(&error)))));
            resume_unwind(panic)
        }
    }
}

/// Tells one caller. What panics at that is no other's loss.
fn tell(caller: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(caller)).is_err() {
        tracing::error!("a command panicked at what became of it");
    }
}

/// Runs one command. Gives whom to tell of the batch's fate, unless the command refused.
async fn command(session: &mut Session, work: Work) -> Option<Ack> {
    let writes: &mut dyn Writes = session;
    // The handle catches panics of its own callers; this is for everyone else's.
    let outcome = AssertUnwindSafe(async { work(writes).await }).catch_unwind().await;
    // An error of either ending is kept by the session and fails the batch.
    match outcome {
        Ok(Ok(ack)) => {
            if let Err(error) = session.accept().await {
                tracing::debug!(%error, "a command could not be accepted");
            }
            Some(ack)
        }
        Ok(Err(nack)) => {
            if let Err(error) = session.reject().await {
                tracing::debug!(%error, "a command could not be undone by itself");
            }
            tell(nack);
            None
        }
        Err(_) => {
            tracing::error!("a command panicked; its writes are undone");
            if let Err(error) = session.reject().await {
                tracing::debug!(%error, "a command could not be undone by itself");
            }
            None
        }
    }
}
