//! Refusals that gRPC itself gives, before any service is asked: a message that is none, one that is too long, a method that
//! is not there. They get what every other refusal has, a code and a hint (DESIGN.md section 8).
//!
//! Must never: touch a refusal that has them.

use axum::http::Response;
use ghost_domain::{Code, Refusal};
use ghost_proto::REFUSAL_TRAILER;
use tonic::Status;
use tonic::body::Body;

use crate::refusal::{status, status_as};

/// The answer, as a refusal of ours if it is one that has no code yet.
pub(super) fn whole(answer: Response<Body>) -> Response<Body> {
    if answer.headers().contains_key(REFUSAL_TRAILER) {
        return answer;
    }
    match Status::from_header_map(answer.headers()).filter(|given| given.code() != tonic::Code::Ok) {
        Some(given) => told(&given).into_http(),
        None => answer,
    }
}

fn told(given: &Status) -> Status {
    let said = given.message();
    match given.code() {
        tonic::Code::OutOfRange => status(
            &Refusal::new(Code::TooLarge, said.trim_start_matches("Error, "))
                .hint("write the long part to a workspace file and name its path"),
        ),
        // Ours have a code: this is of a message that could not be read.
        tonic::Code::Internal => status(
            &Refusal::new(Code::InvalidArguments, format!("the request cannot be read: {said}"))
                .hint("send the message that proto/ghost/v1 has for this method; its texts are UTF-8"),
        ),
        tonic::Code::Unimplemented => status(
            &Refusal::new(
                Code::Unsupported,
                format!("this daemon does not have or take that: {}", or(said, "no such method")),
            )
            .hint("ask its reflection service what there is; it may be of another version than this client"),
        ),
        tonic::Code::NotFound => status(
            &Refusal::new(Code::NotFound, or(said, "there is no such thing"))
                .hint("health is told of `ghost.v1.World` and the other services of ghost.v1, and of the whole daemon under an empty name"),
        ),
        code => status_as(
            code,
            &Refusal::new(Code::Unavailable, or(said, "the request was not taken")).hint("try again later"),
        ),
    }
}

fn or(said: &str, otherwise: &str) -> String {
    if said.is_empty() { otherwise.to_owned() } else { said.to_owned() }
}
