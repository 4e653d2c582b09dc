//! Requests that a client may repeat. The answer is stored in the same transaction as the effect.
//! If the daemon dies before it answers, the client sends the request again and gets the stored
//! answer (`docs/design.md`, "Arrive").

use serde::{Deserialize, Serialize};

use crate::ids::RequestId;
use crate::party::Party;
use crate::time::Timestamp;

/// Identifies one mutation by one principal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestKey {
    /// The principal that sent the request.
    pub principal: Party,
    /// Id of the request, chosen by the principal.
    pub request_id: RequestId,
    /// The RPC method. The same id with another method is a conflict.
    pub method: String,
    /// Hash of the request's content. The same id with other content is a conflict.
    pub digest: String,
}

/// The stored answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// The request that was answered.
    pub key: RequestKey,
    /// The answer as JSON text, in the form of the method.
    pub answer: String,
    /// When the request was answered.
    pub at: Timestamp,
}
