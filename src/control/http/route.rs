//! The description of a route. The router and the OpenAPI document are both built from it, so they
//! cannot differ.
//!
//! The list of routes must never be here; it is in `routes.rs`.

use std::sync::Arc;

use axum::routing::MethodRouter;
use serde_json::Value;

use super::rest::Rest;

/// The HTTP method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Reads.
    Get,
    /// Creates something.
    Post,
    /// Changes something.
    Patch,
}

impl Verb {
    /// The name of the method.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
        }
    }
}

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everyone who reaches the daemon.
    Open,
    /// Everyone if `world-config.yaml` allows it, otherwise holders of the token or a session
    /// cookie.
    Setting,
    /// Holders of the token itself. A cookie is not enough: a cookie that could renew itself would
    /// never expire.
    Bearer,
    /// Holders of the token or a session cookie.
    Token,
    /// Holders of the token, a session cookie or a ticket.
    Ticket,
    /// Senders who sign with the webhook's secret.
    Signed,
}

/// The type of a query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParamType {
    /// A text.
    Text,
    /// A whole number.
    Number,
    /// `true` or `false`; without a value it is true.
    Flag,
    /// Strings, separated by commas. The parameter may be repeated.
    Texts,
}

/// A query parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Param {
    /// Name of the parameter.
    pub name: &'static str,
    /// Type of its value.
    pub kind: ParamType,
    /// Description for the OpenAPI document.
    pub about: &'static str,
}

/// A JSON body: some fields of a message of the contract.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    /// Name of the message.
    pub message: &'static str,
    /// The fields that the body has. The others come from the URL and from `Idempotency-Key`.
    pub fields: &'static [&'static str],
}

/// A record in a response.
#[derive(Clone, Copy)]
pub(super) struct Record {
    /// The message of the contract behind the record.
    pub message: &'static str,
    /// An example: the record of an empty message.
    pub example: fn() -> Value,
}

/// The response of a route.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// Text of this media type.
    Text(&'static str),
    /// One record.
    One(Record),
    /// Records under this key, with `next_cursor`. `truncated` says that the answer has that field, which is
    /// always false.
    Page { name: &'static str, record: Record, truncated: bool },
    /// Any other JSON, with its description.
    Json(&'static str),
}

/// One route.
pub(super) struct Route {
    /// HTTP method.
    pub verb: Verb,
    /// Path, with parameters in braces.
    pub path: &'static str,
    /// Who may call it.
    pub access: Access,
    /// One sentence about it, for the OpenAPI document.
    pub about: &'static str,
    /// Query parameters.
    pub params: &'static [Param],
    /// JSON body, if it has one.
    pub body: Option<Body>,
    /// Response.
    pub answer: Answer,
    /// Creates its handler.
    pub serve: fn() -> MethodRouter<Arc<Rest>>,
}
