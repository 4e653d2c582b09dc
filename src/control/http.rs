//! The HTTP side: routes for reading and writing the world, event streams, health and metrics. Only health, the API
//! description and, if `world-config.yaml` allows it, metrics are available without a token.
//!
//! The router must never serve a page of another origin that is not allowed, or accept a host name
//! that is not this daemon's (DNS rebinding).

mod credentials;
mod events;
mod guard;
mod health;
mod hooks;
mod openapi;
mod params;
mod rest;
mod routes;
#[cfg(test)]
mod tests;
mod transcode;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal};

use self::rest::{Access, Failed, Rest, Tickets, body};
use self::routes::{ROUTES, handler};
use crate::control::Control;
use crate::services;

/// Largest request body in bytes: more than the largest message.
const BODY_MAX: usize = 4 * 1024 * 1024;

/// The router of the HTTP side, which listens on `bound`, if `has_tls` with TLS.
pub fn router(control: Control, token: Option<Arc<str>>, (bound, has_tls): (SocketAddr, bool)) -> Router {
    let rest = Arc::new(Rest {
        control,
        methods: services::methods(),
        token,
        bound,
        has_tls,
        tickets: Tickets::with_lifetime(rest::TICKET_LIFETIME),
        sessions: Tickets::with_lifetime(credentials::COOKIE_LIFETIME),
        description: LazyLock::new(|| openapi::document(&ROUTES, &services::methods()).to_string()),
    });
    let routes_with = |access: Access| {
        let routes = ROUTES.iter().filter(move |route| route.access == access);
        routes.fold(Router::new(), |router, route| router.route(route.path, handler(route)))
    };
    let with_bearer =
        routes_with(Access::Bearer).route_layer(from_fn_with_state(Arc::clone(&rest), credentials::bearer));
    let with_token = routes_with(Access::Token).route_layer(from_fn_with_state(Arc::clone(&rest), credentials::token));
    // Browsers cannot set headers on these requests, so a ticket in the URL is accepted too.
    let with_ticket =
        routes_with(Access::Ticket).route_layer(from_fn_with_state(Arc::clone(&rest), credentials::or_token));
    let signed = ROUTES.iter().filter(|route| route.access == Access::Signed);
    let router = routes_with(Access::Open)
        .merge(routes_with(Access::Setting))
        .merge(with_bearer)
        .merge(with_token)
        .merge(with_ticket)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(from_fn_with_state(Arc::clone(&rest), guard::host));
    // The sender signs these requests, so neither host nor token is checked.
    signed
        .fold(router, |router, route| router.route(route.path, handler(route).fallback(hooks::method_not_allowed)))
        .layer(from_fn(as_people))
        .with_state(rest)
}

/// Runs a request as one of people; see [`ghost_store::for_people`].
pub(crate) async fn as_people(request: Request, next: Next) -> Response {
    ghost_store::for_people(next.run(request)).await
}

async fn not_found(request: Request) -> Failed {
    Refusal::new(Code::NotFound, format!("there is nothing at {}", clip(request.uri().path(), 200)))
        .hint(
            "/api/agents, /api/channels, /api/tasks, /api/ledger, /api/events, /healthz, /readyz or /metrics; \
             /api/openapi.json describes them all",
        )
        .into()
}

async fn method_not_allowed(request: Request) -> Response {
    // A path segment in braces matches any segment.
    let matches = |path: &str| {
        let (requested, parts) = (request.uri().path().split('/'), path.split('/'));
        requested.clone().count() == parts.clone().count()
            && requested.zip(parts).all(|(requested, part)| part == requested || part.starts_with('{'))
    };
    let matching = ROUTES.iter().filter(|route| matches(route.path));
    let verbs: Vec<&str> = matching.map(|route| route.verb.as_str()).collect();
    let what = format!("{} is not allowed for {}", request.method(), clip(request.uri().path(), 200));
    let refusal = Refusal::new(Code::InvalidArguments, what).hint(format!("use {}", verbs.join(" or ")));
    (StatusCode::METHOD_NOT_ALLOWED, Json(body(&refusal))).into_response()
}
