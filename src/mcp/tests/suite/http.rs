//! Servers over HTTP.

use std::sync::Mutex;
use std::time::Duration;

use axum::http::{Response, StatusCode};

use super::fake::{none, text, tool};
use super::web::{body, events, link, modern, old, open, result, serve, status};
use ghost_mcp::{Block, CallError, CallOptions, ClosedReason, Connection, Limits, OpenError, Options};
use serde_json::{Value, json};

fn quick() -> CallOptions {
    CallOptions { timeout: Duration::from_secs(5), ..CallOptions::default() }
}

fn is(request: &Value, method: &str) -> bool {
    request["method"] == method
}

#[tokio::test]
async fn tools_are_listed_and_called_with_json_answers() {
    let web = serve(|request| match request["method"].as_str() {
        Some("tools/list") => result(request, json!({"tools": [tool("a"), {"name": "broken"}]})),
        Some("tools/call") => result(request, text("hello")),
        _ => old(request),
    })
    .await;
    let connection = open(&web, Limits::default()).await.unwrap();
    assert_eq!(connection.server().protocol, "2025-11-25");
    let tools = connection.tools().await.unwrap();
    assert_eq!((tools.items[0].name.as_str(), tools.skipped[0].name.as_str()), ("a", "broken"));
    let result = connection.call("a", none(), quick(), |_| ()).await.unwrap();
    assert_eq!(result.text(), "hello");
    connection.close().await;
    assert_eq!(connection.closed_reason(), Some(ClosedReason::Here));
}

#[tokio::test]
async fn one_malformed_entry_leaves_the_others_in_the_new_protocol_too() {
    let web = serve(|request| match request["method"].as_str() {
        Some("tools/list") => {
            let tools = json!([tool("a"), {"name": "broken"}]);
            result(request, json!({"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"}))
        }
        Some("tools/call") => result(request, json!({"resultType": "complete", "content": [{"type": "video"}]})),
        _ => modern(request),
    })
    .await;
    let connection = open(&web, Limits::default()).await.unwrap();
    assert!(connection.server().is_modern);
    let tools = connection.tools().await.unwrap();
    assert_eq!((tools.items.len(), tools.skipped[0].name.as_str()), (1, "broken"));
    let result = connection.call("a", none(), quick(), |_| ()).await.unwrap();
    assert_eq!(result.blocks, [Block::Unknown { kind: "video".to_owned(), json_bytes: 16 }]);
    let seen = web.seen.lock().unwrap();
    let (headers, _) = seen.iter().find(|(_, message)| is(message, "tools/call")).unwrap();
    assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
    assert_eq!(headers["mcp-name"], "a");
}

#[tokio::test]
async fn a_stream_of_events_brings_progress_and_the_result() {
    let web = serve(|request| {
        if !is(request, "tools/call") {
            return old(request);
        }
        let token = &request["params"]["_meta"]["progressToken"];
        let progress = |done: u32| {
            let params = json!({"progressToken": token, "progress": done, "message": "working"});
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        };
        let done = json!({"jsonrpc": "2.0", "id": request["id"], "result": text("hello")});
        events(&[progress(1), progress(2), done])
    })
    .await;
    let connection = open(&web, Limits::default()).await.unwrap();
    let seen = Mutex::new(Vec::new());
    let result = connection.call("a", none(), quick(), |progress| seen.lock().unwrap().push(progress.done)).await;
    assert_eq!(result.unwrap().text(), "hello");
    assert_eq!(*seen.lock().unwrap(), [1.0, 2.0]);
}

#[tokio::test]
async fn the_token_is_sent_and_never_shown() {
    let web =
        serve(|request| if is(request, "tools/call") { status(StatusCode::FORBIDDEN, "no") } else { old(request) })
            .await;
    let link = link(&web.url, Some("s3cret"));
    assert!(!format!("{link:?}").contains("s3cret"));
    let connection = Connection::open(link, Options::default()).await.unwrap();
    let error = connection.call("a", none(), quick(), |_| ()).await.unwrap_err();
    assert!(!format!("{connection:?} {error} {error:?}").contains("s3cret"));
    let seen = web.seen.lock().unwrap();
    assert!(seen.len() >= 3);
    assert!(seen.iter().all(|(headers, _)| headers["authorization"] == "Bearer s3cret"));
}

fn unauthorized(challenge: bool) -> super::web::Reply {
    let mut answer = Response::builder().status(StatusCode::UNAUTHORIZED);
    if challenge {
        answer = answer.header("www-authenticate", "Bearer realm=\"x\"");
    }
    answer.body("go away".into()).unwrap()
}

#[tokio::test]
async fn a_server_that_wants_another_token_is_a_typed_error() {
    for challenge in [true, false] {
        let web = serve(move |_| unauthorized(challenge)).await;
        let error = open(&web, Limits::default()).await.unwrap_err();
        assert!(matches!(error, OpenError::Unauthorized { .. }), "{error:?}");
        let web =
            serve(move |request| if is(request, "tools/call") { unauthorized(challenge) } else { old(request) }).await;
        let connection = open(&web, Limits::default()).await.unwrap();
        let error = connection.call("a", none(), quick(), |_| ()).await.unwrap_err();
        assert!(matches!(error, CallError::Unauthorized { .. }), "{error:?}");
        assert!(!error.may_have_happened());
    }
}

#[tokio::test]
async fn a_redirect_to_another_host_is_not_followed() {
    for code in [301, 302, 303, 307, 308] {
        let other = serve(old).await;
        let target = other.url.clone();
        let away = move || Response::builder().status(code).header("location", &target).body("".into()).unwrap();
        let to = away.clone();
        let web = serve(move |_| to()).await;
        let connected = Connection::open(link(&web.url, Some("s3cret")), Options::default()).await;
        assert!(matches!(connected, Err(OpenError::Unreachable { .. })), "{connected:?}");
        let web = serve(move |request| if is(request, "tools/call") { away() } else { old(request) }).await;
        let connection = Connection::open(link(&web.url, Some("s3cret")), Options::default()).await.unwrap();
        let error = connection.call("a", none(), quick(), |_| ()).await.unwrap_err();
        assert!(matches!(error, CallError::Transport { may_have_arrived: false, .. }), "{error:?}");
        assert!(other.seen.lock().unwrap().is_empty());
    }
}

/// A server can name other addresses in many places. None of them may be asked for anything, and none gets the token.
#[tokio::test]
async fn no_address_that_a_server_names_is_opened() {
    let other = serve(old).await;
    let to = other.url.clone();
    let challenge = format!("Bearer resource_metadata=\"{to}\", authorization_uri=\"{to}\", error=\"invalid_token\"");
    let answers: Vec<(u16, [(&str, String); 2])> = vec![
        (401, [("www-authenticate", challenge.clone()), ("location", to.clone())]),
        (403, [("www-authenticate", challenge), ("link", format!("<{to}>; rel=\"oauth-authorization-server\""))]),
        (404, [("location", to.clone()), ("refresh", format!("0; url={to}"))]),
        (421, [("alt-svc", format!("h2=\"{}\"", to.trim_start_matches("http://"))), ("location", to.clone())]),
        (503, [("retry-after", "0".to_owned()), ("content-location", to.clone())]),
    ];
    for (code, headers) in answers {
        let web = serve(move |request| {
            if !is(request, "tools/call") {
                return old(request);
            }
            let mut answer = Response::builder().status(code);
            for (name, value) in &headers {
                answer = answer.header(*name, value);
            }
            answer.body("".into()).unwrap()
        })
        .await;
        let connection = Connection::open(link(&web.url, Some("s3cret")), Options::default()).await.unwrap();
        assert!(connection.call("a", none(), quick(), |_| ()).await.is_err(), "{code}");
        assert_eq!(web.count("tools/call"), 1, "{code}");
    }
    // In what it lists and answers, and as the older transport named its second address.
    let name = to.clone();
    let web = serve(move |request| match request["method"].as_str() {
        Some("tools/list") => {
            let mut listed = tool("a");
            listed["icons"] = json!([{"src": name}]);
            listed["inputSchema"]["$schema"] = json!(name);
            result(request, json!({"tools": [listed], "_meta": {"next": name}}))
        }
        Some("tools/call") => {
            let content = json!([
                {"type": "resource_link", "uri": name, "name": "far"},
                {"type": "resource_link", "uri": "file:///etc/passwd", "name": "near"},
                {"type": "resource", "resource": {"uri": "file:///etc/passwd"}},
            ]);
            let done = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": content}});
            body("text/event-stream", format!("event: endpoint\ndata: {name}\n\nevent: message\ndata: {done}\n\n"))
        }
        Some("resources/read") => {
            let contents = json!([{"uri": name, "text": "of the server"}, {"uri": "file:///etc/passwd"}]);
            result(request, json!({"contents": contents}))
        }
        _ => old(request),
    })
    .await;
    let connection = Connection::open(link(&web.url, Some("s3cret")), Options::default()).await.unwrap();
    connection.tools().await.unwrap();
    let called = connection.call("a", none(), quick(), |_| ()).await.unwrap();
    assert!(!called.text().contains("root:"), "{}", called.text());
    // An address goes to the server as it is, whatever it is: nothing here opens it.
    let long = format!("file:///{}", "a/../".repeat(2_000));
    for uri in [&to, "file:///etc/passwd", "file://../../etc/passwd", "data:,x", "x\r\nHost: evil", "\u{0}", "", &long]
    {
        let (blocks, _) = connection.read_resource(uri).await.unwrap();
        assert_eq!(blocks[0].text(), "of the server", "{uri}");
        assert!(blocks.iter().all(|block| !block.text().contains("root:")), "{uri}");
        let asked = web.seen.lock().unwrap().last().unwrap().1.clone();
        assert_eq!(asked["params"]["uri"], *uri);
    }
    assert!(other.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_that_is_too_large_fails_its_call_alone() {
    let web = serve(|request| match request["params"]["name"].as_str() {
        Some("big") => result(request, text(&"x".repeat(20_000))),
        Some("small") => result(request, text("small")),
        _ => old(request),
    })
    .await;
    let connection = open(&web, Limits { http_bytes: 10_000, ..Limits::default() }).await.unwrap();
    let error = connection.call("big", none(), quick(), |_| ()).await.unwrap_err();
    assert_eq!(error, CallError::TooLarge { limit: 10_000 });
    assert!(error.may_have_happened());
    assert_eq!(connection.call("small", none(), quick(), |_| ()).await.unwrap().text(), "small");
}

#[tokio::test]
async fn an_event_that_is_too_large_does_not_reach_the_caller() {
    let web = serve(|request| match request["params"]["name"].as_str() {
        Some("big") => events(&[json!({"jsonrpc": "2.0", "id": request["id"], "result": text(&"x".repeat(20_000))})]),
        Some("small") => result(request, text("small")),
        _ => old(request),
    })
    .await;
    let connection = open(&web, Limits { http_bytes: 10_000, ..Limits::default() }).await.unwrap();
    let options = CallOptions { timeout: Duration::from_secs(2), ..CallOptions::default() };
    let error = connection.call("big", none(), options, |_| ()).await.unwrap_err();
    assert!(error.may_have_happened(), "{error:?}");
    assert_eq!(connection.call("small", none(), quick(), |_| ()).await.unwrap().text(), "small");
}

#[tokio::test]
async fn a_flood_of_events_closes_the_connection() {
    let web = serve(|request| {
        if !is(request, "tools/call") {
            return old(request);
        }
        let change = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        events(&vec![change; 500])
    })
    .await;
    let connection = open(&web, Limits { messages_per_second: 100, ..Limits::default() }).await.unwrap();
    let error = connection.call("a", none(), quick(), |_| ()).await.unwrap_err();
    let reason = ClosedReason::Flood { limit: 100 };
    assert_eq!(error, CallError::Closed { reason: reason.clone(), sent: true });
    assert_eq!(connection.closed().await, reason);
}

#[tokio::test]
async fn a_forgotten_session_closes_the_connection_and_the_call_is_not_repeated() {
    let web = serve(|request| match request["method"].as_str() {
        Some("initialize") => {
            let mut answer = old(request);
            answer.headers_mut().insert("mcp-session-id", "one".parse().unwrap());
            answer
        }
        Some("tools/call") => status(StatusCode::NOT_FOUND, ""),
        _ => old(request),
    })
    .await;
    let connection = open(&web, Limits::default()).await.unwrap();
    let error = connection.call("a", none(), quick(), |_| ()).await.unwrap_err();
    assert_eq!(error, CallError::Closed { reason: ClosedReason::SessionExpired, sent: false });
    assert_eq!(connection.closed().await, ClosedReason::SessionExpired);
    assert_eq!((web.count("tools/call"), web.count("initialize")), (1, 1));
}

#[tokio::test]
async fn errors_of_the_server_say_whether_it_may_have_acted() {
    let cases = [
        (StatusCode::INTERNAL_SERVER_ERROR, true),
        (StatusCode::TOO_MANY_REQUESTS, false),
        (StatusCode::CONFLICT, false),
    ];
    for (code, expected) in cases {
        let web = serve(move |request| if is(request, "tools/call") { status(code, "x") } else { old(request) }).await;
        let connection = open(&web, Limits::default()).await.unwrap();
        let error = connection.call("a", none(), quick(), |_| ()).await.unwrap_err();
        assert!(matches!(error, CallError::Transport { .. }), "{error:?}");
        assert_eq!(error.may_have_happened(), expected, "{code}");
        assert_eq!(web.count("tools/call"), 1, "it is not repeated");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_json_fails_its_call() {
    for kind in ["application/json", "text/html"] {
        let web = serve(
            move |request| {
                if is(request, "tools/call") { body(kind, "<html>".to_owned()) } else { old(request) }
            },
        )
        .await;
        let connection = open(&web, Limits::default()).await.unwrap();
        let error = connection.call("a", none(), quick(), |_| ()).await.unwrap_err();
        assert!(matches!(error, CallError::Transport { may_have_arrived: true, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn an_event_that_cannot_be_read_ends_its_call_with_what_is_wrong() {
    let web = serve(|request| {
        if !is(request, "tools/call") {
            return old(request);
        }
        let result = match request["params"]["name"].as_str() {
            Some("half") => r#"{"content":[{"type":"text","text":"a\ud83d"}]}"#,
            _ => r#"{"content":[],"structuredContent":{"x":NaN}}"#,
        };
        let event = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n\n", request["id"]);
        body("text/event-stream", event)
    })
    .await;
    let connection = open(&web, Limits::default()).await.unwrap();
    let error = connection.call("nan", none(), quick(), |_| ()).await.unwrap_err();
    assert!(matches!(&error, CallError::Malformed { detail } if detail.contains("NaN")), "{error:?}");
    assert_eq!(connection.call("half", none(), quick(), |_| ()).await.unwrap().text(), "a\u{fffd}");
}

#[tokio::test]
async fn a_server_that_is_not_there_cannot_be_reached() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let error = Connection::open(link(&url, None), Options::default()).await.unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    let error = Connection::open(link("file:///etc/passwd", None), Options::default()).await.unwrap_err();
    assert_eq!(error, OpenError::Address);
}
