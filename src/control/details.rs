//! A refusal as `google.rpc.Status` in `grpc-status-details-bin`, which generic gRPC tools show
//! (AIP-193). The few message types are written by hand here.
//!
//! The encoded status must never contain data that the refusal does not contain.

use std::collections::BTreeMap;

use ghost_domain::Refusal;
use prost::Message;
use serde_json::Value;

/// The `domain` of an `ErrorInfo`: the package of the wire contract.
const DOMAIN: &str = "ghost.v1";
/// Prefix of the type URL in [`Any`].
const TYPES: &str = "type.googleapis.com/";

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RpcStatus {
    /// The gRPC code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The same text as the message of the gRPC status; clients compare the two.
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.protobuf.Any`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ErrorInfo {
    /// The refusal's code in upper case.
    #[prost(string, tag = "1")]
    pub reason: String,
    #[prost(string, tag = "2")]
    pub domain: String,
    /// The hint, and those details that are strings, numbers or booleans.
    #[prost(btree_map = "string, string", tag = "3")]
    pub metadata: BTreeMap<String, String>,
}

/// `google.rpc.BadRequest`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BadRequest {
    #[prost(message, repeated, tag = "1")]
    pub field_violations: Vec<FieldViolation>,
}

/// `google.rpc.BadRequest.FieldViolation`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FieldViolation {
    #[prost(string, tag = "1")]
    pub field: String,
    #[prost(string, tag = "2")]
    pub description: String,
}

/// The refusal as an encoded [`RpcStatus`] with this gRPC code.
pub(crate) fn encoded(code: tonic::Code, refusal: &Refusal) -> Vec<u8> {
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
mod tests {
    use ghost_domain::Code;
    use serde_json::json;

    use super::*;

    #[test]
    fn hand_written_messages_match_the_encoding_of_google_rpc() {
        let refusal = Refusal::new(Code::InvalidArguments, "limit is 0")
            .hint("leave it out")
            .details(json!({ "field": "limit", "version": 3, "list": [1] }));
        let status = RpcStatus::decode(&*encoded(tonic::Code::InvalidArgument, &refusal)).unwrap();
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
        let plain = encoded(tonic::Code::NotFound, &Refusal::new(Code::NotFound, "no"));
        assert_eq!(plain[..6], [0x08, 5, 0x12, 2, b'n', b'o']);
        assert_eq!(plain[6], 0x1a);
    }
}
