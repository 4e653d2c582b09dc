//! The HTTP side: routes for reading and writing the world, event streams, health and metrics. Only health, the API
//! description and, if `world-config.yaml` allows it, metrics are available without a token. No page of another origin and no
//! host name of another machine (DNS rebinding) is accepted, unless the world file allows it.
//!
//! The router and the OpenAPI document are both built from one table of routes, so they cannot differ.

mod events;
mod guard;
mod health;
mod hooks;
mod openapi;
mod rest;
#[cfg(test)]
mod tests;
mod transcode;

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use ghost_domain::text::{clip, one_line};
use ghost_domain::transcript::ToolSpec;
use ghost_domain::{Code, Refusal};
use ghost_proto::http::{self, Verb};
use serde_json::{Value, json};

use self::rest::{Access, Answer, Failed, Rest, Route, Serve, Shared, Tickets, body};
use self::transcode::{Names, Params, names};
use crate::control::Control;
use crate::queries::registry;
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
        sessions: Tickets::with_lifetime(guard::COOKIE_LIFETIME),
        description: LazyLock::new(|| openapi::document(&ROUTES, &services::methods()).to_string()),
    });
    let routes_with = |access: Access| {
        let routes = ROUTES.iter().filter(move |route| route.access == access);
        routes.fold(Router::new(), |router, route| router.route(route.path, handler(route)))
    };
    let with_bearer = routes_with(Access::Bearer).route_layer(from_fn_with_state(Arc::clone(&rest), guard::bearer));
    let with_token = routes_with(Access::Token).route_layer(from_fn_with_state(Arc::clone(&rest), guard::token));
    // Browsers cannot set headers on these requests, so a ticket in the URL is accepted too.
    let with_ticket = routes_with(Access::Ticket).route_layer(from_fn_with_state(Arc::clone(&rest), guard::or_token));
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

/// All routes.
static ROUTES: LazyLock<Vec<Route>> =
    LazyLock::new(|| own().into_iter().chain(http::ROUTES.iter().map(of_method)).collect());

fn of_method(route: &'static http::Route) -> Route {
    let answer = match route.method {
        "/ghost.v1.Chat/History" => Answer::Json("An object with `messages` and `truncated`."),
        _ => Answer::Method(route),
    };
    let http::Route { verb, path, about, fields, .. } = *route;
    Route { verb, path, access: Access::Token, about, fields, answer, serve: Serve::Method(route) }
}

/// The handler of a route.
fn handler(route: &Route) -> MethodRouter<Arc<Rest>> {
    match route.serve {
        Serve::Handler(handler) => handler(),
        Serve::Method(route) => transcode::serve(route),
    }
}

/// The routes that are no methods.
fn own() -> Vec<Route> {
    let route = |verb, access, path, about, answer, handler| Route {
        verb,
        access,
        path,
        about,
        answer,
        fields: &[],
        serve: Serve::Handler(handler),
    };
    let read = |access, path, about, answer, handler| route(Verb::Get, access, path, about, answer, handler);
    let stream = |path, about, answer, handler| Route {
        fields: events::FIELDS,
        ..read(Access::Ticket, path, about, answer, handler)
    };
    let plain = Answer::Text("text/plain");
    vec![
        read(Access::Open, "/healthz", "Whether the process responds.", plain, || get(health::healthz)),
        read(
            Access::Open,
            "/readyz",
            "Whether the store reads and writes, and the daemon is not stopping.",
            plain,
            || get(health::readyz),
        ),
        read(
            Access::Setting,
            "/metrics",
            "Metrics for Prometheus; no token is needed if world-config.yaml allows it.",
            plain,
            || get(health::prometheus),
        ),
        read(Access::Open, "/api/openapi.json", "This description.", Answer::Json("An OpenAPI 3.1 document."), || {
            get(openapi::serve)
        }),
        read(
            Access::Token,
            "/api/agents/{id}/tools",
            "The tools of an agent.",
            Answer::Json("An array of objects with `name` and `description`."),
            || get(tools),
        ),
        read(Access::Token, "/api/agents/{id}/tools/brief", "The same, a line for each tool.", plain, || get(brief)),
        route(
            Verb::Post,
            Access::Token,
            "/api/events/ticket",
            "Issues a ticket that opens one stream, once, within 30 seconds.",
            Answer::Json("An object with `ticket` and `expires_at`."),
            || post(guard::issue_ticket),
        ),
        route(
            Verb::Post,
            Access::Bearer,
            "/api/session",
            "Issues a cookie that replaces the token in this browser for 12 hours.",
            Answer::Json("An object with `expires_at`; the cookie is HttpOnly."),
            || post(guard::issue_cookie),
        ),
        stream("/api/events", "Events as they happen.", Answer::Text("text/event-stream"), || {
            get(events::server_sent_events)
        }),
        stream("/api/events/stream", "The same as /api/events.", Answer::Text("text/event-stream"), || {
            get(events::server_sent_events)
        }),
        stream(
            "/api/events/ws",
            "The same events over a WebSocket, one event per frame.",
            Answer::Text("application/json"),
            || get(events::socket),
        ),
        route(
            Verb::Post,
            Access::Signed,
            "/hooks/{name}",
            "A message from outside, signed with the webhook's secret.",
            Answer::Json("An object with `conversation_id`, `message_id`, `seq` and `thread`."),
            || post(hooks::inbound),
        ),
    ]
}

// The method `Tools.List` gives pages; these routes give all tools at once.

async fn tools(State(rest): Shared, id: Names, uri: Uri) -> Result<Json<Vec<Value>>, Failed> {
    let specs = specs(&rest, id, &uri).await?;
    let row = |spec: &ToolSpec| json!({ "name": spec.name, "description": one_line(&spec.description) });
    Ok(Json(specs.iter().map(row).collect()))
}

async fn brief(State(rest): Shared, id: Names, uri: Uri) -> Result<String, Failed> {
    let specs = specs(&rest, id, &uri).await?;
    Ok(specs.iter().map(|spec| format!("- {}: {}\n", spec.name, one_line(&spec.description))).collect())
}

async fn specs(rest: &Rest, id: Names, uri: &Uri) -> Result<Arc<[ToolSpec]>, Failed> {
    Params::read(uri, &[])?;
    let id = names(id)?.into_iter().next().map(|(_, id)| id).unwrap_or_default();
    Ok(registry(&rest.control.world, &id.parse()?).await?.specs())
}
