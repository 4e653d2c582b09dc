//! The session cookie: it replaces the token in a browser, where scripts cannot read it. Only a request
//! with the token itself can get one.
//!
//! A cookie must never be enough for a page of another origin to write: a change also needs an
//! `Origin` header and a JSON body. A holder of only a cookie must never get a new one, so that a
//! stolen cookie expires.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use ghost_domain::{Code, Refusal};
use serde_json::json;

use super::failed::Failed;
use super::rest::{Rest, Shared};
use crate::auth::random_hex;

/// Lifetime of a cookie.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3_600);
/// Name of the cookie.
const NAME: &str = "ghost_session";

/// `POST /api/session`
pub(super) async fn issue(State(rest): Shared) -> Result<Response, Failed> {
    let secret = random_hex()
        .map_err(|error| Refusal::new(Code::Unavailable, format!("a cookie cannot be created: {error}")))?;
    let Some(until) = rest.sessions.add(&secret, rest.control.world.ctx().ports.clock.steady()) else {
        return Err(Refusal::new(Code::RateLimited, "too many cookies are in use")
            .hint("use one that you have, or wait until they end")
            .into());
    };
    let secure = if rest.has_tls { "; Secure" } else { "" };
    let age = LIFETIME.as_secs();
    let cookie = format!("{NAME}={secret}; HttpOnly; SameSite=Strict; Path=/api; Max-Age={age}{secure}");
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
pub(super) fn has_valid_cookie(rest: &Rest, method: &Method, headers: &HeaderMap) -> bool {
    let changes = method != Method::GET && method != Method::HEAD;
    if changes && !headers.contains_key(header::ORIGIN) {
        return false;
    }
    let now = rest.control.world.ctx().ports.clock.steady();
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut secrets = cookies
        .flat_map(|value| value.split(';'))
        .filter_map(|cookie| cookie.trim().strip_prefix(NAME)?.strip_prefix('='));
    secrets.any(|secret| rest.sessions.is_valid(secret, now))
}
