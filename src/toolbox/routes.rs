//! The requests: who may make them, and how large they may be.
//!
//! Nothing of a request but its head must be read before its token is checked.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ghost_domain::bearer::bearer_matches;
use ghost_domain::{Code, Refusal};
use ghost_sandbox::Protection;
use ghost_sandbox::remote::protocol::{Ended, Exec, HEAD_MAX, Health, Read, VERSION};
use serde::Deserialize;

use crate::refused::Refused;
use crate::requests::parsed;
use crate::worlds::Worlds;
use crate::{exec, files};

/// The routes of the server.
pub(crate) fn router(worlds: Arc<Worlds>, token: Arc<str>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/exec", post(run))
        .route("/exec-stream", post(run_stream))
        .route("/workspace/read", post(read))
        .route("/workspace/write", post(write))
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(HEAD_MAX))
        .layer(from_fn_with_state(token, guard))
        .with_state(worlds)
}

async fn guard(State(token): State<Arc<str>>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if given.is_some_and(|given| bearer_matches(given, &token)) {
        return next.run(request).await;
    }
    let what = if given.is_some() { "the token is wrong" } else { "a token is needed" };
    Refused(Refusal::new(Code::AccessDenied, what).hint("send `authorization: Bearer <token>`")).into_response()
}

async fn nothing() -> Response {
    let refusal = Refusal::new(Code::NotFound, "there is nothing at this path")
        .hint("/health, /exec, /exec-stream, /workspace/read or /workspace/write");
    (StatusCode::NOT_FOUND, Json(refusal)).into_response()
}

#[derive(Deserialize)]
struct Of {
    world: Option<String>,
}

async fn health(State(worlds): State<Arc<Worlds>>, Query(of): Query<Of>) -> Result<Json<Health>, Refused> {
    let workspace = of.world.map(|world| worlds.workspace(&world)).transpose()?;
    let report = worlds.report();
    Ok(Json(Health {
        version: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        protections: Protection::names(report.in_force).into_iter().map(str::to_owned).collect(),
        missing: report.missing.clone(),
        workspace: workspace.map(|path| path.display().to_string()),
    }))
}

async fn run(State(worlds): State<Arc<Worlds>>, body: Bytes) -> Result<Json<Ended>, Refused> {
    let request: Exec = parsed(&body)?;
    Ok(Json(exec::once(&worlds, request).await?))
}

async fn run_stream(State(worlds): State<Arc<Worlds>>, body: Body) -> Result<Response, Refused> {
    Ok(exec::stream(worlds, body).await?)
}

async fn read(State(worlds): State<Arc<Worlds>>, body: Bytes) -> Result<Response, Refused> {
    let request: Read = parsed(&body)?;
    Ok(files::read(&worlds, request).await?)
}

async fn write(State(worlds): State<Arc<Worlds>>, body: Body) -> Result<Response, Refused> {
    Ok(Json(files::write(&worlds, body).await?).into_response())
}
