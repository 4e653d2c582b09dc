//! Rows and queries of stored answers, for requests that may be sent twice.

use ghost_domain::{Party, RequestId, StoredAnswer};

use super::prelude::*;

record! {
    answer: StoredAnswer, "requests";
    key principal: Party = &answer.key.principal, request_id: RequestId = &answer.key.request_id;
    at
}

functions! {
    /// The stored answer to a request of this principal, for any method.
    get request_get(principal: &Party, request_id: &RequestId) -> Option<StoredAnswer>:
        &(principal.clone(), request_id.clone());
    /// Stores the answer to a request.
    put request_put(answer: &StoredAnswer) -> (): answer;
}
