//! The writer: the one task that changes the database. Commands that are queued while a commit is on its way to the
//! disk share the next one.
//!
//! Must never: acknowledge or publish before COMMIT, wait for company that does not come, or die of a command.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};

use super::company::{self, Company};
use super::fault;
use super::session::Session;
use crate::Writes;
use crate::handle::{Ack, Committed, Work};

/// Runs until the queue is closed and empty; then closes the connection and drops `ended`.
pub(super) async fn run(
    mut session: Session,
    mut queue: mpsc::Receiver<Work>,
    mut stop: watch::Receiver<bool>,
    committed: Committed,
    batch_max: usize,
    ended: watch::Sender<bool>,
) {
    let mut company = Company::default();
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
        batch(&mut session, first, &mut queue, &committed, batch_max, &mut company).await;
    }
    if let Err(error) = session.close().await {
        tracing::warn!(%error, "the database did not close well; what was acknowledged is in it");
    }
    ended.send_replace(true);
}

/// Runs `first` and what else is queued, and commits it all at once.
async fn batch(
    session: &mut Session,
    first: Work,
    queue: &mut mpsc::Receiver<Work>,
    committed: &Committed,
    batch_max: usize,
    company: &mut Company,
) {
    let mut acks: Vec<Ack> = Vec::new();
    let mut next = Some(first);
    let mut room = batch_max.max(1);
    company.begin();
    while let Some(work) = next.take() {
        acks.extend(command(session, work).await);
        room -= 1;
        if room > 0 && !session.has_failed() {
            next = queue.try_recv().ok();
            let commands = batch_max.max(1) - room;
            while next.is_none() && company.worth_waiting(commands) {
                // The runtime's clock and no Clock port: nothing of what happens depends on this wait, and simulation has
                // a store of its own. Not the queue's own event: a wake-up for each command is what is to be saved.
                #[allow(clippy::disallowed_methods)]
                tokio::time::sleep(company::LOOK).await;
                next = queue.try_recv().ok();
                company.waited(commands, next.is_some());
            }
        }
    }
    match session.commit().await {
        Ok((events, signals)) => {
            committed.publish(events, &signals);
            acks.into_iter().for_each(|ack| ack(Ok(())));
        }
        Err(error) => {
            tracing::error!(%error, commands = acks.len(), "a batch could not be committed; nothing of it was kept");
            acks.into_iter().for_each(|ack| ack(Err(fault::again(&error))));
        }
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
            nack();
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
