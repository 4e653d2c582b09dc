//! The connections to MCP servers that are open, one for each server and agent, and the calls over each, for the questions
//! that the server puts to its user (elicitation).
//!
//! A server acts for one agent alone, so it must never share a process or a session with that of another agent. A question
//! without a call of an agent must never reach an operator, who could not judge it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ghost_domain::restart::RestartWindow;
use ghost_domain::{AgentId, Timestamp};
use ghost_mcp::{Answer, Connection, Elicitation, ElicitationHandler};
use tokio::task::JoinHandle;

use crate::piped::PipedProcess;

/// Takes tools of a toolbox away, by full name, with the reasons. Returns those that were there.
///
/// A function, because the table of tools imports this file.
type Withdraw = dyn Fn(&str, &BTreeMap<String, String>) -> BTreeMap<String, String> + Send + Sync;

/// The connections of a world.
pub struct McpConnections {
    /// Called with what a server takes away.
    pub(super) withdraw: Box<Withdraw>,
    entries: Mutex<BTreeMap<(String, AgentId), Arc<Entry>>>,
}

/// A server as one agent reaches it.
#[derive(Default)]
pub(super) struct Entry {
    /// Held while a connection is opened, so that one call opens it and the others wait for it.
    pub(super) state: tokio::sync::Mutex<State>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl Entry {
    /// Sets the task that looks after the open connection, in place of that of an earlier one. It ends with the entry.
    pub(super) fn kept_by(&self, keeper: JoinHandle<()>) {
        let before = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).replace(keeper);
        if let Some(before) = before {
            before.abort();
        }
    }
}

impl Drop for Entry {
    /// The keeper holds the connection. Without it, the last call that uses the connection closes it.
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            keeper.abort();
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) open: Option<Arc<Open>>,
    pub(super) failures: RestartWindow,
    /// When it may be tried again; `None` at once.
    pub(super) retry_at: Option<Timestamp>,
    /// Why it is left alone until the next reload.
    pub(super) given_up: Option<String>,
}

/// A connection, with the process behind it if there is one.
pub(super) struct Linked {
    pub(super) connection: Connection,
    pub(super) process: Option<PipedProcess>,
}

/// An open connection.
pub(crate) struct Open {
    linked: Linked,
    /// The calls that a question can belong to.
    pub(crate) questions: Questions,
    /// Why tools that were trusted cannot be had, by short name.
    withdrawn: Mutex<BTreeMap<String, String>>,
    used_at: AtomicI64,
}

impl Open {
    pub(super) fn new(
        linked: Linked,
        questions: Questions,
        withdrawn: BTreeMap<String, String>,
        now: Timestamp,
    ) -> Self {
        Self { linked, questions, withdrawn: Mutex::new(withdrawn), used_at: AtomicI64::new(now.0) }
    }

    /// The connection.
    pub(crate) fn connection(&self) -> &Connection {
        &self.linked.connection
    }

    /// Why a tool cannot be had, if it cannot.
    pub(crate) fn withdrawn(&self, tool: &str) -> Option<String> {
        self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    pub(super) fn withdraw(&self, gone: BTreeMap<String, String>) {
        *self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner) = gone;
    }

    /// Completes when its process has ended; at once if it has none.
    pub(crate) async fn process_ended(&self) {
        if let Some(process) = &self.linked.process {
            process.ended().await;
        }
    }

    /// What is known of the end of its process.
    pub(crate) fn last_words(&self) -> String {
        self.linked.process.as_ref().map(PipedProcess::last_words).unwrap_or_default()
    }

    pub(crate) fn used(&self, now: Timestamp) {
        self.used_at.store(now.0, Ordering::Relaxed);
    }

    pub(super) fn used_at(&self) -> Timestamp {
        Timestamp(self.used_at.load(Ordering::Relaxed))
    }
}

impl McpConnections {
    /// No connections yet.
    pub fn new(
        withdraw: impl Fn(&str, &BTreeMap<String, String>) -> BTreeMap<String, String> + Send + Sync + 'static,
    ) -> Self {
        Self { withdraw: Box::new(withdraw), entries: Mutex::default() }
    }

    /// Closes all connections, because the toolboxes were read anew. A call that runs keeps its connection to its end.
    pub fn reset(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Closes the connections of an agent that works no more. A call that runs keeps its connection to its end.
    pub fn end_all_of(&self, agent_id: &AgentId) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, of), _| of != agent_id);
    }

    pub(super) fn entry(&self, toolbox: &str, agent_id: &AgentId) -> Arc<Entry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(entries.entry((toolbox.to_owned(), agent_id.clone())).or_default())
    }
}

/// The calls that run over a connection, by their labels. A call answers the questions that belong to it.
#[derive(Clone, Default)]
pub(crate) struct Questions(Arc<Mutex<BTreeMap<String, Arc<dyn ElicitationHandler>>>>);

/// A call that runs. Dropping it ends it here.
pub(crate) struct Running {
    questions: Questions,
    /// What stands for the call.
    pub(crate) label: Arc<str>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.questions.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&*self.label);
    }
}

impl Questions {
    /// Notes a call that begins.
    pub(crate) fn begin(&self, label: String, call: Arc<dyn ElicitationHandler>) -> Running {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(label.clone(), call);
        Running { questions: self.clone(), label: label.into() }
    }

    fn call_of(&self, label: &str) -> Option<Arc<dyn ElicitationHandler>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(label).cloned()
    }
}

#[async_trait]
impl ElicitationHandler for Questions {
    async fn ask(&self, question: Elicitation) -> Answer {
        match question.call.as_deref().and_then(|label| self.call_of(label)) {
            Some(call) => call.ask(question).await,
            None => Answer::Decline,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Accepts everything.
    struct Yes;

    #[async_trait]
    impl ElicitationHandler for Yes {
        async fn ask(&self, _: Elicitation) -> Answer {
            Answer::Accept(json!({}))
        }
    }

    // covers: TBX-09
    #[tokio::test]
    async fn a_question_without_a_call_that_runs_reaches_nobody() {
        let questions = Questions::default();
        let ask = async |call: Option<&str>| {
            let call = call.map(Arc::from);
            questions.ask(Elicitation { message: "?".into(), schema: json!({}), call, problem: None }).await
        };
        let running = questions.begin("7".to_owned(), Arc::new(Yes));
        assert_eq!(ask(Some("7")).await, Answer::Accept(json!({})));
        for call in [None, Some(""), Some("8"), Some("7 ")] {
            assert_eq!(ask(call).await, Answer::Decline, "{call:?}");
        }
        drop(running);
        assert_eq!(ask(Some("7")).await, Answer::Decline, "its call has ended");
    }
}
