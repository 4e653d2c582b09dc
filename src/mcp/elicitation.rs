//! Questions of a server to its user. The answer goes to the server: it must never be a secret.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

/// A question of a server. Its texts are from the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Elicitation {
    /// The question, at most 4 KiB.
    pub message: String,
    /// The schema of the answer: an object with flat properties. It passes [`crate::check_schema`].
    pub schema: Value,
    /// The label of the call that the question belongs to (`CallOptions::label`). `None` if the call has none, or if
    /// several calls wait and the server does not say which one it means.
    pub call: Option<Arc<str>>,
    /// What is wrong with the answer before; `None` for the first time.
    pub problem: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The user answers: an object as the schema wants it. Properties with a default may be missing.
    Accept(Value),
    /// The user says no.
    Decline,
    /// The user says nothing.
    Cancel,
}

/// Who answers the questions of a server.
#[async_trait]
pub trait ElicitationHandler: Send + Sync + 'static {
    /// Answers. The future is dropped when the call or the connection ends, and after `Limits::answer_timeout`.
    async fn ask(&self, question: Elicitation) -> Answer;
}
