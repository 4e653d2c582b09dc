//! Which requests are looked at at all: the right host, the same origin, the token.
//!
//! Must never: trust a name that someone else's name server can point here.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ghost_config::plan::HttpPlan;
use ghost_config::plan::http::HostPort;
use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal};

use super::failed::{Failed, body};
use super::rest::Rest;
use super::session;
use crate::auth::bearer_matches;

/// The port of an address that names none.
const HTTP: u16 = 80;

/// Lets requests through that were meant for this address, and for no page of an origin that may not ask.
pub(super) async fn host(State(rest): State<Arc<Rest>>, request: Request, next: Next) -> Response {
    let plan = rest.control.world.plan();
    let page = match check(request.uri(), request.headers(), rest.bound, &plan.http) {
        Ok(page) => page,
        Err(refusal) => return Failed(refusal).into_response(),
    };
    // Such a page asks whether it may before it asks for anything: the token is no part of that question.
    let asks_first = page.is_some()
        && request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks_first { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    if let Some(page) = page {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page);
    }
    if asks_first {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PATCH"));
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("authorization, content-type, idempotency-key, last-event-id"),
        );
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    response
}

/// Lets requests through that carry the token itself.
pub(super) async fn bearer(State(rest): State<Arc<Rest>>, request: Request, next: Next) -> Response {
    match shown(&rest, request.headers()) {
        Some(true) => next.run(request).await,
        Some(false) | None => Unknown.into_response(),
    }
}

/// Lets requests through that carry the token, or the cookie that was given for it.
pub(super) async fn token(State(rest): State<Arc<Rest>>, request: Request, next: Next) -> Response {
    match has_token(&rest, request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(unknown) => unknown.into_response(),
    }
}

/// A request without the token.
pub(super) struct Unknown;

impl IntoResponse for Unknown {
    fn into_response(self) -> Response {
        unknown_caller()
    }
}

/// A caller that has not said who it is.
fn unknown_caller() -> Response {
    let refusal = Refusal::new(Code::AccessDenied, "a token is needed").hint(
        "send `Authorization: Bearer <token>`; the token is GHOST_TOKEN or the file `token` in the data directory",
    );
    let mut response = (StatusCode::UNAUTHORIZED, Json(body(&refusal))).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Whether a request carries the token, or the cookie that was given for it.
pub(super) fn has_token(rest: &Rest, method: &Method, headers: &HeaderMap) -> Result<(), Unknown> {
    match shown(rest, headers) {
        Some(true) => Ok(()),
        // Who shows a wrong token has not forgotten it.
        None if rest.token.is_some() && session::holds(rest, method, headers) => Ok(()),
        Some(false) | None => Err(Unknown),
    }
}

/// Whether the token that a request shows is the right one. `None` if it shows none.
fn shown(rest: &Rest, headers: &HeaderMap) -> Option<bool> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok())?;
    Some(rest.token.as_ref().is_some_and(|token| bearer_matches(given, token)))
}

/// Checks the host that a request names, everywhere it does, and the origin of the page that sent it, if one did. Gives that
/// origin if it is another one that may ask.
///
/// # Errors
/// When the host is not this daemon, or the origin may not ask.
fn check(uri: &Uri, headers: &HeaderMap, bound: SocketAddr, plan: &HttpPlan) -> Result<Option<HeaderValue>, Refusal> {
    let mut named = Vec::new();
    for value in headers.get_all(header::HOST) {
        let host = value.to_str().ok().and_then(HostPort::parse);
        named.push(host.ok_or_else(|| strange("the Host header names no host"))?);
    }
    if named.len() > 1 {
        return Err(strange("there are several Host headers"));
    }
    if let Some(authority) = uri.authority() {
        named.push(HostPort::parse(authority.as_str()).ok_or_else(|| strange("the address names no host"))?);
    }
    if named.is_empty() {
        return Err(strange("the request names no host"));
    }
    if let Some(other) = named.iter().find(|named| !is_ours(named, bound) && !is_allowed(named, plan)) {
        let port = other.port.map(|port| format!(":{port}")).unwrap_or_default();
        let what = format!("this daemon is not `{}{port}`", clip(&other.host, 80));
        let hint = format!(
            "use localhost or its own address with port {}; a name or a port that a proxy, a container or a tunnel gives it \
             stands in the world file: `http: {{ allowed_hosts: [NAME] }}`",
            bound.port()
        );
        return Err(Refusal::new(Code::PolicyDenied, what).hint(hint));
    }
    let mut page = None;
    for origin in headers.get_all(header::ORIGIN) {
        let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let own = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        if own.and_then(HostPort::parse).is_some_and(|own| named.iter().all(|named| *named == own)) {
            continue;
        }
        if !plan.allowed_origins.contains(&text) {
            return Err(Refusal::new(Code::PolicyDenied, "a page of another origin asked").hint(
                "only pages that this daemon served itself may ask it, and those of the world file's \
                 `http: { allowed_origins: [ORIGIN] }`",
            ));
        }
        page = Some(origin.clone());
    }
    Ok(page)
}

fn strange(message: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, message).hint("send one Host header with the daemon's address")
}

/// Whether a host is this machine: a loopback address, the one that the daemon listens on, or `localhost`, which is
/// resolved here; with the port that the daemon listens on.
fn is_ours(named: &HostPort, bound: SocketAddr) -> bool {
    if named.port.unwrap_or(HTTP) != bound.port() {
        return false;
    }
    if named.host == "localhost" {
        return true;
    }
    let Ok(address) = named.host.parse::<IpAddr>() else { return false };
    // Listening on all addresses, each of them is the daemon's; an address, unlike a name, cannot be pointed elsewhere.
    address.is_loopback() || address == bound.ip() || bound.ip().is_unspecified()
}

/// Whether the world's files say that the daemon goes by this name.
fn is_allowed(named: &HostPort, plan: &HttpPlan) -> bool {
    let port = |allowed: &HostPort| allowed.port.is_none_or(|port| named.port.unwrap_or(HTTP) == port);
    plan.allowed_hosts.iter().any(|allowed| allowed.host == named.host && port(allowed))
}

#[cfg(test)]
mod tests {
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
        check(&Uri::from_static("/healthz"), &map, bound.parse().unwrap(), &plan()).map_err(|refusal| refusal.code)
    }

    fn ask(bound: &str, headers: &[(&'static str, &str)]) -> Result<(), Code> {
        asked(bound, headers).map(|_| ())
    }

    #[test]
    fn only_this_machine_and_this_port_are_ours() {
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
            // Another port is another daemon.
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
    fn names_of_the_world_file_are_ours_too() {
        for host in ["ghost.example", "GHOST.example:443", "ghost.example:8080", "ghost:8080"] {
            assert_eq!(ask("0.0.0.0:8080", &[("host", host)]), Ok(()), "{host}");
        }
        for host in ["ghost", "ghost:8081", "x.ghost.example", "ghost.example.evil.com"] {
            assert_eq!(ask("0.0.0.0:8080", &[("host", host)]), Err(Code::PolicyDenied), "{host}");
        }
    }

    #[test]
    fn on_all_addresses_any_address_is_ours_and_no_name() {
        assert_eq!(ask("0.0.0.0:80", &[("host", "198.51.100.3:80")]), Ok(()));
        assert_eq!(ask("[::]:80", &[("host", "[2001:db8::1]:80")]), Ok(()));
        assert_eq!(ask("0.0.0.0:80", &[("host", "evil.example")]), Err(Code::PolicyDenied));
    }

    #[test]
    fn only_the_same_origin_and_those_of_the_world_file_may_ask() {
        let host = ("host", "localhost:8080");
        assert_eq!(asked(BOUND, &[host, ("origin", "http://localhost:8080")]), Ok(None));
        assert_eq!(asked(BOUND, &[host, ("origin", "https://localhost:8080")]), Ok(None));
        let page = asked(BOUND, &[host, ("origin", "https://dash.example")]).unwrap();
        assert_eq!(page.unwrap(), "https://dash.example");
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
    fn an_absolute_form_names_a_host_as_well() {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("localhost:8080"));
        let bound = BOUND.parse().unwrap();
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
