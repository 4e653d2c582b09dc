//! Turns refusals into gRPC statuses. The whole refusal travels as JSON in a trailer, so that every transport shows the same
//! hint (docs/design.md). It also travels as `google.rpc.Status` in `grpc-status-details-bin`, which generic gRPC tools show
//! (AIP-193). The few message types are written by hand here.

use std::collections::BTreeMap;

use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal};
use ghost_proto::REFUSAL_TRAILER;
use prost::Message;
use serde_json::Value;
use tonic::Status;
use tonic::metadata::{BinaryMetadataKey, MetadataMap, MetadataValue};

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
fn grpc_code(code: Code) -> tonic::Code {
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
pub(crate) fn status(refusal: &Refusal) -> Status {
    status_as(code_of(refusal), refusal)
}

/// UNAUTHENTICATED, for a caller without valid credentials. No refusal code maps to this gRPC code.
pub(crate) fn unauthenticated(message: &str, hint: &str) -> Status {
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
    let details = encoded_details(code, &sent);
    let fits = words + packed(bytes.len()) + packed(details.len()) <= HEADERS_MAX;
    let details = if fits { details } else { Vec::new() };
    Status::with_details_and_metadata(code, sent.message, details.into(), trailer)
}

/// [`status`] by value, for `map_err` in the services.
#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` wants
pub(crate) fn to_status(refusal: Refusal) -> Status {
    status(&refusal)
}

/// The `domain` of an `ErrorInfo`: the package of the wire contract.
const DOMAIN: &str = "ghost.v1";
/// Prefix of the type URL in [`Any`].
const TYPES: &str = "type.googleapis.com/";

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    /// The gRPC code.
    #[prost(int32, tag = "1")]
    code: i32,
    /// The same text as the message of the gRPC status; clients compare the two.
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    /// The refusal's code in upper case.
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    /// The hint, and those details that are strings, numbers or booleans.
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

/// `google.rpc.BadRequest`
#[derive(Clone, PartialEq, Message)]
struct BadRequest {
    #[prost(message, repeated, tag = "1")]
    field_violations: Vec<FieldViolation>,
}

/// `google.rpc.BadRequest.FieldViolation`
#[derive(Clone, PartialEq, Message)]
struct FieldViolation {
    #[prost(string, tag = "1")]
    field: String,
    #[prost(string, tag = "2")]
    description: String,
}

/// The refusal as an encoded [`RpcStatus`] with this gRPC code.
fn encoded_details(code: tonic::Code, refusal: &Refusal) -> Vec<u8> {
    let mut metadata = BTreeMap::new();
    if let Some(Value::Object(facts)) = &refusal.details {
        for (name, fact) in facts {
            let text = match fact {
                Value::String(text) => text.clone(),
                Value::Number(_) | Value::Bool(_) => fact.to_string(),
                Value::Null | Value::Array(_) | Value::Object(_) => continue,
            };
            metadata.insert(name.clone(), text);
        }
    }
    let field = metadata.get("field").cloned();
    if let Some(hint) = &refusal.hint {
        metadata.insert("hint".to_owned(), hint.clone());
    }
    let reason = refusal.code.as_str().to_ascii_uppercase();
    let mut details = vec![any("google.rpc.ErrorInfo", &ErrorInfo { reason, domain: DOMAIN.to_owned(), metadata })];
    if let Some(field) = field {
        let description = refusal.message.clone();
        let bad = BadRequest { field_violations: vec![FieldViolation { field, description }] };
        details.push(any("google.rpc.BadRequest", &bad));
    }
    RpcStatus { code: code.into(), message: refusal.message.clone(), details }.encode_to_vec()
}

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("{TYPES}{name}"), value: message.encode_to_vec() }
}

#[cfg(test)]
mod refusal_tests {
    use super::*;

    // covers: CP-10
    #[test]
    fn every_code_has_a_status_and_its_trailer_reads_back() {
        for &code in Code::ALL {
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
        let decoded = RpcStatus::decode(sent.details()).unwrap();
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

#[cfg(test)]
mod details_tests {
    use ghost_domain::Code;
    use serde_json::json;

    use super::*;

    #[test]
    fn hand_written_messages_match_the_encoding_of_google_rpc() {
        let refusal = Refusal::new(Code::InvalidArguments, "limit is 0")
            .hint("leave it out")
            .details(json!({ "field": "limit", "version": 3, "list": [1] }));
        let status = RpcStatus::decode(&*encoded_details(tonic::Code::InvalidArgument, &refusal)).unwrap();
        assert_eq!((status.code, status.message.as_str()), (3, "limit is 0"));
        let names: Vec<_> = status.details.iter().map(|any| any.type_url.as_str()).collect();
        assert_eq!(names, ["type.googleapis.com/google.rpc.ErrorInfo", "type.googleapis.com/google.rpc.BadRequest"]);
        let info = ErrorInfo::decode(&*status.details[0].value).unwrap();
        assert_eq!((info.reason.as_str(), info.domain.as_str()), ("INVALID_ARGUMENTS", "ghost.v1"));
        let facts: Vec<_> = info.metadata.iter().map(|(name, fact)| (name.as_str(), fact.as_str())).collect();
        assert_eq!(facts, [("field", "limit"), ("hint", "leave it out"), ("version", "3")]);
        let bad = BadRequest::decode(&*status.details[1].value).unwrap();
        assert_eq!(bad.field_violations[0].field, "limit");
        // Field 1 is a varint; fields 2 and 3 have a length: the bytes that any other client reads.
        let plain = encoded_details(tonic::Code::NotFound, &Refusal::new(Code::NotFound, "no"));
        assert_eq!(plain[..6], [0x08, 5, 0x12, 2, b'n', b'o']);
        assert_eq!(plain[6], 0x1a);
    }
}
