//! The routes as a client of HTTP sees them.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use ghost_domain::Refusal;
use serde_json::Value;
use tower::ServiceExt;

use super::router;
use crate::fixture::Scene;

const TOKEN: &str = "a-long-enough-token";

fn routes(scene: &Scene) -> Router {
    router(scene.control.clone(), Some(TOKEN.into()), "127.0.0.1:8080".parse().unwrap())
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn refusal(&self) -> Refusal {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

async fn ask(routes: &Router, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost:8080");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    Answer { status: parts.status, headers: parts.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

async fn get(routes: &Router, path: &str) -> Answer {
    ask(routes, "GET", path, &[("authorization", &format!("Bearer {TOKEN}"))]).await
}

#[tokio::test]
async fn an_agents_tools_are_listed_as_names_and_descriptions() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    let answer = get(&routes, "/api/agents/ada/tools").await;
    assert_eq!(
        (answer.status, &answer.headers[header::CONTENT_TYPE]),
        (StatusCode::OK, &"application/json".parse().unwrap())
    );
    let tools: Vec<Value> = serde_json::from_str(&answer.body).unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "workspace.read"), "{tools:?}");
    assert!(!tools.iter().any(|tool| tool["name"] == "workspace.write"), "it was not granted: {tools:?}");
    for tool in &tools {
        let tool = tool.as_object().unwrap();
        assert!(tool.len() == 2 && tool.contains_key("name") && tool.contains_key("description"), "{tool:?}");
    }
    let brief = get(&routes, "/api/agents/ada/tools/brief").await;
    assert!(brief.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/plain"));
    let lines: String = tools
        .iter()
        .map(|tool| format!("- {}: {}\n", tool["name"].as_str().unwrap(), tool["description"].as_str().unwrap()))
        .collect();
    assert_eq!(brief.body, lines);
    assert_eq!(brief.body.lines().count(), tools.len());
}

#[tokio::test]
async fn what_is_not_there_is_refused_with_a_hint() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    let near = get(&routes, "/api/agents/adda/tools").await;
    assert_eq!((near.status, near.refusal().hint.as_deref()), (StatusCode::NOT_FOUND, Some("did you mean `ada`?")));
    for path in ["/api/agents/A%20B/tools", "/api/agents/%ff/tools/brief", "/api/agents/%00/tools"] {
        let answer = get(&routes, path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert!(answer.refusal().hint.is_some(), "{path}");
    }
    let nothing = get(&routes, "/api/nothing").await;
    assert_eq!((nothing.status, nothing.refusal().hint.is_some()), (StatusCode::NOT_FOUND, true));
    let posted = ask(&routes, "POST", "/healthz", &[]).await;
    assert_eq!((posted.status, posted.refusal().hint.as_deref()), (StatusCode::METHOD_NOT_ALLOWED, Some("use GET")));
}

#[tokio::test]
async fn only_health_is_open() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    assert_eq!(ask(&routes, "GET", "/healthz", &[]).await.body, "ok\n");
    assert_eq!(ask(&routes, "GET", "/readyz", &[]).await.body, "ready\n");
    for path in ["/api/agents/ada/tools", "/api/agents/ada/tools/brief", "/api/agents/none/tools", "/metrics"] {
        for wrong in [&[][..], &[("authorization", "Bearer a-long-enough-tokem")], &[("authorization", TOKEN)]] {
            let answer = ask(&routes, "GET", path, wrong).await;
            assert_eq!(
                (answer.status, &answer.headers[header::WWW_AUTHENTICATE]),
                (StatusCode::UNAUTHORIZED, &"Bearer".parse().unwrap()),
                "{path} {wrong:?}"
            );
            assert!(answer.refusal().hint.unwrap().contains("Bearer"), "{path}");
        }
    }
    // Without a token to compare with, nobody has it.
    let none = router(scene.control.clone(), None, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(get(&none, "/api/agents/ada/tools").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn other_hosts_and_other_origins_are_not_answered() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    let token = format!("Bearer {TOKEN}");
    for path in ["/healthz", "/readyz", "/metrics", "/api/agents/ada/tools", "/nothing"] {
        for headers in [
            &[("host", "evil.example:8080")][..],
            &[("host", "evil.example"), ("authorization", &token)],
            &[("origin", "http://evil.example"), ("authorization", &token)],
            &[("origin", "null")],
        ] {
            let answer = ask(&routes, "GET", path, headers).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {headers:?}");
            assert!(answer.refusal().hint.is_some());
        }
    }
    let own = ask(&routes, "GET", "/healthz", &[("origin", "http://localhost:8080")]).await;
    assert_eq!((own.status, &own.headers[header::CACHE_CONTROL]), (StatusCode::OK, &"no-store".parse().unwrap()));
}

#[tokio::test]
async fn a_daemon_that_stops_is_alive_and_not_ready() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    scene.closing.send_replace(true);
    assert_eq!(get(&routes, "/healthz").await.status, StatusCode::OK);
    let answer = get(&routes, "/readyz").await;
    assert_eq!(
        (answer.status, answer.refusal().code),
        (StatusCode::SERVICE_UNAVAILABLE, ghost_domain::Code::Unavailable)
    );
}

#[tokio::test]
async fn a_store_that_is_closed_is_not_ready() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    scene.world.store().close().await;
    assert_eq!(get(&routes, "/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn metrics_show_the_world_and_read_as_prometheus() {
    let scene = Scene::with("budgets: { world: { tokens: 1000, usd: 2 } }\nmetrics: { open: true }\n").await;
    let routes = routes(&scene);
    let page = ask(&routes, "GET", "/metrics", &[]).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    let last = scene.world.store().last_seq();
    for row in [
        "ghost_agents{status=\"running\"} 2",
        "ghost_agents{status=\"failed\"} 0",
        "ghost_open_turns 0",
        "ghost_inbox_total 0",
        "ghost_dead_letters_held 0",
        &format!("ghost_last_seq {last}"),
        &format!("ghost_events_total {last}"),
        "ghost_event_readers 0",
        "ghost_paused 0",
        "ghost_budget_tokens_limit{scope=\"world\"} 1000",
        "ghost_budget_micros_limit{scope=\"world\"} 2000000",
        "ghost_budget_tokens_spent{scope=\"world\"} 0",
        "ghost_model_calls_queued{provider=\"test\"} 0",
        "ghost_model_calls_in_use{provider=\"test\"} 0",
        "ghost_uptime_seconds 0",
    ] {
        assert!(page.body.lines().any(|line| line == row), "{row} is missing in\n{}", page.body);
    }
    let mut family = String::new();
    for line in page.body.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            typed.split(' ').next().unwrap().clone_into(&mut family);
        } else if !line.starts_with('#') {
            assert!(line.starts_with(&family), "{line} stands under {family}");
            assert!(line.rsplit(' ').next().unwrap().parse::<u64>().is_ok(), "{line}");
        }
    }
    assert!(page.body.contains("process_resident_memory_bytes "));
}
