//! Who may use the routes: holders of the token, of a session cookie or of a ticket.
//!
//! The cookie replaces the token in a browser, where scripts cannot read it. It is not enough for a page of another origin
//! to write: a change also needs an `Origin` header and a JSON body. Only a request with the token itself gets a cookie, so
//! that a stolen one expires.
//!
//! A browser cannot set a token header on a request for server-sent events or a WebSocket, and a token in a URL would end
//! up in histories and logs. So a holder of the token can get a ticket, which opens one stream, once, within 30 s. A
//! request that opened no stream does not use its ticket up.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ghost_domain::bearer::bearer_matches;
use ghost_domain::{Code, Refusal};
use serde_json::{Value, json};

use super::rest::{Failed, Rest, Shared, TICKET_LIFETIME, TICKETS_MAX, body};
use crate::auth::random_hex;

/// Middleware: accepts requests that carry the token itself.
pub(super) async fn bearer(State(rest): State<Arc<Rest>>, request: Request, next: Next) -> Response {
    match token_matches(&rest, request.headers()) {
        Some(true) => next.run(request).await,
        Some(false) | None => unauthenticated(),
    }
}

/// Middleware: accepts requests that carry the token or a session cookie.
pub(super) async fn token(State(rest): State<Arc<Rest>>, request: Request, next: Next) -> Response {
    match has_token(&rest, request.method(), request.headers()) {
        true => next.run(request).await,
        false => unauthenticated(),
    }
}

/// The response to a request without valid credentials.
pub(super) fn unauthenticated() -> Response {
    let refusal = Refusal::new(Code::AccessDenied, "a token is needed").hint(
        "send `Authorization: Bearer <token>`; the token is GHOST_TOKEN or the file `token` in the data directory. With a cookie, \
         a change needs the header `Origin` too",
    );
    let mut response = (StatusCode::UNAUTHORIZED, Json(body(&refusal))).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Whether a request carries the token or a session cookie. A wrong token is refused even if there is a cookie.
pub(super) fn has_token(rest: &Rest, method: &Method, headers: &HeaderMap) -> bool {
    let has_cookie = || rest.token.is_some() && has_valid_cookie(rest, method, headers);
    token_matches(rest, headers).unwrap_or_else(has_cookie)
}

/// Whether the token of a request is right; `None` if there is none.
fn token_matches(rest: &Rest, headers: &HeaderMap) -> Option<bool> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok())?;
    Some(rest.token.as_ref().is_some_and(|token| bearer_matches(given, token)))
}

/// Lifetime of a cookie.
pub(super) const COOKIE_LIFETIME: Duration = Duration::from_secs(12 * 3_600);
/// Name of the cookie.
const COOKIE: &str = "ghost_session";

/// `POST /api/session`
pub(super) async fn issue_cookie(State(rest): Shared) -> Result<Response, Failed> {
    let secret = random_hex()
        .map_err(|error| Refusal::new(Code::Unavailable, format!("a cookie cannot be created: {error}")))?;
    let Some(until) = rest.sessions.add(&secret, rest.control.world.ctx().ports.clock.steady()) else {
        return Err(Refusal::new(Code::RateLimited, "too many cookies are in use")
            .hint("use one that you have, or wait until they end")
            .into());
    };
    let secure = if rest.has_tls { "; Secure" } else { "" };
    let age = COOKIE_LIFETIME.as_secs();
    let cookie = format!("{COOKIE}={secret}; HttpOnly; SameSite=Strict; Path=/api; Max-Age={age}{secure}");
    let cookie = HeaderValue::from_str(&cookie)
        .map_err(|error| Refusal::new(Code::Internal, format!("the cookie cannot be sent: {error}")))?;
    Ok((
        [(header::SET_COOKIE, cookie)],
        Json(json!({ "expires_at": rest.control.world.ctx().ports.clock.wall_of(until).rfc3339() })),
    )
        .into_response())
}

/// Whether a request carries a valid cookie. A request that changes something must also have an
/// `Origin` header. `guard::host` has already checked that it is the daemon's own or an allowed one.
fn has_valid_cookie(rest: &Rest, method: &Method, headers: &HeaderMap) -> bool {
    let changes = method != Method::GET && method != Method::HEAD;
    if changes && !headers.contains_key(header::ORIGIN) {
        return false;
    }
    let now = rest.control.world.ctx().ports.clock.steady();
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut secrets = cookies
        .flat_map(|value| value.split(';'))
        .filter_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    secrets.any(|secret| rest.sessions.is_valid(secret, now))
}

/// The query parameter that carries a ticket.
pub(super) const TICKET: &str = "ticket";

/// `POST /api/events/ticket`
pub(super) async fn issue_ticket(State(rest): Shared) -> Result<Json<Value>, Failed> {
    let ticket = random_hex()
        .map_err(|error| Refusal::new(Code::Unavailable, format!("a ticket cannot be created: {error}")))?;
    let Some(until) = rest.tickets.add(&ticket, rest.control.world.ctx().ports.clock.steady()) else {
        let what = format!("{TICKETS_MAX} unused tickets exist, which is the limit");
        let hint = format!("use those that you have, or wait {} s", TICKET_LIFETIME.as_secs());
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
        None if !has_token(&rest, request.method(), request.headers()) => return unauthenticated(),
        None => {}
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
