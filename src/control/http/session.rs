//! The cookie that stands for the token in a browser, where scripts cannot read it. Whoever holds the token itself is given one.
//!
//! Must never: let a page of another origin write with it: a change needs an `Origin` besides, and a JSON body. Nor be had for
//! a cookie: one that was stolen ends when its time is over.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use ghost_domain::{Code, Refusal};
use serde_json::json;

use super::failed::Failed;
use super::rest::{Rest, Shared};
use crate::auth::unguessable;

/// A cookie is good for so long.
pub(super) const GOOD_FOR: Duration = Duration::from_secs(12 * 3_600);
/// Its name.
const NAME: &str = "ghost_session";

/// `POST /api/session`
pub(super) async fn begin(State(rest): Shared) -> Result<Response, Failed> {
    let secret =
        unguessable().map_err(|error| Refusal::new(Code::Unavailable, format!("a cookie cannot be made: {error}")))?;
    let Some(until) = rest.sessions.give(&secret, rest.control.world.ctx().now()) else {
        return Err(Refusal::new(Code::RateLimited, "too many cookies are in use")
            .hint("use one that you have, or wait until they end")
            .into());
    };
    let cookie = format!("{NAME}={secret}; HttpOnly; SameSite=Strict; Path=/api; Max-Age={}", GOOD_FOR.as_secs());
    let cookie = HeaderValue::from_str(&cookie)
        .map_err(|error| Refusal::new(Code::Internal, format!("the cookie cannot be sent: {error}")))?;
    Ok(([(header::SET_COOKIE, cookie)], Json(json!({ "expires_at": until.rfc3339() }))).into_response())
}

/// Whether a request comes with such a cookie. One that changes something must name its origin too, which has been found to be
/// the daemon's own or an allowed one by then.
pub(super) fn holds(rest: &Rest, method: &Method, headers: &HeaderMap) -> bool {
    let changes = method != Method::GET && method != Method::HEAD;
    if changes && !headers.contains_key(header::ORIGIN) {
        return false;
    }
    let now = rest.control.world.ctx().now();
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut secrets = cookies
        .flat_map(|value| value.split(';'))
        .filter_map(|cookie| cookie.trim().strip_prefix(NAME)?.strip_prefix('='));
    secrets.any(|secret| rest.sessions.holds(secret, now))
}
