//! Which requests are looked at at all: the right host, the same origin, the token.
//!
//! Must never: trust a name that someone else's name server can point here.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ghost_domain::{Code, Refusal};

use super::failed::{Failed, body};
use super::rest::Rest;
use crate::auth::bearer_matches;

/// Lets requests through that were meant for this address, and for no page of another origin.
pub(super) async fn host(State(rest): State<Arc<Rest>>, request: Request, next: Next) -> Response {
    if let Err(refusal) = check(request.uri(), request.headers(), rest.bound) {
        return Failed(refusal).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Lets requests through that carry the token.
pub(super) async fn token(State(rest): State<Arc<Rest>>, request: Request, next: Next) -> Response {
    match has_token(&rest, request.headers()) {
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

pub(super) fn has_token(rest: &Rest, headers: &HeaderMap) -> Result<(), Unknown> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match (given, &rest.token) {
        (Some(given), Some(token)) if bearer_matches(given, token) => Ok(()),
        _ => Err(Unknown),
    }
}

/// Checks the host that a request names, everywhere it does, and the origin of the page that sent it, if one did.
fn check(uri: &Uri, headers: &HeaderMap, bound: SocketAddr) -> Result<(), Refusal> {
    let mut named = Vec::new();
    for value in headers.get_all(header::HOST) {
        named.push(authority(value).ok_or_else(|| strange("the Host header names no host"))?);
    }
    if named.len() > 1 {
        return Err(strange("there are several Host headers"));
    }
    named.extend(uri.authority().cloned());
    if named.is_empty() {
        return Err(strange("the request names no host"));
    }
    if let Some(other) = named.iter().find(|authority| !is_ours(authority.host(), bound)) {
        return Err(Refusal::new(Code::PolicyDenied, format!("this daemon is not `{}`", clipped(other.host())))
            .hint("use localhost or the address that the daemon listens on"));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let same = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")))
            .is_some_and(|origin| named.iter().all(|named| named.as_str().eq_ignore_ascii_case(origin)));
        if !same {
            return Err(Refusal::new(Code::PolicyDenied, "a page of another origin asked")
                .hint("only pages that this daemon served itself may ask it"));
        }
    }
    Ok(())
}

fn strange(message: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, message).hint("send one Host header with the daemon's address")
}

fn clipped(host: &str) -> String {
    ghost_domain::text::clip(host, 80)
}

fn authority(value: &HeaderValue) -> Option<Authority> {
    let authority: Authority = value.to_str().ok()?.parse().ok()?;
    // `user@host` is no Host.
    (!authority.as_str().contains('@')).then_some(authority)
}

/// Whether a host is this machine: a loopback address, the one that the daemon listens on, or `localhost`, which is
/// resolved here. The port is not looked at: tunnels change it, and no name server can.
fn is_ours(host: &str, bound: SocketAddr) -> bool {
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let Ok(address) = bare.parse::<IpAddr>() else { return false };
    // Listening on all addresses, each of them is the daemon's; an address, unlike a name, cannot be pointed elsewhere.
    address.is_loopback() || address == bound.ip() || bound.ip().is_unspecified()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUND: &str = "192.0.2.7:8080";

    fn ask(bound: &str, headers: &[(&'static str, &str)]) -> Result<(), Code> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        check(&Uri::from_static("/healthz"), &map, bound.parse().unwrap()).map_err(|refusal| refusal.code)
    }

    #[test]
    fn only_this_machine_is_ours() {
        for host in
            ["localhost", "LOCALHOST:9", "127.0.0.1:8080", "127.9.9.9", "[::1]:80", "192.0.2.7:8080", "192.0.2.7"]
        {
            assert_eq!(ask(BOUND, &[("host", host)]), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.8", "[::2]", "2130706433"]
        {
            assert_eq!(ask(BOUND, &[("host", host)]), Err(Code::PolicyDenied), "{host}");
        }
        for headers in
            [&[][..], &[("host", "")], &[("host", "a@localhost")], &[("host", "localhost"), ("host", "localhost")]]
        {
            assert_eq!(ask(BOUND, headers), Err(Code::InvalidArguments), "{headers:?}");
        }
    }

    #[test]
    fn on_all_addresses_any_address_is_ours_and_no_name() {
        assert_eq!(ask("0.0.0.0:80", &[("host", "198.51.100.3:80")]), Ok(()));
        assert_eq!(ask("[::]:80", &[("host", "[2001:db8::1]:80")]), Ok(()));
        assert_eq!(ask("0.0.0.0:80", &[("host", "evil.example")]), Err(Code::PolicyDenied));
    }

    #[test]
    fn only_the_same_origin_may_ask() {
        let host = ("host", "localhost:8080");
        assert_eq!(ask(BOUND, &[host, ("origin", "http://localhost:8080")]), Ok(()));
        assert_eq!(ask(BOUND, &[host, ("origin", "https://localhost:8080")]), Ok(()));
        for origin in ["http://evil.example", "http://localhost:3000", "null", "http://localhost:8080.evil.example", ""]
        {
            assert_eq!(ask(BOUND, &[host, ("origin", origin)]), Err(Code::PolicyDenied), "{origin}");
        }
    }

    #[test]
    fn an_absolute_form_names_a_host_as_well() {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("localhost"));
        let bound = BOUND.parse().unwrap();
        assert!(check(&Uri::from_static("http://evil.example/healthz"), &headers, bound).is_err());
        assert!(check(&Uri::from_static("http://localhost/healthz"), &headers, bound).is_ok());
    }

    proptest! {
        #[test]
        fn no_name_but_localhost_passes(name in "[a-z][a-z0-9-]{0,12}(\\.[a-z][a-z0-9-]{0,8}){0,3}") {
            prop_assume!(name != "localhost");
            prop_assert!(ask("0.0.0.0:80", &[("host", &name)]).is_err());
        }

        #[test]
        fn any_header_is_checked_without_a_panic(host in "[ -~]{0,60}", origin in "[ -~]{0,60}") {
            let _ = ask(BOUND, &[("host", &host), ("origin", &origin)]);
        }
    }
}
