//! Which requests are accepted: those to the right host from an allowed origin, by holders of the token, of a session cookie
//! or of a ticket. A host name that a foreign name server could point at this machine is never accepted.
//!
//! The cookie replaces the token in a browser, where scripts cannot read it. It is not enough for a page of another origin
//! to write: a change also needs an `Origin` header and a JSON body. Only a request with the token itself gets a cookie, so
//! that a stolen one expires.
//!
//! A browser cannot set a token header on a request for server-sent events or a WebSocket, and a token in a URL would end
//! up in histories and logs. So a holder of the token can get a ticket, which opens one stream, once, within 30 s. A
//! request that opened no stream does not use its ticket up.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ghost_config::plan::HttpPlan;
use ghost_config::plan::http::HostPort;
use ghost_domain::bearer::bearer_matches;
use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal};
use serde_json::{Value, json};

use super::rest::{Failed, Rest, Shared, TICKET_LIFETIME, TICKETS_MAX, body};
use crate::auth::random_hex;

/// The port of an address without one, and over TLS.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// Middleware: accepts requests to this daemon's address if no page sent them, or a page of an
/// allowed origin.
pub(super) async fn host(State(rest): State<Arc<Rest>>, request: Request, next: Next) -> Response {
    let plan = rest.control.world.plan();
    let allowed_origin = match check(request.uri(), request.headers(), (rest.bound, rest.has_tls), &plan.http) {
        Ok(allowed_origin) => allowed_origin,
        Err(refusal) => return Failed(refusal).into_response(),
    };
    // A preflight request (CORS) carries no token.
    let is_preflight = allowed_origin.is_some()
        && request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    if let Some(allowed_origin) = allowed_origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, allowed_origin);
    }
    if is_preflight {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PATCH"));
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("authorization, content-type, idempotency-key, last-event-id"),
        );
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    response
}

/// Checks every host that a request names, and its origin. Returns the origin if it is not the daemon's
/// own but an allowed one.
///
/// # Errors
/// If a host is not this daemon's, or the origin is not allowed.
fn check(
    uri: &Uri,
    headers: &HeaderMap,
    (bound, has_tls): (SocketAddr, bool),
    plan: &HttpPlan,
) -> Result<Option<HeaderValue>, Refusal> {
    let mut hosts = Vec::new();
    for value in headers.get_all(header::HOST) {
        let host = value.to_str().ok().and_then(HostPort::parse);
        hosts.push(host.ok_or_else(|| bad_host("the Host header names no host"))?);
    }
    if hosts.len() > 1 {
        return Err(bad_host("there are several Host headers"));
    }
    if let Some(authority) = uri.authority() {
        hosts.push(HostPort::parse(authority.as_str()).ok_or_else(|| bad_host("the address names no host"))?);
    }
    if hosts.is_empty() {
        return Err(bad_host("the request names no host"));
    }
    if let Some(other) = hosts.iter().find(|host| !is_ours(host, bound) && !is_allowed(host, plan)) {
        let port = other.port.map(|port| format!(":{port}")).unwrap_or_default();
        let what = format!("this daemon is not `{}{port}`", clip(&other.host, 80));
        let hint = format!(
            "use localhost or its own address with port {}; list the name or port that a proxy, a container or a tunnel uses \
             in the world file: `http: {{ allowed_hosts: [NAME] }}`",
            bound.port()
        );
        return Err(Refusal::new(Code::PolicyDenied, what).hint(hint));
    }
    let mut allowed_origin = None;
    for origin in headers.get_all(header::ORIGIN) {
        let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        // Without TLS here, a proxy in front may have it. With it, no page of ours comes as plain text.
        let plain = text.strip_prefix("http://").filter(|_| !has_tls);
        let own = plain.or_else(|| text.strip_prefix("https://"));
        if own.and_then(HostPort::parse).is_some_and(|own| hosts.iter().all(|host| *host == own)) {
            continue;
        }
        if !plan.allowed_origins.contains(&text) {
            return Err(Refusal::new(Code::PolicyDenied, "the request comes from a page of another origin").hint(
                "allowed are the daemon's own origin and those that the world file lists: \
                 `http: { allowed_origins: [ORIGIN] }`",
            ));
        }
        allowed_origin = Some(origin.clone());
    }
    Ok(allowed_origin)
}

fn bad_host(message: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, message).hint("send one Host header with the daemon's address")
}

/// Whether a host is this machine, with the port that the daemon listens on: a loopback address, the
/// address that the daemon listens on, or `localhost`, which always resolves here.
fn is_ours(host: &HostPort, bound: SocketAddr) -> bool {
    let is_port = host.port.map_or([HTTP_PORT, HTTPS_PORT].contains(&bound.port()), |port| port == bound.port());
    if !is_port {
        return false;
    }
    if host.host == "localhost" {
        return true;
    }
    let Ok(address) = host.host.parse::<IpAddr>() else { return false };
    // If the daemon listens on all addresses, any address is accepted: unlike a name, no one can point
    // an address elsewhere.
    address.is_loopback() || address == bound.ip() || bound.ip().is_unspecified()
}

/// Whether the world's files list this host.
fn is_allowed(host: &HostPort, plan: &HttpPlan) -> bool {
    let port = |allowed: &HostPort| allowed.port.is_none_or(|port| host.port.unwrap_or(HTTP_PORT) == port);
    plan.allowed_hosts.iter().any(|allowed| allowed.host == host.host && port(allowed))
}

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
    let Some(until) = rest.sessions.add(&secret, rest.now()) else {
        return Err(Refusal::new(Code::RateLimited, "too many cookies are in use")
            .hint("use one that you have, or wait until they end")
            .into());
    };
    let secure = if rest.has_tls { "; Secure" } else { "" };
    let age = COOKIE_LIFETIME.as_secs();
    let cookie = format!("{COOKIE}={secret}; HttpOnly; SameSite=Strict; Path=/api; Max-Age={age}{secure}");
    let cookie = HeaderValue::from_str(&cookie)
        .map_err(|error| Refusal::new(Code::Internal, format!("the cookie cannot be sent: {error}")))?;
    Ok(([(header::SET_COOKIE, cookie)], Json(json!({ "expires_at": rest.shown(until) }))).into_response())
}

/// Whether a request carries a valid cookie. A request that changes something must also have an
/// `Origin` header. [`host`] has already checked that it is the daemon's own or an allowed one.
fn has_valid_cookie(rest: &Rest, method: &Method, headers: &HeaderMap) -> bool {
    let changes = method != Method::GET && method != Method::HEAD;
    if changes && !headers.contains_key(header::ORIGIN) {
        return false;
    }
    let now = rest.now();
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
    let Some(until) = rest.tickets.add(&ticket, rest.now()) else {
        let what = format!("{TICKETS_MAX} unused tickets exist, which is the limit");
        let hint = format!("use those that you have, or wait {} s", TICKET_LIFETIME.as_secs());
        return Err(Refusal::new(Code::RateLimited, what).hint(hint).into());
    };
    Ok(Json(json!({ "ticket": ticket, "expires_at": rest.shown(until) })))
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
            Some(ticket) if !rest.tickets.redeem(&ticket, rest.now()) => Err(no_ticket()),
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
        Some(ticket) if !rest.tickets.is_valid(ticket, rest.now()) => {
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
mod host_tests {
    use super::*;
    use proptest::prelude::*;

    const BOUND: &str = "192.0.2.7:8080";

    fn plan() -> HttpPlan {
        let host = |text| HostPort::parse(text).unwrap();
        HttpPlan {
            allowed_hosts: vec![host("ghost.example"), host("ghost:8080")],
            allowed_origins: vec!["https://dash.example".into()],
        }
    }

    fn asked(bound: &str, headers: &[(&'static str, &str)]) -> Result<Option<HeaderValue>, Code> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        check(&Uri::from_static("/healthz"), &map, (bound.parse().unwrap(), false), &plan())
            .map_err(|refusal| refusal.code)
    }

    fn ask(bound: &str, headers: &[(&'static str, &str)]) -> Result<(), Code> {
        asked(bound, headers).map(|_| ())
    }

    #[test]
    fn with_tls_no_page_of_plain_text_is_the_daemons_own() {
        for (has_tls, origin, expected) in [
            (false, "http://localhost:8080", true),
            (false, "https://localhost:8080", true),
            (true, "https://localhost:8080", true),
            (true, "http://localhost:8080", false),
        ] {
            let mut map = HeaderMap::new();
            map.append("host", HeaderValue::from_static("localhost:8080"));
            map.append("origin", HeaderValue::from_static(origin));
            let found = check(&Uri::from_static("/healthz"), &map, (BOUND.parse().unwrap(), has_tls), &plan());
            assert_eq!(found.is_ok(), expected, "{origin} {has_tls}");
        }
    }

    #[test]
    fn only_this_machine_and_this_port_are_accepted() {
        for host in
            ["localhost:8080", "LOCALHOST:8080", "127.0.0.1:8080", "127.9.9.9:8080", "[::1]:8080", "192.0.2.7:8080"]
        {
            assert_eq!(ask(BOUND, &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example:8080",
            "127.0.0.1.evil.example:8080",
            "192.0.2.8:8080",
            "[::2]:8080",
            "2130706433:8080",
            "localhost.:8080",
            // Another port belongs to another program.
            "localhost",
            "127.0.0.1:9",
            "192.0.2.7",
        ] {
            assert_eq!(ask(BOUND, &[("host", host)]), Err(Code::PolicyDenied), "{host}");
        }
        assert_eq!(ask("192.0.2.7:80", &[("host", "192.0.2.7")]), Ok(()), "an address without a port means this one");
        for headers in [
            &[][..],
            &[("host", "")],
            &[("host", "a@localhost:8080")],
            &[("host", "localhost:8080"), ("host", "localhost:8080")],
            &[("host", "127.0.0.1:8080.evil.com")],
            &[("host", "127.0.0.1:8080:8080")],
            &[("host", "127.0.0.1:")],
        ] {
            assert_eq!(ask(BOUND, headers), Err(Code::InvalidArguments), "{headers:?}");
        }
    }

    #[test]
    fn names_in_the_world_file_are_accepted() {
        for host in ["ghost.example", "GHOST.example:443", "ghost.example:8080", "ghost:8080"] {
            assert_eq!(ask("0.0.0.0:8080", &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["ghost", "ghost:8081", "x.ghost.example", "ghost.example.evil.com"] {
            assert_eq!(ask("0.0.0.0:8080", &[("host", host)]), Err(Code::PolicyDenied), "{host}");
        }
    }

    #[test]
    fn listening_on_all_addresses_accepts_any_address_but_no_name() {
        assert_eq!(ask("0.0.0.0:80", &[("host", "198.51.100.3:80")]), Ok(()));
        assert_eq!(ask("[::]:80", &[("host", "[2001:db8::1]:80")]), Ok(()));
        assert_eq!(ask("0.0.0.0:80", &[("host", "evil.example")]), Err(Code::PolicyDenied));
    }

    #[test]
    fn only_the_own_origin_and_those_in_the_world_file_are_accepted() {
        let host = ("host", "localhost:8080");
        assert_eq!(asked(BOUND, &[host, ("origin", "http://localhost:8080")]), Ok(None));
        assert_eq!(asked(BOUND, &[host, ("origin", "https://localhost:8080")]), Ok(None));
        let allowed_origin = asked(BOUND, &[host, ("origin", "https://dash.example")]).unwrap();
        assert_eq!(allowed_origin.unwrap(), "https://dash.example");
        for origin in [
            "http://evil.example",
            "http://localhost:3000",
            "null",
            "http://localhost:8080.evil.example",
            "",
            "http://dash.example",
            "https://dash.example:8443",
            "https://dash.example.evil.com",
        ] {
            assert_eq!(ask(BOUND, &[host, ("origin", origin)]), Err(Code::PolicyDenied), "{origin}");
        }
    }

    #[test]
    fn the_host_of_an_absolute_request_target_is_checked() {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("localhost:8080"));
        let bound = (BOUND.parse().unwrap(), false);
        assert!(check(&Uri::from_static("http://evil.example/healthz"), &headers, bound, &plan()).is_err());
        assert!(check(&Uri::from_static("http://localhost:8080/healthz"), &headers, bound, &plan()).is_ok());
    }

    proptest! {
        #[test]
        fn no_name_but_localhost_passes(name in "[a-z][a-z0-9-]{0,12}(\\.[a-z][a-z0-9-]{0,8}){0,3}") {
            prop_assume!(name != "localhost");
            prop_assume!(name != "ghost.example");
            prop_assert!(ask("0.0.0.0:80", &[("host", &name)]).is_err());
        }

        #[test]
        fn any_header_is_checked_without_a_panic(host in "[ -~]{0,60}", origin in "[ -~]{0,60}") {
            let _ = ask(BOUND, &[("host", &host), ("origin", &origin)]);
        }
    }
}

#[cfg(test)]
mod credential_tests {
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
