//! Tickets for streams: a page cannot put a token on a request for server-sent events or a WebSocket, and a token in an
//! address ends up in histories and logs. Who holds the token gets a ticket for it that opens one stream, soon and once.
//!
//! Must never: let a ticket open anything but a stream, or use one up for a request that opened none.

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
use super::tickets::{GOOD_FOR, MOST};
use crate::auth::unguessable;

/// The parameter that carries a ticket.
pub(super) const TICKET: &str = "ticket";

/// `POST /api/events/ticket`
pub(super) async fn issue(State(rest): Shared) -> Result<Json<Value>, Failed> {
    let ticket =
        unguessable().map_err(|error| Refusal::new(Code::Unavailable, format!("a ticket cannot be made: {error}")))?;
    let Some(until) = rest.tickets.give(&ticket, rest.control.world.ctx().now()) else {
        let what = format!("{MOST} tickets wait to be used, which is as many as may be");
        let hint = format!("use those that you have, or wait {} s", GOOD_FOR.as_secs());
        return Err(Refusal::new(Code::RateLimited, what).hint(hint).into());
    };
    Ok(Json(json!({ "ticket": ticket, "expires_at": until.rfc3339() })))
}

/// The ticket that a request came with, if it came with one and not with the token.
#[derive(Clone)]
pub(super) struct Admission(Option<String>);

pub(super) type Admitted = Extension<Admission>;

impl Admission {
    /// Uses the ticket up, when everything else is in order and the stream is open.
    ///
    /// # Errors
    /// When another request did so meanwhile.
    pub(super) fn use_up(self, rest: &Rest) -> Result<(), Refusal> {
        match self.0 {
            Some(ticket) if !rest.tickets.take(&ticket, rest.control.world.ctx().now()) => Err(no_ticket()),
            Some(_) | None => Ok(()),
        }
    }
}

fn no_ticket() -> Refusal {
    Refusal::new(Code::AccessDenied, "the ticket is unknown, used or too old")
        .hint("POST /api/events/ticket with the token gives another; one opens one stream, within 30 s")
}

/// The answer to a ticket that opens nothing.
pub(super) fn unknown(refusal: &Refusal) -> Response {
    (StatusCode::UNAUTHORIZED, Json(body(refusal))).into_response()
}

/// Lets requests through that carry the token, or a ticket in its stead, which is not used up by that: a slip in the rest of
/// the address must not cost it.
pub(super) async fn or_token(State(rest): State<Arc<Rest>>, mut request: Request, next: Next) -> Response {
    let ticket = given(request.uri());
    match &ticket {
        Some(ticket) if !rest.tickets.holds(ticket, rest.control.world.ctx().now()) => return unknown(&no_ticket()),
        Some(_) => {}
        None => {
            if let Err(unknown) = guard::has_token(&rest, request.method(), request.headers()) {
                return unknown.into_response();
            }
        }
    }
    request.extensions_mut().insert(Admission(ticket));
    next.run(request).await
}

/// The ticket of an address, whatever else is there: what is wrong with it is told by the route.
fn given(uri: &Uri) -> Option<String> {
    let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    pairs.into_iter().find_map(|(name, value)| (name == TICKET).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_read_from_the_address_alone() {
        let read = |text: &str| given(&text.parse().unwrap());
        assert_eq!(read("/api/events"), None);
        assert_eq!(read("/api/events?kind=ticket"), None);
        assert_eq!(read("/api/events?after=now&ticket=abc").as_deref(), Some("abc"));
        assert_eq!(read("/api/events?afer=now&ticket=abc&x=%ff").as_deref(), Some("abc"), "with what is misspelt");
        for strange in ["/api/events?ticket", "/api/events?ticket=", "/api/events?ticket=a&ticket=b"] {
            assert!(read(strange).is_some(), "{strange}: it is no request with a token");
        }
    }
}
