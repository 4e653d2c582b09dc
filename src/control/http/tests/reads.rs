//! Tests of the reading routes: tools, pages, unknown names.

use axum::http::{StatusCode, header};
use ghost_domain::Code;
use serde_json::Value;

use super::asking::{ask, get, routes};
use crate::testing::TestControl;

// covers: CP-02
#[tokio::test]
async fn an_agents_tools_are_listed_as_names_and_descriptions() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let answer = get(&routes, "/api/agents/ada/tools").await;
    assert_eq!(
        (answer.status, &answer.headers[header::CONTENT_TYPE]),
        (StatusCode::OK, &"application/json".parse().unwrap())
    );
    let tools: Vec<Value> = serde_json::from_str(&answer.body).unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "workspace.read"), "{tools:?}");
    assert!(!tools.iter().any(|tool| tool["name"] == "workspace.write"), "the tool was not granted: {tools:?}");
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
async fn unknown_names_and_routes_are_refused_with_a_hint() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let near = get(&routes, "/api/agents/adda/tools").await;
    assert_eq!(near.status, StatusCode::NOT_FOUND);
    assert!(near.refusal().hint.unwrap().contains("`ada`"));
    for path in ["/api/agents/ada?x=1", "/api/agents/ada/tools?x=1", "/api/agents/ada/tools/brief?x=1"] {
        let answer = get(&routes, path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        assert!(answer.refusal().hint.is_some(), "{path}");
    }
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
async fn pages_and_filters_are_checked() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    test.channel("desk").await;
    for path in ["/api/agents?limit=0", "/api/tasks?limit=0", "/api/channels/desk/messages?limit=0"] {
        let answer = get(&routes, path).await;
        let refusal = answer.refusal();
        assert_eq!((answer.status, refusal.code), (StatusCode::BAD_REQUEST, Code::InvalidArguments), "{path}");
        assert!(refusal.message.contains("1 to 500") && refusal.hint.is_some(), "{path}: {refusal}");
        assert_eq!(refusal.details.unwrap()["field"], "limit", "{path}");
    }
    // Well-formed cursors that no page returned.
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
        ("/api/ledger?tool=workspace.raed", "`workspace.read`"),
        ("/api/ledger?tool=wholly-unknown", "tool list"),
        ("/api/events?channel=dsek", "`desk`"),
        ("/api/agents?archetype=wholly-unknown", ""),
        ("/api/agents?archetype=wholly-unknown&deleted", ""),
        ("/api/tasks?owner=adda", "`ada`"),
        ("/api/channels?agent=adda", "`ada`"),
        ("/api/ledger?agent=adda", "`ada`"),
        ("/api/ledger?turn=0197d2a0-0000-7000-8000-000000000000", "turn list"),
    ] {
        let answer = get(&routes, path).await;
        assert_eq!((answer.status, answer.refusal().code), (StatusCode::NOT_FOUND, Code::NotFound), "{path}");
        assert!(answer.refusal().hint.unwrap().contains(hint), "{path}");
    }
    assert_eq!(get(&routes, "/api/ledger?tool=workspace.read").await.status, StatusCode::OK);
    // A field has the name of its query parameter.
    let ahead = get(&routes, "/api/channels/desk/messages?after=9").await;
    assert_eq!(ahead.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert!(ahead.refusal().message.starts_with("after"), "{}", ahead.body);
    for (path, field) in [
        ("/api/channels/desk/messages?after=9", "after"),
        ("/api/ledger?agent=A%20B", "agent"),
        ("/api/ledger?turn=x", "turn"),
        ("/api/events?kind=nope.x", "kind"),
        ("/api/tasks?owner=A%20B", "owner"),
    ] {
        let refusal = get(&routes, path).await.refusal();
        assert_eq!(refusal.details.as_ref().unwrap()["field"], field, "{path}");
        assert!(refusal.message.starts_with(field), "{path}: {refusal}");
    }
}
