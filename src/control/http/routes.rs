//! The table of all routes. The router and the OpenAPI document are both built from it, so they cannot differ. The routes of
//! methods come from the options of the contract.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::routing::{MethodRouter, get, post};
use ghost_domain::text::one_line;
use ghost_domain::transcript::ToolSpec;
use ghost_proto::http::{self, Field, Verb};
use serde_json::{Value, json};

use super::failed::Failed;
use super::params::Params;
use super::rest::{Rest, Shared};
use super::transcode::{self, Names, names};
use super::{admission, events, health, hooks, openapi, session};
use crate::services::tool_registry::listed;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Everyone who reaches the daemon.
    Open,
    /// Everyone if `world-config.yaml` allows it, otherwise holders of the token or a session
    /// cookie.
    Setting,
    /// Holders of the token itself. A cookie is not enough: a cookie that could renew itself would
    /// never expire.
    Bearer,
    /// Holders of the token or a session cookie.
    Token,
    /// Holders of the token, a session cookie or a ticket.
    Ticket,
    /// Senders who sign with the webhook's secret.
    Signed,
}

/// The response of a route.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// The JSON of the answer of a method.
    Method(&'static http::Route),
    /// Text of this media type.
    Text(&'static str),
    /// Any other JSON, with its description.
    Json(&'static str),
}

/// One route.
pub(super) struct Route {
    pub(super) verb: Verb,
    /// Path, with parameters in braces.
    pub(super) path: &'static str,
    pub(super) access: Access,
    /// One sentence about it, for the OpenAPI document.
    pub(super) about: &'static str,
    pub(super) fields: &'static [Field],
    pub(super) answer: Answer,
    serve: Serve,
}

#[derive(Clone, Copy)]
enum Serve {
    Handler(fn() -> MethodRouter<Arc<Rest>>),
    Method(&'static http::Route),
}

impl Route {
    /// Its handler.
    pub(super) fn serve(&self) -> MethodRouter<Arc<Rest>> {
        match self.serve {
            Serve::Handler(handler) => handler(),
            Serve::Method(route) => transcode::serve(route),
        }
    }

    fn of_method(route: &'static http::Route) -> Self {
        let answer = match route.method {
            "/ghost.v1.Chat/History" => Answer::Json("An object with `messages` and `truncated`."),
            _ => Answer::Method(route),
        };
        let http::Route { verb, path, about, fields, .. } = *route;
        Self { verb, path, access: Access::Token, about, fields, answer, serve: Serve::Method(route) }
    }
}

/// All routes.
pub(super) static ROUTES: LazyLock<Vec<Route>> =
    LazyLock::new(|| own().into_iter().chain(http::ROUTES.iter().map(Route::of_method)).collect());

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
            || post(admission::issue),
        ),
        route(
            Verb::Post,
            Access::Bearer,
            "/api/session",
            "Issues a cookie that replaces the token in this browser for 12 hours.",
            Answer::Json("An object with `expires_at`; the cookie is HttpOnly."),
            || post(session::issue),
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
    Ok(listed(&rest.control.world, &id.parse()?).await?)
}
