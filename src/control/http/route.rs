//! What is known of a route: enough to serve it and to describe it, so that the two cannot differ.
//!
//! Must never: know which routes there are.

use std::sync::Arc;

use axum::routing::MethodRouter;
use serde_json::Value;

use super::rest::Rest;

/// How a route is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Reads.
    Get,
    /// Makes something.
    Post,
    /// Changes something.
    Patch,
}

impl Verb {
    /// As it is sent.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
        }
    }
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody who reaches the daemon.
    Open,
    /// Everybody if the world file says so, else whoever holds the token.
    Setting,
    /// Whoever holds the token itself: a cookie that could ask for another would never end.
    Bearer,
    /// Whoever holds the token, or the cookie that was given for it.
    Token,
    /// The same, or whoever holds a ticket.
    Ticket,
    /// Whoever signs with the webhook's secret.
    Signed,
}

/// What a parameter of an address holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// A text.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`; its name alone is true.
    Flag,
    /// Texts with commas between them; it may be given again.
    Texts,
}

/// A parameter of an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Param {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub holds: Holds,
    /// What it means.
    pub about: &'static str,
}

/// A JSON body: the fields of a message of the contract.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    /// The message.
    pub message: &'static str,
    /// Its fields that a body has: the others stand in the address and in `Idempotency-Key`.
    pub fields: &'static [&'static str],
}

/// A record as the answer has it.
#[derive(Clone, Copy)]
pub(super) struct Record {
    /// The message of the contract that it is made from.
    pub message: &'static str,
    /// What it is like: the record of an empty message.
    pub like: fn() -> Value,
}

/// What a route answers.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// Words, of this type.
    Text(&'static str),
    /// One record.
    One(Record),
    /// Records under a name, with `next_cursor`, and with `truncated` if it says so.
    Page { name: &'static str, of: Record, truncated: bool },
    /// Any other JSON, in words.
    Json(&'static str),
}

/// A route.
pub(super) struct Route {
    /// How it is asked.
    pub verb: Verb,
    /// Where.
    pub path: &'static str,
    /// Who may ask.
    pub access: Access,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// The parameters that its address takes.
    pub params: &'static [Param],
    /// The body that it takes, if it takes one.
    pub body: Option<Body>,
    /// What it answers.
    pub answer: Answer,
    /// What answers.
    pub serve: fn() -> MethodRouter<Arc<Rest>>,
}
