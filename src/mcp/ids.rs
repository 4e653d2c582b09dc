//! The numbers of requests.

use rmcp::model::{NumberOrString, RequestId};

/// The number of a request of this side. Some servers send it back as a text.
pub(crate) fn number(id: &RequestId) -> Option<i64> {
    match id {
        NumberOrString::Number(number) => Some(*number),
        NumberOrString::String(text) => text.parse().ok(),
    }
}
