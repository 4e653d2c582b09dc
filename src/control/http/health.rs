//! Health checks and the metrics endpoint.
//!
//! A client without the token must never learn more than whether the daemon is healthy.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use ghost_domain::event::EventFilter;
use ghost_domain::{Code, Refusal};
use ghost_operations::feed::Subscription;
use ghost_world::LoopDown;
use serde_json::json;

use super::failed::Failed;
use super::rest::Shared;
use super::{credentials, metrics};
use crate::control::Control;

/// Timeout of the store check. After it, the store is reported as not responding.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// `GET /healthz`
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`
pub(super) async fn readyz(State(rest): Shared) -> Result<&'static str, Failed> {
    let Control { world, closed, .. } = &rest.control;
    if *closed.borrow() || world.directory().is_closing() {
        return Err(Refusal::new(Code::Unavailable, "the daemon is stopping").into());
    }
    if let Some(down) = loop_down(&world.loops().down()) {
        return Err(down.into());
    }
    let answer = async {
        // Opening a subscription checks the store's readers. `answers` checks the writer too.
        Subscription::open(world.store(), None, EventFilter::default(), false).await?;
        world.store().answers().await.map_err(Refusal::from)
    };
    tokio::select! {
        biased;
        result = answer => result.map(|()| "ready\n").map_err(Failed),
        () = world.ctx().ports.clock.sleep(READY_WITHIN) => {
            Err(Refusal::new(Code::Unavailable, "the store does not answer").into())
        }
    }
}

/// The refusal that names the loops that are down, if any.
fn loop_down(down: &[LoopDown]) -> Option<Refusal> {
    if down.is_empty() {
        return None;
    }
    // Only the names: this endpoint needs no token.
    let names: Vec<&str> = down.iter().map(|down| down.name).collect();
    let refusal = Refusal::new(Code::Unavailable, format!("a loop of the daemon is down: {}", names.join(", ")));
    Some(
        refusal
            .details(json!({ "loops_down": names }))
            .hint("it restarts by itself; `ghostctl status` shows the error"),
    )
}

/// `GET /metrics`
pub(super) async fn prometheus(State(rest): Shared, request: Request) -> Response {
    if !rest.control.world.plan().metrics_open
        && let Err(unauthenticated) = credentials::has_token(&rest, request.method(), request.headers())
    {
        return unauthenticated.into_response();
    }
    match metrics::text(&rest.control).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(refusal) => Failed(refusal).into_response(),
    }
}
