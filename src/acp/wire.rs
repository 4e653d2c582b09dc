//! What the reading and the writing half of a connection know of each other.
//!
//! The channels of the protocol's library have no bound. So nothing is put into them that is not counted here: at
//! most [`OPEN_MAX`] requests of the agent are without a written answer, and only awaited answers are let in.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_client_protocol::RawJsonRpcId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::bounds::OPEN_MAX;
use crate::why::Why;

#[derive(Debug, Default)]
pub(crate) struct Wire {
    state: Mutex<State>,
    /// Notified when an answer was written.
    answered: Notify,
    /// Cancelled when the agent's input cannot be written any more.
    broken: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// Requests of the agent without a written answer.
    open: usize,
    /// Our requests without an answer.
    awaited: HashSet<RawJsonRpcId>,
    /// Whether the prompt is in the agent's pipe.
    prompt_given: bool,
    /// The version of the protocol that the agent answered.
    version: Option<u64>,
    /// Why the connection ended.
    why: Option<Why>,
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one statement, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request of the agent. Waits while too many are open. For one caller at a time.
    pub(crate) async fn admit(&self) {
        loop {
            // A notification before the wait is kept, so nothing between the two is missed.
            let answered = self.answered.notified();
            {
                let mut state = self.state();
                if state.open < OPEN_MAX {
                    state.open += 1;
                    return;
                }
            }
            answered.await;
        }
    }

    /// An answer to a request of the agent was written, or cannot be.
    pub(crate) fn answered(&self) {
        let mut state = self.state();
        state.open = state.open.saturating_sub(1);
        drop(state);
        self.answered.notify_one();
    }

    /// We are about to send the request `id`.
    pub(crate) fn awaits(&self, id: RawJsonRpcId) {
        self.state().awaited.insert(id);
    }

    /// Whether an answer to the request `id` is awaited. It is awaited once.
    pub(crate) fn takes(&self, id: &RawJsonRpcId) -> bool {
        self.state().awaited.remove(id)
    }

    /// The prompt is in the agent's pipe.
    pub(crate) fn prompt_given(&self) {
        self.state().prompt_given = true;
    }

    /// Whether the prompt is in the agent's pipe.
    pub(crate) fn was_prompt_given(&self) -> bool {
        self.state().prompt_given
    }

    /// The agent answered with this version of the protocol.
    pub(crate) fn set_version(&self, version: u64) {
        self.state().version = Some(version);
    }

    /// The version of the protocol that the agent answered.
    pub(crate) fn version(&self) -> Option<u64> {
        self.state().version
    }

    /// The connection ends. The first reason counts, but of a process that ends, the pipes close in any order.
    pub(crate) fn ends(&self, why: Why) {
        let mut state = self.state();
        if matches!(state.why, None | Some(Why::Write(_))) {
            state.why = Some(why);
        }
    }

    /// Why the connection ended.
    pub(crate) fn why(&self) -> Option<Why> {
        self.state().why.clone()
    }

    /// The agent's input cannot be written any more.
    pub(crate) fn breaks(&self) {
        self.broken.cancel();
    }

    /// Completes when the agent's input cannot be written any more.
    pub(crate) async fn broken(&self) {
        self.broken.cancelled().await;
    }
}
