//! Completes errors that tonic itself returns before a service is called: an undecodable message, a
//! message that is too large, an unknown method. They get a refusal code and a hint, like every other
//! refusal.
//!
//! This module must never change an error that already carries a refusal.

use axum::http::Response;
use ghost_domain::{Code, Refusal};
use ghost_proto::REFUSAL_TRAILER;
use tonic::Status;
use tonic::body::Body;

use crate::refusal::{status, status_as};

/// The response; an error without a refusal gets one.
pub(super) fn complete(answer: Response<Body>) -> Response<Body> {
    if answer.headers().contains_key(REFUSAL_TRAILER) {
        return answer;
    }
    match Status::from_header_map(answer.headers()).filter(|given| given.code() != tonic::Code::Ok) {
        Some(given) => with_refusal(&given).into_http(),
        None => answer,
    }
}

fn with_refusal(given: &Status) -> Status {
    let text = given.message();
    match given.code() {
        tonic::Code::OutOfRange => status(
            &Refusal::new(Code::TooLarge, text.trim_start_matches("Error, "))
                .hint("write the long part to a workspace file and name its path"),
        ),
        // The services return a refusal with every internal error, so this is a request that cannot be
        // decoded.
        tonic::Code::Internal => status(
            &Refusal::new(Code::InvalidArguments, format!("the request cannot be read: {text}"))
                .hint("send the request message that proto/ghost/v1 defines for this method; strings must be UTF-8"),
        ),
        tonic::Code::Unimplemented => status(
            &Refusal::new(
                Code::Unsupported,
                format!("this daemon does not support the request: {}", or_default_text(text, "no such method")),
            )
            .hint("list its methods with gRPC reflection; it may be of another version than this client"),
        ),
        tonic::Code::NotFound => status(
            &Refusal::new(Code::NotFound, or_default_text(text, "not found"))
                .hint("ask for the health of `ghost.v1.World` or another service of ghost.v1; an empty name means the whole daemon"),
        ),
        code => status_as(
            code,
            &Refusal::new(Code::Unavailable, or_default_text(text, "the request was not accepted")).hint("try again later"),
        ),
    }
}

fn or_default_text(text: &str, default: &str) -> String {
    if text.is_empty() { default.to_owned() } else { text.to_owned() }
}
