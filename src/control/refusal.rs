//! Turns refusals into gRPC statuses. The whole refusal travels as JSON in a trailer, so that every
//! transport shows the same hint (CP-10, docs/design.md). It also travels as `google.rpc` details,
//! which generic gRPC tools show.

use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal};
use ghost_proto::REFUSAL_TRAILER;
use tonic::Status;
use tonic::metadata::{BinaryMetadataKey, MetadataMap, MetadataValue};

use crate::details;

/// Largest size of the trailer, in bytes. Some clients accept only 8 KiB of headers in all.
const TRAILER_MAX: usize = 6 * 1024;
/// Largest size of the message, the trailer and the `google.rpc` details together, in bytes as they
/// are encoded. Above it the details are omitted.
const HEADERS_MAX: usize = 7 * 1024;

/// The gRPC code of a refusal. A conflict about a version is ABORTED: the client must read again before
/// it writes (AIP-154).
fn code_of(refusal: &Refusal) -> tonic::Code {
    let has_version = || refusal.details.as_ref().is_some_and(|details| details.get("version").is_some());
    match refusal.code {
        Code::Conflict if has_version() => tonic::Code::Aborted,
        code => grpc_code(code),
    }
}

/// The usual gRPC code for a refusal's code.
#[must_use]
pub fn grpc_code(code: Code) -> tonic::Code {
    match code {
        Code::NotFound | Code::UnknownTool => tonic::Code::NotFound,
        Code::AccessDenied | Code::PathDenied | Code::PolicyDenied | Code::ApprovalDenied => {
            tonic::Code::PermissionDenied
        }
        Code::InvalidArguments | Code::PayloadMismatch => tonic::Code::InvalidArgument,
        Code::CursorAhead => tonic::Code::OutOfRange,
        Code::Conflict | Code::ApprovalPending | Code::CursorExpired => tonic::Code::FailedPrecondition,
        Code::Timeout => tonic::Code::DeadlineExceeded,
        Code::Cancelled => tonic::Code::Cancelled,
        Code::RateLimited
        | Code::TooLarge
        | Code::InboxFull
        | Code::HopLimit
        | Code::BudgetExhausted
        | Code::LoopGuard => tonic::Code::ResourceExhausted,
        Code::Unavailable => tonic::Code::Unavailable,
        Code::Internal | Code::ExecFailed => tonic::Code::Internal,
        Code::OutcomeUnknown => tonic::Code::Unknown,
        Code::Unsupported => tonic::Code::Unimplemented,
    }
}

/// A refusal as a gRPC status with its trailer.
#[must_use]
pub fn status(refusal: &Refusal) -> Status {
    status_as(code_of(refusal), refusal)
}

/// UNAUTHENTICATED, for a caller without valid credentials. No refusal code maps to this gRPC code.
#[must_use]
pub fn unauthenticated(message: &str, hint: &str) -> Status {
    status_as(tonic::Code::Unauthenticated, &Refusal::new(Code::AccessDenied, message).hint(hint))
}

/// A refusal as a status with a gRPC code other than its usual one.
pub(crate) fn status_as(code: tonic::Code, refusal: &Refusal) -> Status {
    let mut sent = refusal.clone();
    sent.message = clip(&sent.message, 1_000);
    sent.hint = sent.hint.map(|hint| clip(&hint, 1_000));
    let mut bytes = serde_json::to_vec(&sent).unwrap_or_default();
    if bytes.len() > TRAILER_MAX {
        // Only the details can be this long; message and hint are truncated above.
        sent.details = None;
        bytes = serde_json::to_vec(&sent).unwrap_or_default();
    }
    let mut trailer = MetadataMap::new();
    if let Ok(key) = BinaryMetadataKey::from_bytes(REFUSAL_TRAILER.as_bytes()) {
        trailer.insert_bin(key, MetadataValue::from_bytes(&bytes));
    }
    // Trailer and details travel in base64. Non-ASCII bytes of the message are percent-encoded.
    let packed = |length: usize| length.div_ceil(3) * 4;
    let words: usize = sent.message.bytes().map(|byte| if byte.is_ascii() { 1 } else { 3 }).sum();
    let details = details::encoded(code, &sent);
    let fits = words + packed(bytes.len()) + packed(details.len()) <= HEADERS_MAX;
    let details = if fits { details } else { Vec::new() };
    Status::with_details_and_metadata(code, sent.message, details.into(), trailer)
}

/// [`status`] by value, for `map_err` in the services.
#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
pub fn to_status(refusal: Refusal) -> Status {
    status(&refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: CP-10
    #[test]
    fn every_code_has_a_status_and_its_trailer_reads_back() {
        for code in Code::ALL {
            let refusal = Refusal::new(code, "what").hint("do this");
            let status = status(&refusal);
            assert_ne!(status.code(), tonic::Code::Ok);
            let bytes = status.metadata().get_bin(REFUSAL_TRAILER).unwrap().to_bytes().unwrap();
            assert_eq!(serde_json::from_slice::<Refusal>(&bytes).unwrap(), refusal);
        }
    }

    #[test]
    fn another_version_is_aborted_and_other_conflicts_are_not() {
        let conflict = Refusal::new(Code::Conflict, "it is at version 2, not at 1");
        assert_eq!(status(&conflict).code(), tonic::Code::FailedPrecondition);
        let stale = conflict.details(serde_json::json!({ "key": "plan", "version": 2 }));
        assert_eq!(status(&stale).code(), tonic::Code::Aborted);
    }

    #[test]
    fn google_rpc_details_are_sent_if_they_fit() {
        use prost::Message as _;
        let refusal = Refusal::new(Code::NotFound, "there is no agent `adda`").hint("did you mean `ada`?");
        let sent = status(&refusal);
        let decoded = details::RpcStatus::decode(sent.details()).unwrap();
        assert_eq!((decoded.code, decoded.message.as_str()), (5, sent.message()));
        let long = refusal.details(serde_json::json!("y".repeat(5_600)));
        let sent = status(&long);
        assert!(sent.details().is_empty() && sent.metadata().get_bin(REFUSAL_TRAILER).is_some());
    }

    #[test]
    fn long_details_are_left_out_and_the_message_stays() {
        let refusal = Refusal::new(Code::Conflict, "x".repeat(20_000)).details(serde_json::json!("y".repeat(20_000)));
        let status = status(&refusal);
        let bytes = status.metadata().get_bin(REFUSAL_TRAILER).unwrap().to_bytes().unwrap();
        assert!(bytes.len() < TRAILER_MAX);
    }
}
