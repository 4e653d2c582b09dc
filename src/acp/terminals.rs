//! The open terminals of a run.
//!
//! None may be left when the run is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::bounds::TERMINALS_MAX;
use crate::terminal::Terminal;
use crate::time::within;

pub(crate) struct Terminals {
    open: Mutex<Open>,
    room: Arc<Semaphore>,
}

#[derive(Default)]
struct Open {
    number: u64,
    all: HashMap<String, (Arc<dyn Terminal>, OwnedSemaphorePermit)>,
}

impl Terminals {
    pub(crate) fn new() -> Self {
        Self { open: Mutex::default(), room: Arc::new(Semaphore::new(TERMINALS_MAX)) }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Every change is one call, so a poisoned lock is safe to use.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one more terminal; `None` if too many are open.
    pub(crate) fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// Keeps a terminal. Returns its id.
    pub(crate) fn add(&self, terminal: Box<dyn Terminal>, room: OwnedSemaphorePermit) -> String {
        let mut open = self.open();
        open.number += 1;
        let id = format!("terminal-{}", open.number);
        open.all.insert(id.clone(), (Arc::from(terminal), room));
        id
    }

    /// The terminal `id`.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<dyn Terminal>> {
        self.open().all.get(id).map(|(terminal, _)| Arc::clone(terminal))
    }

    /// Takes the terminal `id` out: the agent cannot name it any more.
    pub(crate) fn take(&self, id: &str) -> Option<Arc<dyn Terminal>> {
        self.open().all.remove(id).map(|(terminal, _)| terminal)
    }

    /// Ends all commands. Their output can still be read.
    pub(crate) async fn kill_all(&self) {
        let all: Vec<_> = self.open().all.values().map(|(terminal, _)| Arc::clone(terminal)).collect();
        join_all(all.iter().map(|terminal| terminal.kill())).await;
    }

    /// Releases all terminals. One that does not end within `grace` is dropped.
    pub(crate) async fn release_all(&self, grace: Duration) {
        let all: Vec<_> = self.open().all.drain().map(|(_, (terminal, _))| terminal).collect();
        let released = join_all(all.iter().map(|terminal| terminal.release()));
        if within(grace, released).await.is_none() {
            tracing::warn!(terminals = all.len(), "terminals were not released in time; they are dropped");
        }
    }
}
