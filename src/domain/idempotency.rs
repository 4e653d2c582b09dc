//! Requests that may be sent twice: the answer is stored in the transaction of the effect, so that a client whose
//! daemon died before answering asks again and gets the same answer (DESIGN.md section 2, "Arrive").

use serde::{Deserialize, Serialize};

use crate::ids::RequestId;
use crate::party::Party;
use crate::time::Timestamp;

/// Names one mutation of one principal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestKey {
    /// Who asks.
    pub principal: Party,
    /// Its own name for the request.
    pub request_id: RequestId,
    /// The method. The same id under another method is a conflict, not a repetition.
    pub method: String,
    /// Hash of the request's content: the same id with other content is a conflict, too.
    pub digest: String,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// The request.
    pub key: RequestKey,
    /// The answer, as JSON text that the method understands.
    pub answer: String,
    /// When.
    pub at: Timestamp,
}
