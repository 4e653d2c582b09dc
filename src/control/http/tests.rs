//! The routes as a client of HTTP sees them.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use ghost_domain::{Code, Refusal};
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
    for path in ["/api/agents", "/api/agents/ada/tools/brief", "/api/agents/none/tools", "/api/events", "/metrics"] {
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
async fn a_page_is_what_was_asked_for_or_refused() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    scene.channel("desk").await;
    for path in [
        "/api/agents?limit=0",
        "/api/agents?limit=501",
        "/api/tasks?limit=0",
        "/api/tasks?limit=4294967295",
        "/api/ledger?limit=501",
        "/api/channels/desk/messages?limit=0",
        "/api/channels/desk/messages?limit=501",
    ] {
        let answer = get(&routes, path).await;
        let refusal = answer.refusal();
        assert_eq!((answer.status, refusal.code), (StatusCode::BAD_REQUEST, Code::InvalidArguments), "{path}");
        assert!(refusal.message.contains("1 to 500") && refusal.hint.is_some(), "{path}: {refusal}");
        assert_eq!(refusal.details.unwrap()["field"], "limit", "{path}");
    }
    // Of the right form, and yet given by no page.
    for path in
        ["/api/agents?cursor=ada", "/api/tasks?cursor=0/5.00", "/api/ledger?cursor=5.000000000000000000000000000000ff"]
    {
        let answer = get(&routes, path).await;
        assert_eq!((answer.status, answer.refusal().code), (StatusCode::BAD_REQUEST, Code::InvalidArguments), "{path}");
        assert!(answer.refusal().hint.unwrap().contains("next_cursor"), "{path}");
    }
    let first: Value = serde_json::from_str(&get(&routes, "/api/agents?limit=1").await.body).unwrap();
    let rest = get(&routes, &format!("/api/agents?limit=1&cursor={}", first["next_cursor"].as_str().unwrap())).await;
    let rest: Value = serde_json::from_str(&rest.body).unwrap();
    assert_eq!((&rest["agents"][0]["agent_id"], &rest["next_cursor"]), (&"ben".into(), &Value::Null));
    for (path, hint) in [
        ("/api/ledger?tool=workspace.raed", "did you mean `workspace.read`?"),
        ("/api/ledger?tool=wholly-unknown", "tool list"),
        ("/api/events?channel=dsek", "did you mean `desk`?"),
    ] {
        let answer = get(&routes, path).await;
        assert_eq!((answer.status, answer.refusal().code), (StatusCode::NOT_FOUND, Code::NotFound), "{path}");
        assert!(answer.refusal().hint.unwrap().contains(hint), "{path}");
    }
    assert_eq!(get(&routes, "/api/ledger?tool=workspace.read").await.status, StatusCode::OK);
    // A field is called what it is called in an address.
    let ahead = get(&routes, "/api/channels/desk/messages?after=9").await;
    assert_eq!(ahead.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert!(ahead.refusal().message.starts_with("after is 9"), "{}", ahead.body);
}

#[tokio::test]
async fn other_hosts_and_other_origins_are_not_answered() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    let token = format!("Bearer {TOKEN}");
    for path in ["/healthz", "/readyz", "/metrics", "/api/agents/ada/tools", "/api/events", "/api/tasks", "/nothing"] {
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

#[tokio::test]
async fn events_are_sent_with_their_ids_and_resumed_by_header() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    scene.emit_many(3).await;
    let last = scene.world.store().last_seq();
    let token = format!("Bearer {TOKEN}");
    let mut answer = stream(&routes, "/api/events?after=oldest", &[("authorization", &token)]).await;
    for seq in 1..=last {
        let block = answer.block().await;
        let data: Value = serde_json::from_str(block.line("data: ")).unwrap();
        assert_eq!((data["seq"].to_string(), block.line("id: ")), (seq.to_string(), seq.to_string().as_str()));
        assert_eq!(data["kind"], block.line("event: "));
        assert!(data["event_id"].is_string() && data["ts"].is_string() && data["payload"].is_object(), "{data}");
    }
    let mut resumed = stream(
        &routes,
        "/api/events/stream?after=oldest",
        &[("authorization", &token), ("last-event-id", &(last - 1).to_string())],
    )
    .await;
    assert_eq!(resumed.block().await.line("id: "), last.to_string());
    // What is streamed only has no id to resume with.
    let mut words =
        stream(&routes, "/api/events?after=now&ephemeral=true&kind=model.*", &[("authorization", &token)]).await;
    scene.ephemeral(ghost_domain::EventKind::ModelDelta);
    let block = words.block().await;
    assert_eq!(block.line("event: "), "model.delta");
    assert!(!block.0.contains("id: ") && block.line("data: ").contains("\"ephemeral\":true"), "{block:?}");
    scene.closing.send_replace(true);
    let end = resumed.block().await;
    assert_eq!((end.line("event: "), end.line("id: ")), ("stopping", last.to_string().as_str()));
    let told: Value = serde_json::from_str(end.line("data: ")).unwrap();
    assert_eq!((&told["last_seq"], &told["error"]["code"]), (&last.into(), &"unavailable".into()));
}

#[tokio::test]
async fn a_quiet_stream_says_that_it_lives_and_moves_the_id() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    let token = format!("Bearer {TOKEN}");
    let mut quiet = stream(&routes, "/api/events?kind=task.&after=now", &[("authorization", &token)]).await;
    scene.emit_many(2).await;
    let last = scene.world.store().last_seq();
    loop {
        let block = tokio::select! {
            biased;
            block = quiet.block() => block,
            () = async { loop { tokio::task::yield_now().await; scene.clock.advance(crate::streams::ALIVE); } } => unreachable!(),
        };
        assert!(block.0.starts_with(": alive") && !block.0.contains("data"), "{block:?}");
        if block.line("id: ") == last.to_string() {
            return;
        }
    }
}

#[tokio::test]
async fn a_slow_reader_is_told_where_to_go_on() {
    let scene = Scene::with("limits: { subscriber_buffer: 16 }\n").await;
    let routes = routes(&scene);
    let token = format!("Bearer {TOKEN}");
    let start = scene.world.store().last_seq();
    let (mut slow, mut stalled) = fall_behind(&scene, &routes, &token).await;
    assert_eq!(scene.control.readers.open(), 2, "their bodies are still there");
    let mut seen = start;
    loop {
        let block = slow.block().await;
        if block.line("event: ") == "lagged" {
            let told: Value = serde_json::from_str(block.line("data: ")).unwrap();
            assert_eq!((&told["last_seq"], block.line("id: ")), (&seen.into(), seen.to_string().as_str()));
            break;
        }
        seen += 1;
        assert_eq!(block.line("id: "), seen.to_string());
    }
    assert!(seen < scene.world.store().last_seq());
    // One that does not even read that is not waited for; it counts as long as it is there.
    for _ in 0..10 {
        scene.clock.advance(ghost_domain::Limits::seconds(30));
        tokio::task::yield_now().await;
    }
    assert!(futures_util::StreamExt::next(&mut stalled.body).await.is_none());
    drop(slow);
    assert_eq!(scene.control.readers.open(), 1);
    drop(stalled);
    assert_eq!(scene.control.readers.open(), 0);
}

/// Two readers of what is to come that do not read until they are cut off.
async fn fall_behind(scene: &Scene, routes: &Router, token: &str) -> (Flow, Flow) {
    let start = scene.world.store().last_seq();
    // Every feeder listens for the end of the daemon.
    let listening = scene.closing.receiver_count();
    let path = format!("/api/events?after={start}");
    let one = stream(routes, &path, &[("authorization", token)]).await;
    let two = stream(routes, &path, &[("authorization", token)]).await;
    scene.emit_many(crate::streams::QUEUE * 3).await;
    while scene.closing.receiver_count() > listening {
        tokio::task::yield_now().await;
        scene.clock.advance(crate::streams::PATIENCE);
    }
    (one, two)
}

#[tokio::test]
async fn what_is_misspelt_beside_a_good_ticket_is_what_is_told() {
    let scene = Scene::new().await;
    let routes = routes(&scene);
    let bearer = format!("Bearer {TOKEN}");
    let given = ask(&routes, "POST", "/api/events/ticket", &[("authorization", &bearer)]).await;
    let given: Value = serde_json::from_str(&given.body).unwrap();
    let path = format!("/api/events?afer=now&ticket={}", given["ticket"].as_str().unwrap());
    let answer = ask(&routes, "GET", &path, &[]).await;
    assert_eq!((answer.status, answer.refusal().code), (StatusCode::BAD_REQUEST, Code::InvalidArguments));
    assert_eq!(answer.refusal().hint.as_deref(), Some("did you mean `after`?"));
}

#[tokio::test]
async fn what_cannot_be_streamed_has_a_status_of_its_own() {
    let scene = Scene::with("limits: { subscribers_max: 1 }\n").await;
    let routes = routes(&scene);
    let last = scene.world.store().last_seq();
    for (path, status) in [
        (format!("/api/events?after={}", last + 1), StatusCode::RANGE_NOT_SATISFIABLE),
        ("/api/events?kind=turn.startd".into(), StatusCode::BAD_REQUEST),
        ("/api/events?kind=".into(), StatusCode::BAD_REQUEST),
        ("/api/events?agent=adda".into(), StatusCode::NOT_FOUND),
        ("/api/events?agnt=ada".into(), StatusCode::BAD_REQUEST),
        ("/api/events/ws".into(), StatusCode::BAD_REQUEST),
    ] {
        let answer = get(&routes, &path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.refusal().hint.is_some(), "{path}: {}", answer.body);
    }
    assert_eq!(scene.control.readers.open(), 0);
    let token = format!("Bearer {TOKEN}");
    let one = stream(&routes, "/api/events", &[("authorization", &token)]).await;
    assert_eq!(get(&routes, "/api/events").await.status, StatusCode::TOO_MANY_REQUESTS);
    drop(one);
    while scene.control.readers.open() > 0 {
        tokio::task::yield_now().await;
    }
    // What retention has taken is said to be gone.
    scene.clock.advance(ghost_domain::Limits::days(8));
    ghost_commons::retention::sweep(scene.world.store(), scene.world.cx()).await.unwrap();
    let gone = get(&routes, "/api/events?after=1").await;
    assert_eq!((gone.status, gone.refusal().code), (StatusCode::GONE, ghost_domain::Code::CursorExpired));
}

/// A body that goes on.
struct Flow {
    body: axum::body::BodyDataStream,
    text: String,
}

/// One block of server-sent events.
#[derive(Debug)]
struct Block(String);

async fn stream(routes: &Router, path: &str, headers: &[(&str, &str)]) -> Flow {
    let mut request = Request::builder().uri(path).header("host", "localhost:8080");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    Flow { body: response.into_body().into_data_stream(), text: String::new() }
}

impl Flow {
    async fn block(&mut self) -> Block {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = Block(block.to_owned());
                self.text = rest.to_owned();
                return block;
            }
            let chunk = futures_util::StreamExt::next(&mut self.body).await.expect("the stream goes on").unwrap();
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

impl Block {
    fn line(&self, name: &str) -> &str {
        self.0.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}
