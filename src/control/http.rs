//! The HTTP side: the world to be read and written to, its events as they happen, health and metrics (CP-02, CP-06, CP-11).
//! Only who holds the token sees more than health.
//!
//! Must never: answer a page of another origin, or a name that is not this machine's (DNS rebinding).

mod admission;
mod events;
mod exposition;
mod failed;
mod guard;
mod health;
mod hooks;
mod metrics;
mod openapi;
mod params;
mod reads;
mod rest;
mod route;
mod routes;
mod session;
mod shapes;
#[cfg(test)]
mod tests;
mod tickets;
mod writes;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal};

use self::failed::{Failed, body};
use self::rest::{Description, Rest};
use self::route::Access;
use self::routes::ROUTES;
use self::tickets::Tickets;
use crate::control::Control;
use crate::services::AgentsService;

/// Bytes of a body: a message with room around it.
const BODY_MAX: usize = 4 * 1024 * 1024;

/// The routes of the HTTP side, which listens on `bound`.
pub fn router(control: Control, token: Option<Arc<str>>, bound: SocketAddr) -> Router {
    let rest = Arc::new(Rest {
        agents: AgentsService::new(control.clone()),
        control,
        token,
        bound,
        tickets: Tickets::lasting(tickets::GOOD_FOR),
        sessions: Tickets::lasting(session::GOOD_FOR),
        description: Description::new(|| openapi::document(ROUTES).to_string()),
    });
    let of = |access: Access| {
        let routes = ROUTES.iter().filter(move |route| route.access == access);
        routes.fold(Router::new(), |router, route| router.route(route.path, (route.serve)()))
    };
    let with_bearer = of(Access::Bearer).route_layer(from_fn_with_state(Arc::clone(&rest), guard::bearer));
    let with_token = of(Access::Token).route_layer(from_fn_with_state(Arc::clone(&rest), guard::token));
    // A page can put no header on these requests, so a ticket opens them, too.
    let with_ticket = of(Access::Ticket).route_layer(from_fn_with_state(Arc::clone(&rest), admission::or_token));
    let signed = ROUTES.iter().filter(|route| route.access == Access::Signed);
    let router = of(Access::Open)
        .merge(of(Access::Setting))
        .merge(with_bearer)
        .merge(with_token)
        .merge(with_ticket)
        .fallback(nothing_here)
        .method_not_allowed_fallback(another_verb)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(from_fn_with_state(Arc::clone(&rest), guard::host));
    // Signed by its sender, so neither the host nor the token is asked for.
    signed
        .fold(router, |router, route| router.route(route.path, (route.serve)().fallback(hooks::only_posting)))
        .with_state(rest)
}

async fn nothing_here(request: Request) -> Failed {
    Refusal::new(Code::NotFound, format!("there is nothing at {}", clip(request.uri().path(), 200)))
        .hint(
            "/api/agents, /api/channels, /api/tasks, /api/ledger, /api/events, /healthz, /readyz or /metrics; \
             /api/openapi.json describes them all",
        )
        .into()
}

async fn another_verb(request: Request) -> Response {
    // A part in braces stands for any.
    let is_here = |path: &str| {
        let (asked, parts) = (request.uri().path().split('/'), path.split('/'));
        asked.clone().count() == parts.clone().count()
            && asked.zip(parts).all(|(asked, part)| part == asked || part.starts_with('{'))
    };
    let here = ROUTES.iter().filter(|route| is_here(route.path));
    let verbs: Vec<&str> = here.map(|route| route.verb.as_str()).collect();
    let what = format!("{} is not asked of {}", request.method(), clip(request.uri().path(), 200));
    let refusal = Refusal::new(Code::InvalidArguments, what).hint(format!("use {}", verbs.join(" or ")));
    (StatusCode::METHOD_NOT_ALLOWED, Json(body(&refusal))).into_response()
}
