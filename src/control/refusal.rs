//! The one place where refusals become gRPC statuses. The whole refusal travels in a trailer, so that the same hint shows
//! everywhere (CP-10, DESIGN.md section 8).

use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal};
use ghost_proto::REFUSAL_TRAILER;
use tonic::Status;
use tonic::metadata::{BinaryMetadataKey, MetadataMap, MetadataValue};

/// Bytes of the trailer: foreign clients accept 8 KiB of headers in all.
const TRAILER_MAX: usize = 6 * 1024;

/// The gRPC code of a refusal.
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

/// A refusal as a status with its trailer.
#[must_use]
pub fn status(refusal: &Refusal) -> Status {
    status_as(grpc_code(refusal.code), refusal)
}

/// A caller that has not shown who it is: the gRPC code is that of no other refusal.
#[must_use]
pub fn unauthenticated(message: &str, hint: &str) -> Status {
    status_as(tonic::Code::Unauthenticated, &Refusal::new(Code::AccessDenied, message).hint(hint))
}

/// A refusal under a gRPC code that is not its usual one.
pub(crate) fn status_as(code: tonic::Code, refusal: &Refusal) -> Status {
    let mut sent = refusal.clone();
    sent.message = clip(&sent.message, 1_000);
    sent.hint = sent.hint.map(|hint| clip(&hint, 1_000));
    let mut bytes = serde_json::to_vec(&sent).unwrap_or_default();
    if bytes.len() > TRAILER_MAX {
        // The facts are what may be long; the words are bounded.
        sent.details = None;
        bytes = serde_json::to_vec(&sent).unwrap_or_default();
    }
    let mut trailer = MetadataMap::new();
    if let Ok(key) = BinaryMetadataKey::from_bytes(REFUSAL_TRAILER.as_bytes()) {
        trailer.insert_bin(key, MetadataValue::from_bytes(&bytes));
    }
    Status::with_metadata(code, sent.message, trailer)
}

/// For `map_err` at the edge of every service.
#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
pub fn to_status(refusal: Refusal) -> Status {
    status(&refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn long_facts_are_left_out_and_words_stay() {
        let refusal = Refusal::new(Code::Conflict, "x".repeat(20_000)).details(serde_json::json!("y".repeat(20_000)));
        let status = status(&refusal);
        let bytes = status.metadata().get_bin(REFUSAL_TRAILER).unwrap().to_bytes().unwrap();
        assert!(bytes.len() < TRAILER_MAX);
    }
}
