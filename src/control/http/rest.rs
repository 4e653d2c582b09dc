//! What the HTTP routes share: their state, the type of the table of routes, and refusals as responses.
//!
//! A secret must never be stored in plain text. A ticket must never be accepted twice.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use ghost_domain::{Code, Refusal, Timestamp};
use ghost_proto::http::{self, Field, Place, ROUTES, Verb};
use ghost_proto::renamed;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::control::Control;
use crate::dispatch::Methods;

/// The shared state.
pub(super) struct Rest {
    pub(super) control: Control,
    pub(super) methods: Methods,
    /// Without a token, every route that needs one refuses.
    pub(super) token: Option<Arc<str>>,
    pub(super) bound: SocketAddr,
    pub(super) has_tls: bool,
    pub(super) tickets: Tickets,
    pub(super) sessions: Tickets,
    /// The OpenAPI document, generated at the first request.
    pub(super) description: LazyLock<String>,
}

impl Rest {
    /// The instant by which tickets and cookies expire.
    pub(super) fn now(&self) -> Timestamp {
        self.control.world.ctx().ports.clock.steady()
    }

    /// Such an instant as the wall clock shows it.
    pub(super) fn shown(&self, at: Timestamp) -> String {
        self.control.world.ctx().ports.clock.wall_of(at).rfc3339()
    }
}

pub(super) type Shared = State<Arc<Rest>>;

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

/// The response of a route.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// The JSON of the answer of a method.
    Method(&'static http::Route),
    /// Text of this media type.
    Text(&'static str),
    /// Any other JSON, with its description.
    Json(&'static str),
}

/// One route.
pub(super) struct Route {
    pub(super) verb: Verb,
    /// Path, with parameters in braces.
    pub(super) path: &'static str,
    pub(super) access: Access,
    /// One sentence about it, for the OpenAPI document.
    pub(super) about: &'static str,
    pub(super) fields: &'static [Field],
    pub(super) answer: Answer,
    pub(super) serve: Serve,
}

/// What serves a route.
#[derive(Clone, Copy)]
pub(super) enum Serve {
    Handler(fn() -> MethodRouter<Arc<Rest>>),
    Method(&'static http::Route),
}

/// Lifetime of a ticket.
pub(super) const TICKET_LIFETIME: Duration = Duration::from_secs(30);
/// Largest number of valid secrets in one store.
pub(super) const TICKETS_MAX: usize = 1_024;

type Hash = [u8; 32];

/// Secrets that were issued and are still valid, by hash. The time of a lookup reveals nothing about
/// the stored secrets.
pub(super) struct Tickets {
    valid: Mutex<BTreeMap<Hash, Timestamp>>,
    lifetime: Duration,
}

impl Tickets {
    /// An empty store. Each secret is valid for `lifetime`.
    pub(super) fn with_lifetime(lifetime: Duration) -> Self {
        Self { valid: Mutex::default(), lifetime }
    }

    /// Adds a secret and returns its expiry. Returns `None` if too many are valid.
    pub(super) fn add(&self, ticket: &str, now: Timestamp) -> Option<Timestamp> {
        // The map is never left half-changed, so a poisoned lock is safe to use.
        let mut valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        valid.retain(|_, until| *until > now);
        if valid.len() >= TICKETS_MAX {
            return None;
        }
        let until = now.plus(self.lifetime);
        valid.insert(Sha256::digest(ticket.as_bytes()).into(), until);
        Some(until)
    }

    /// Whether the secret was issued and has not expired.
    pub(super) fn is_valid(&self, ticket: &str, now: Timestamp) -> bool {
        let valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        let hash: Hash = Sha256::digest(ticket.as_bytes()).into();
        valid.get(&hash).is_some_and(|until| *until > now)
    }

    /// Like `is_valid`, and also removes the secret.
    pub(super) fn redeem(&self, ticket: &str, now: Timestamp) -> bool {
        let mut valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        let hash: Hash = Sha256::digest(ticket.as_bytes()).into();
        valid.remove(&hash).is_some_and(|until| until > now)
    }
}

/// A refusal that becomes a response.
pub(super) struct Failed(pub(super) Refusal);

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (http_status(self.0.code), Json(body(&self.0))).into_response()
    }
}

/// Text with the wire names of fields replaced by the names of query parameters.
pub(super) fn with_parameter_names(text: &str) -> String {
    renamed(text, |word| match word {
        // The event streams are no methods over HTTP.
        "kinds" => Some("kind".to_owned()),
        _ => {
            let mut fields = ROUTES.iter().flat_map(|route| route.fields_in(Place::Query));
            fields.find(|field| field.field == word && field.name != word).map(|field| field.name.to_owned())
        }
    })
}

/// The JSON body of a refusal: `{error: {code, message, hint?, details?}}`.
pub(super) fn body(refusal: &Refusal) -> Value {
    let mut error = json!({ "code": refusal.code, "message": with_parameter_names(&refusal.message) });
    if let Some(hint) = refusal.hint.as_deref().map(with_parameter_names) {
        error["hint"] = json!(hint);
    }
    if let Some(details) = &refusal.details {
        error["details"] = details.clone();
        if let Some(field) = details.get("field").and_then(Value::as_str) {
            error["details"]["field"] = with_parameter_names(field).into();
        }
    }
    json!({ "error": error })
}

/// The HTTP status of a refusal.
pub(super) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::InvalidArguments | Code::PayloadMismatch => StatusCode::BAD_REQUEST,
        Code::CursorAhead => StatusCode::RANGE_NOT_SATISFIABLE,
        Code::CursorExpired => StatusCode::GONE,
        Code::NotFound | Code::UnknownTool => StatusCode::NOT_FOUND,
        Code::AccessDenied | Code::PathDenied | Code::PolicyDenied | Code::ApprovalDenied => StatusCode::FORBIDDEN,
        Code::Conflict | Code::ApprovalPending | Code::OutcomeUnknown => StatusCode::CONFLICT,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::RateLimited | Code::InboxFull | Code::HopLimit | Code::BudgetExhausted | Code::LoopGuard => {
            StatusCode::TOO_MANY_REQUESTS
        }
        Code::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Code::Unavailable | Code::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal | Code::ExecFailed => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_valid_once_until_it_expires() {
        let tickets = Tickets::with_lifetime(TICKET_LIFETIME);
        let start = Timestamp(1_000_000);
        let until = tickets.add("a", start).unwrap();
        assert_eq!(until, start.plus(TICKET_LIFETIME));
        assert!(!tickets.redeem("b", start) && !tickets.redeem("", start));
        assert!(tickets.is_valid("a", start) && !tickets.is_valid("b", start) && !tickets.is_valid("a", until));
        assert!(tickets.redeem("a", start), "once");
        assert!(!tickets.redeem("a", start) && !tickets.is_valid("a", start), "not twice");
        tickets.add("late", start).unwrap();
        assert!(!tickets.redeem("late", until), "not after its expiry");
        for number in 0..TICKETS_MAX {
            tickets.add(&number.to_string(), start).unwrap();
        }
        assert_eq!(tickets.add("one more", start), None, "the limit is reached");
        assert!(tickets.add("later", until).is_some(), "expired tickets make room");
    }
}
