//! The table of all routes. The router and the OpenAPI document are both built from it, so they cannot differ. The routes of
//! methods come from the options of the contract.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::routing::{MethodRouter, get, post};
use ghost_domain::text::one_line;
use ghost_domain::transcript::ToolSpec;
use ghost_proto::http::{self, Verb};
use serde_json::{Value, json};

use super::params::Params;
use super::rest::{Access, Answer, Failed, Rest, Route, Serve, Shared};
use super::transcode::{self, Names, names};
use super::{credentials, events, health, hooks, openapi};
use crate::queries::registry;

/// All routes.
pub(super) static ROUTES: LazyLock<Vec<Route>> =
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
pub(super) fn handler(route: &Route) -> MethodRouter<Arc<Rest>> {
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
            || post(credentials::issue_ticket),
        ),
        route(
            Verb::Post,
            Access::Bearer,
            "/api/session",
            "Issues a cookie that replaces the token in this browser for 12 hours.",
            Answer::Json("An object with `expires_at`; the cookie is HttpOnly."),
            || post(credentials::issue_cookie),
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
