//! Tickets for event streams. A browser cannot set a token header on a request for server-sent events
//! or a WebSocket, and a token in a URL would end up in histories and logs. So a holder of the token
//! can get a ticket, which opens one stream, once, within 30 s.
//!
//! A ticket must never be accepted for a request that is not a stream. A request that opened no
//! stream must never use its ticket up.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ghost_domain::{Code, Refusal};
use serde_json::{Value, json};

use super::failed::{Failed, body};
use super::guard;
use super::rest::{Rest, Shared};
use super::tickets::{LIFETIME, TICKETS_MAX};
use crate::auth::random_hex;

/// The query parameter that carries a ticket.
pub(super) const TICKET: &str = "ticket";

/// `POST /api/events/ticket`
pub(super) async fn issue(State(rest): Shared) -> Result<Json<Value>, Failed> {
    let ticket = random_hex()
        .map_err(|error| Refusal::new(Code::Unavailable, format!("a ticket cannot be created: {error}")))?;
    let Some(until) = rest.tickets.add(&ticket, rest.control.world.ctx().ports.clock.steady()) else {
        let what = format!("{TICKETS_MAX} unused tickets exist, which is the limit");
        let hint = format!("use those that you have, or wait {} s", LIFETIME.as_secs());
        return Err(Refusal::new(Code::RateLimited, what).hint(hint).into());
    };
    Ok(Json(json!({ "ticket": ticket, "expires_at": rest.control.world.ctx().ports.clock.wall_of(until).rfc3339() })))
}

/// The ticket of a request. `None` if the request carries the token or a session cookie instead.
#[derive(Clone)]
pub(super) struct Admission(Option<String>);

pub(super) type Admitted = Extension<Admission>;

impl Admission {
    /// Uses the ticket up, once everything else has been checked and the stream is open.
    ///
    /// # Errors
    /// If another request has used it in the meantime.
    pub(super) fn redeem(self, rest: &Rest) -> Result<(), Refusal> {
        match self.0 {
            Some(ticket) if !rest.tickets.redeem(&ticket, rest.control.world.ctx().ports.clock.steady()) => {
                Err(no_ticket())
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn no_ticket() -> Refusal {
    Refusal::new(Code::AccessDenied, "the ticket is unknown, used or too old")
        .hint("POST /api/events/ticket with the token gives another; one opens one stream, within 30 s")
}

/// The response to an invalid ticket.
pub(super) fn unauthorized(refusal: &Refusal) -> Response {
    (StatusCode::UNAUTHORIZED, Json(body(refusal))).into_response()
}

/// Middleware: accepts requests with the token or a valid ticket. It does not use the ticket up, so an
/// error in the rest of the URL does not cost the ticket.
pub(super) async fn or_token(State(rest): State<Arc<Rest>>, mut request: Request, next: Next) -> Response {
    let ticket = ticket_of(request.uri());
    match &ticket {
        Some(ticket) if !rest.tickets.is_valid(ticket, rest.control.world.ctx().ports.clock.steady()) => {
            return unauthorized(&no_ticket());
        }
        Some(_) => {}
        None => {
            if let Err(unauthorized) = guard::has_token(&rest, request.method(), request.headers()) {
                return unauthorized.into_response();
            }
        }
    }
    request.extensions_mut().insert(Admission(ticket));
    next.run(request).await
}

/// The ticket in a URL. Other parameters are ignored here; the route checks them.
fn ticket_of(uri: &Uri) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    pairs.into_iter().find_map(|(name, value)| (name == TICKET).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_read_from_the_url() {
        let read = |text: &str| ticket_of(&text.parse().unwrap());
        assert_eq!(read("/api/events"), None);
        assert_eq!(read("/api/events?kind=ticket"), None);
        assert_eq!(read("/api/events?after=now&ticket=abc").as_deref(), Some("abc"));
        assert_eq!(
            read("/api/events?afer=now&ticket=abc&x=%ff").as_deref(),
            Some("abc"),
            "with a misspelled parameter"
        );
        for odd in ["/api/events?ticket", "/api/events?ticket=", "/api/events?ticket=a&ticket=b"] {
            assert!(read(odd).is_some(), "{odd}: it is not a request with a token");
        }
    }
}
