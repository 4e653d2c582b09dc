//! The HTTP side: the world to be read, its events as they happen, health and metrics (CP-02, CP-06, CP-11). Only who
//! holds the token sees more than health.
//!
//! Must never: answer a page of another origin, or a name that is not this machine's (DNS rebinding).

mod admission;
mod events;
mod failed;
mod guard;
mod hooks;
mod metrics;
mod params;
mod reads;
mod rest;
#[cfg(test)]
mod tests;
mod tickets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ghost_commons::feed::Subscription;
use ghost_commons::mail::agent_for_operator;
use ghost_domain::event::EventFilter;
use ghost_domain::text::{clip, one_line};
use ghost_domain::transcript::ToolSpec;
use ghost_domain::{AgentId, Code, Refusal};
use ghost_world::LoopDown;
use serde_json::{Value, json};

use self::failed::{Failed, body};
use self::params::Params;
use self::reads::{Named, named};
use self::rest::{Rest, Shared};
use self::tickets::Tickets;
use crate::control::Control;
use crate::services::AgentsService;

/// A store that has not answered for so long does not.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// The routes of the HTTP side, which listens on `bound`.
pub fn router(control: Control, token: Option<Arc<str>>, bound: SocketAddr) -> Router {
    let rest = Arc::new(Rest {
        agents: AgentsService::new(control.clone()),
        control,
        token,
        bound,
        tickets: Tickets::default(),
    });
    let with_token = Router::new()
        .route("/api/agents", get(reads::agents))
        .route("/api/agents/{id}", get(reads::agent))
        .route("/api/agents/{id}/tools", get(tools))
        .route("/api/agents/{id}/tools/brief", get(brief))
        .route("/api/channels", get(reads::channels))
        .route("/api/channels/{name}/messages", get(reads::messages))
        .route("/api/events/ticket", post(admission::issue).fallback(admission::only_posting))
        .route("/api/ledger", get(reads::ledger))
        .route("/api/tasks", get(reads::tasks))
        .route("/api/tasks/{id}", get(reads::task))
        .route_layer(from_fn_with_state(Arc::clone(&rest), guard::token));
    // A page can put no header on these requests, so a ticket opens them, too.
    let with_ticket = Router::new()
        .route("/api/events", get(events::sent))
        .route("/api/events/stream", get(events::sent))
        .route("/api/events/ws", get(events::socket))
        .route_layer(from_fn_with_state(Arc::clone(&rest), admission::or_token));
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(figures))
        .merge(with_token)
        .merge(with_ticket)
        .fallback(nothing_here)
        .method_not_allowed_fallback(only_reading)
        .layer(from_fn_with_state(Arc::clone(&rest), guard::host))
        // Signed by its sender, so neither the host nor the token is asked for.
        .route("/hooks/{name}", post(hooks::inbound).fallback(hooks::only_posting))
        .with_state(rest)
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(rest): Shared) -> Result<&'static str, Failed> {
    let Control { world, closed, .. } = &rest.control;
    if *closed.borrow() || world.directory().is_closing() {
        return Err(Refusal::new(Code::Unavailable, "the daemon is stopping").into());
    }
    if let Some(down) = loop_down(&world.loops().down()) {
        return Err(down.into());
    }
    let answer = async {
        // Opening a reader asks whatever reads where the feed stands.
        Subscription::open(world.store(), None, EventFilter::default(), false).await?;
        world.store().answers().await.map_err(Refusal::from)
    };
    tokio::select! {
        biased;
        answered = answer => answered.map(|()| "ready\n").map_err(Failed),
        () = world.cx().ports.clock.sleep(READY_WITHIN) => {
            Err(Refusal::new(Code::Unavailable, "the store does not answer").into())
        }
    }
}

/// What is said of the loops that are down, if any is.
fn loop_down(down: &[LoopDown]) -> Option<Refusal> {
    if down.is_empty() {
        return None;
    }
    // The names alone: whoever asks here has shown no token.
    let names: Vec<&str> = down.iter().map(|down| down.name).collect();
    let refusal = Refusal::new(Code::Unavailable, format!("a loop of the daemon is down: {}", names.join(", ")));
    Some(
        refusal.details(json!({ "loops_down": names })).hint("it is begun again by itself; `ghostctl status` says why"),
    )
}

async fn figures(State(rest): Shared, request: Request) -> Response {
    if !rest.control.world.plan().metrics_open
        && let Err(unknown) = guard::has_token(&rest, request.headers())
    {
        return unknown.into_response();
    }
    match metrics::text(&rest.control).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(refusal) => Failed(refusal).into_response(),
    }
}

async fn tools(State(rest): Shared, id: Named, uri: Uri) -> Result<Json<Vec<Value>>, Failed> {
    Params::read(&uri, &[], &[])?;
    let specs = specs(&rest.control, id).await?;
    let row = |spec: &ToolSpec| json!({ "name": spec.name, "description": one_line(&spec.description) });
    Ok(Json(specs.iter().map(row).collect()))
}

async fn brief(State(rest): Shared, id: Named, uri: Uri) -> Result<String, Failed> {
    Params::read(&uri, &[], &[])?;
    let specs = specs(&rest.control, id).await?;
    Ok(specs.iter().map(|spec| format!("- {}: {}\n", spec.name, one_line(&spec.description))).collect())
}

async fn specs(control: &Control, id: Named) -> Result<Arc<[ToolSpec]>, Failed> {
    let agent_id: AgentId = named(id)?.parse()?;
    let world = &control.world;
    let cx = world.cx().clone();
    let agent = world
        .store()
        .read(move |r| Box::pin(async move { agent_for_operator(r, |agent| cx.may_run(agent), &agent_id).await }))
        .await?;
    let (_, registry) = world.engine().outfit(&agent)?;
    Ok(registry.specs())
}

async fn nothing_here(request: Request) -> Failed {
    Refusal::new(Code::NotFound, format!("there is nothing at {}", clip(request.uri().path(), 200)))
        .hint(
            "/api/agents, /api/channels, /api/tasks, /api/ledger, /api/events, /healthz, /readyz or /metrics; \
             docs/operations.md has them all",
        )
        .into()
}

async fn only_reading() -> Response {
    let refusal = Refusal::new(Code::InvalidArguments, "these routes are only read").hint("use GET");
    (StatusCode::METHOD_NOT_ALLOWED, Json(body(&refusal))).into_response()
}
