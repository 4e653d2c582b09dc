//! The writer: the only task that changes the database. It collects queued commands into a batch
//! and commits them together (group commit): commands that arrive during a commit share the next
//! one.
//!
//! The writer must never acknowledge or publish before COMMIT, or keep waiting when no command
//! arrives. It must never end because a command failed or panicked, or end without setting its
//! [`WriterState`].

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};

use super::commit_delay::{self, CommitDelay};
use super::fault;
use super::session::Session;
use crate::handle::{Ack, Committed, Work};
use crate::{StoreError, Writes};

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

/// What ends the writer, from least to most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    #[default]
    No,
    /// A query has found damage.
    Damaged,
    /// The store closes.
    Closing,
}

/// How the rest of the backend ends the writer.
#[derive(Default)]
pub(super) struct Alarm {
    damage: Arc<OnceLock<StoreError>>,
    stop: watch::Sender<Stop>,
}

impl Alarm {
    /// Makes the writer run the queued commands, close its connection and end.
    pub(super) fn close(&self) {
        self.stop.send_replace(Stop::Closing);
    }

    /// Ends the writer if `error` is damage, which a query has found. From now on no command is acknowledged.
    pub(super) fn raise(&self, error: &StoreError) {
        if matches!(error, StoreError::Damaged { .. }) {
            // The first damage is the cause; later ones are the same or its consequences.
            let _ = self.damage.set(fault::copy(error));
            self.stop.send_modify(|stop| *stop = Stop::Damaged.max(*stop));
        }
    }

    /// What the writer sees of it.
    pub(super) fn orders(&self) -> Orders {
        Orders { damage: Arc::clone(&self.damage), stop: self.stop.subscribe() }
    }
}

/// The writer's side of an [`Alarm`].
pub(super) struct Orders {
    damage: Arc<OnceLock<StoreError>>,
    stop: watch::Receiver<Stop>,
}

impl Orders {
    /// Returns the damage that a query has found.
    fn check(&self) -> Result<(), StoreError> {
        self.damage.get().map_or(Ok(()), |damage| Err(fault::copy(damage)))
    }

    /// Waits until the writer must stop for this reason or a stronger one.
    async fn wait(&mut self, least: Stop) {
        // This returns too when the sender is dropped. Then no caller is left that could queue a command.
        let _ = self.stop.wait_for(|stop| *stop >= least).await;
    }
}

/// Runs until the queue is closed and empty, then closes the connection; or until a failure ends
/// it. Sets `state` in both cases, and drops it at the end.
pub(super) async fn run(
    mut session: Session,
    queue: mpsc::Receiver<Work>,
    mut orders: Orders,
    committed: Committed,
    batch_max: usize,
    state: watch::Sender<WriterState>,
) {
    let batches = run_batches(&mut session, queue, &mut orders, committed, batch_max);
    let outcome = AssertUnwindSafe(batches).catch_unwind().await;
    let end = match outcome {
        Ok(Ok(())) => match session.close().await {
            Err(error @ StoreError::Damaged { .. }) => WriterState::Broken(error),
            Err(error) => {
                tracing::warn!(%error, "closing the database failed; all acknowledged changes are stored");
                WriterState::Closed
            }
            Ok(()) => WriterState::Closed,
        },
        Ok(Err(error)) => {
            let kept = fault::copy(&error);
            state.send_replace(WriterState::Broken(error));
            // The last connection that is closed removes the log, so this one waits for those of the readers.
            orders.wait(Stop::Closing).await;
            match kept {
                StoreError::Damaged { .. } => session.leave_open(),
                _ => drop(session.close().await),
            }
            return;
        }
        Err(panic) => WriterState::Broken(StoreError::Broken(format!("its writer panicked: {}", panic_text(&*panic)))),
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
    session: &mut Session,
    mut queue: mpsc::Receiver<Work>,
    orders: &mut Orders,
    committed: Committed,
    batch_max: usize,
) -> Result<(), StoreError> {
    let mut commit_delay = CommitDelay::default();
    loop {
        let first = tokio::select! {
            biased;
            work = queue.recv() => work,
            () = orders.wait(Stop::Damaged), if !queue.is_closed() => {
                queue.close();
                continue;
            }
        };
        let Some(first) = first else { return orders.check() };
        batch(session, first, &mut queue, orders, &committed, batch_max, &mut commit_delay).await?;
    }
}

/// Runs `first` and the queued commands, then commits them together. Returns an error if no further
/// batch can run.
async fn batch(
    session: &mut Session,
    first: Work,
    queue: &mut mpsc::Receiver<Work>,
    orders: &Orders,
    committed: &Committed,
    batch_max: usize,
    commit_delay: &mut CommitDelay,
) -> Result<(), StoreError> {
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
    let outcome = AssertUnwindSafe(session.commit()).catch_unwind().await;
    match outcome.map(|committed| committed.and_then(|found| orders.check().map(|()| found))) {
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
                StoreError::Broken(_) | StoreError::Damaged { .. } | StoreError::Gone { .. } => Err(error),
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
