//! Helpers that send requests to the routes.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use ghost_domain::Refusal;
use serde_json::Value;
use tower::ServiceExt;

use crate::http::router;
use crate::testing::TestControl;

pub(super) const TOKEN: &str = "a-long-enough-token";

pub(super) fn routes(test: &TestControl) -> Router {
    router(test.control.clone(), Some(TOKEN.into()), ("127.0.0.1:8080".parse().unwrap(), false))
}

pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn refusal(&self) -> Refusal {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body));
        let error = &body["error"];
        Refusal {
            code: serde_json::from_value(error["code"].clone()).unwrap_or_else(|wrong| panic!("{wrong}: {body}")),
            message: error["message"].as_str().unwrap().to_owned(),
            hint: error["hint"].as_str().map(str::to_owned),
            details: error.get("details").cloned(),
        }
    }
}

pub(super) async fn ask(routes: &Router, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    with_body(routes, method, path, headers, Body::empty()).await
}

/// A write with the token and an idempotency key.
pub(super) async fn write(routes: &Router, method: &str, path: &str, key: &str, body: &Value) -> Answer {
    let token = format!("Bearer {TOKEN}");
    let headers = [("authorization", token.as_str()), ("content-type", "application/json"), ("idempotency-key", key)];
    with_body(routes, method, path, &headers, Body::from(body.to_string())).await
}

async fn with_body(routes: &Router, method: &str, path: &str, headers: &[(&str, &str)], body: Body) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost:8080");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = routes.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    Answer { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

pub(super) async fn get(routes: &Router, path: &str) -> Answer {
    ask(routes, "GET", path, &[("authorization", &format!("Bearer {TOKEN}"))]).await
}
