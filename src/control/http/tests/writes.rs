//! Tests of the writing routes, and of the agreement between the table of routes, the router and the
//! OpenAPI document.

use axum::http::{StatusCode, header};
use ghost_proto::http::{Field, Kind, Place, Verb};
use serde_json::{Value, json};

use super::asking::{TOKEN, ask, get, routes, write};
use crate::http::ROUTES;
use crate::http::rest::Access;
use crate::testing::TestControl;

fn object(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[tokio::test]
async fn a_message_a_task_and_a_post_are_written_once() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let sent = write(&routes, "POST", "/api/agents/ben/messages", "k1", &json!({ "body": "hello" })).await;
    assert_eq!(sent.status, StatusCode::OK, "{}", sent.body);
    let first = object(&sent.body);
    assert!(first["message_id"].is_string() && first["agent_id"] == "ben", "{first}");
    let again = write(&routes, "POST", "/api/agents/ben/messages", "k1", &json!({ "body": "hello" })).await;
    assert_eq!(object(&again.body), first, "the same key is the same message");
    let other = write(&routes, "POST", "/api/agents/ben/messages", "k1", &json!({ "body": "other" })).await;
    assert_eq!((other.status, other.refusal().code), (StatusCode::CONFLICT, ghost_domain::Code::Conflict));

    let new = json!({ "title": "t", "owner": "ben", "priority": 3, "depends_on": [] });
    let task = object(&write(&routes, "POST", "/api/tasks", "k2", &new).await.body);
    assert_eq!((&task["title"], &task["priority"]), (&json!("t"), &json!(3)), "{task}");
    let path = format!("/api/tasks/{}", task["task_id"].as_str().unwrap());
    let done = json!({ "status": "done", "result": "it is", "note": "quick", "depends_on": null });
    let done = object(&write(&routes, "PATCH", &path, "k3", &done).await.body);
    assert_eq!((&done["status"], &done["result"]), (&json!("done"), &json!("it is")), "{done}");
    assert_eq!(object(&get(&routes, &path).await.body)["history"].as_array().unwrap().len(), 2);

    test.channel("desk").await;
    let post = write(&routes, "POST", "/api/channels/desk/messages", "k4", &json!({ "content": "hi" })).await;
    let post = object(&post.body);
    assert_eq!((&post["content"], &post["seq"], &post["from"]), (&json!("hi"), &json!(1), &json!("operator:token")));
    let read = object(&get(&routes, "/api/channels/desk/messages").await.body);
    assert_eq!(read["messages"].as_array().unwrap().len(), 1);
}

// covers: ACL-10, ART-03, TOOL-16
#[tokio::test]
async fn a_grant_is_made_and_revoked_and_artifacts_are_rebuilt() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let new = json!({ "prefix": "output/", "lasts_ms": 60_000, "reason": "for now" });
    let made = object(&write(&routes, "POST", "/api/agents/ben/grants", "g1", &new).await.body);
    assert_eq!((&made["agent_id"], &made["created_by"]), (&json!("ben"), &json!("operator:token")), "{made}");
    assert_eq!(object(&write(&routes, "POST", "/api/agents/ben/grants", "g1", &new).await.body), made);
    let listed = object(&get(&routes, "/api/grants?agent=ben").await.body);
    assert_eq!(listed, json!({ "grants": [made], "next_cursor": null }));
    let path = format!("/api/grants/{}/revoke", made["grant_id"].as_str().unwrap());
    assert_eq!(object(&write(&routes, "POST", &path, "g2", &json!({})).await.body), made);
    assert_eq!(write(&routes, "POST", &path, "g3", &json!({})).await.status, StatusCode::NOT_FOUND);
    assert_eq!(object(&get(&routes, "/api/grants").await.body)["grants"], json!([]));
    let foreign = json!({ "prefix": "agents/ada/" });
    assert_eq!(write(&routes, "POST", "/api/agents/ben/grants", "g4", &foreign).await.status, StatusCode::BAD_REQUEST);
    let done = object(&write(&routes, "POST", "/api/artifacts/rebuild", "a1", &json!({})).await.body);
    assert_eq!(done, json!({ "artifacts": 0, "corrected": 0 }));
    let listed = object(&get(&routes, "/api/artifacts?prefix=output/").await.body);
    assert_eq!(listed, json!({ "artifacts": [], "next_cursor": null }));
    assert_eq!(object(&get(&routes, "/api/ledger/totals").await.body), json!({ "totals": [] }));
}

#[tokio::test]
async fn invalid_writes_are_refused_with_their_field() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let path = "/api/agents/ben/messages";
    for (body, field) in [
        (json!({ "bdy": "hello" }), Some("bdy")),
        (json!({ "body": 5 }), Some("body")),
        (json!({ "body": "  " }), Some("body")),
        (json!({ "body": "x", "attachments": "a" }), Some("attachments")),
        (json!({ "body": "x", "attachments": ["../a"] }), Some("attachments")),
        (json!(["body"]), None),
    ] {
        let answer = write(&routes, "POST", path, "k", &body).await;
        assert!(answer.status.is_client_error(), "{body}: {}", answer.body);
        let details = answer.refusal().details.unwrap_or_default();
        assert_eq!(details["field"].as_str(), field, "{body}: {}", answer.body);
    }
    let token = format!("Bearer {TOKEN}");
    let (json_type, key) = (("content-type", "application/json"), ("idempotency-key", "k"));
    for (headers, field) in [
        (vec![json_type], "Idempotency-Key"),
        (vec![json_type, ("idempotency-key", "")], "Idempotency-Key"),
        (vec![key], "Content-Type"),
        (vec![key, ("content-type", "text/plain")], "Content-Type"),
    ] {
        let headers = [headers, vec![("authorization", token.as_str())]].concat();
        let answer = ask(&routes, "POST", path, &headers).await;
        assert_eq!(
            (answer.status, answer.refusal().details.unwrap()["field"].as_str()),
            (StatusCode::BAD_REQUEST, Some(field))
        );
    }
    let none = write(&routes, "POST", "/api/agents/bne/messages", "k", &json!({ "body": "x" })).await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    let twice = ask(&routes, "DELETE", path, &[("authorization", &token)]).await;
    assert_eq!((twice.status, twice.refusal().hint.as_deref()), (StatusCode::METHOD_NOT_ALLOWED, Some("use POST")));
}

#[tokio::test]
async fn a_cookie_replaces_the_token_and_writes_only_from_own_pages() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let token = format!("Bearer {TOKEN}");
    assert_eq!(ask(&routes, "POST", "/api/session", &[]).await.status, StatusCode::UNAUTHORIZED);
    let begun = ask(&routes, "POST", "/api/session", &[("authorization", &token)]).await;
    let set_cookie = begun.headers[header::SET_COOKIE].to_str().unwrap().to_owned();
    assert!(set_cookie.contains("HttpOnly") && set_cookie.contains("SameSite=Strict"), "{set_cookie}");
    assert!(!set_cookie.contains("Secure"), "without TLS, no browser would send it back: {set_cookie}");
    let cookie = format!("other=1; {}", set_cookie.split(';').next().unwrap());
    let cookie = ("cookie", cookie.as_str());
    assert_eq!(ask(&routes, "GET", "/api/agents", &[cookie]).await.status, StatusCode::OK);
    assert_eq!(
        ask(&routes, "GET", "/api/agents", &[("cookie", "ghost_session=x")]).await.status,
        StatusCode::UNAUTHORIZED
    );
    let path = "/api/agents/ben/messages";
    let (kind, key) = (("content-type", "application/json"), ("idempotency-key", "k"));
    // Without an origin, the request does not come from our own page. With a foreign origin it is
    // refused earlier.
    assert_eq!(ask(&routes, "POST", path, &[cookie, kind, key]).await.status, StatusCode::UNAUTHORIZED);
    let evil = ("origin", "http://evil.example");
    assert_eq!(ask(&routes, "POST", path, &[cookie, kind, key, evil]).await.status, StatusCode::FORBIDDEN);
    let own = ("origin", "http://localhost:8080");
    let written = ask(&routes, "POST", path, &[cookie, kind, key, own]).await;
    assert_eq!(written.status, StatusCode::BAD_REQUEST, "the body is empty: {}", written.body);
    // A cookie cannot be exchanged for a new one. The token can, with or without a cookie.
    let renewed = ask(&routes, "POST", "/api/session", &[cookie, kind, own]).await;
    assert_eq!((renewed.status, renewed.headers.get(header::SET_COOKIE)), (StatusCode::UNAUTHORIZED, None));
    let wrong = ask(&routes, "POST", "/api/session", &[cookie, own, ("authorization", "Bearer wrong")]).await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    let again = ask(&routes, "POST", "/api/session", &[cookie, own, ("authorization", &token)]).await;
    assert_eq!((again.status, again.headers.contains_key(header::SET_COOKIE)), (StatusCode::OK, true));
    test.clock.advance(crate::http::guard::COOKIE_LIFETIME);
    assert_eq!(ask(&routes, "GET", "/api/agents", &[cookie]).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_send_a_preflight_request() {
    let test = TestControl::with("http: { allowed_origins: ['https://dash.example'], allowed_hosts: [ghost] }\n").await;
    let routes = routes(&test);
    let page = ("origin", "https://dash.example");
    let first = ask(&routes, "OPTIONS", "/api/tasks", &[page, ("access-control-request-method", "POST")]).await;
    assert_eq!(first.status, StatusCode::NO_CONTENT);
    assert_eq!(first.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://dash.example");
    assert!(first.headers[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap().contains("idempotency-key"));
    let token = format!("Bearer {TOKEN}");
    let read = ask(&routes, "GET", "/api/tasks", &[page, ("authorization", &token), ("host", "ghost")]).await;
    assert_eq!(
        (read.status, &read.headers[header::ACCESS_CONTROL_ALLOW_ORIGIN]),
        (StatusCode::OK, &"https://dash.example".parse().unwrap())
    );
    // Other callers get no CORS headers.
    let own = ask(&routes, "GET", "/healthz", &[]).await;
    assert!(!own.headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN));
}

/// The path of a route with its parameters filled in.
fn filled(path: &str) -> String {
    path.replace("{id}", "ada").replace("{name}", "desk")
}

#[tokio::test]
async fn each_route_of_the_table_is_served_and_described() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    test.channel("desk").await;
    let described = object(&ask(&routes, "GET", "/api/openapi.json", &[]).await.body);
    assert_eq!(described["openapi"], "3.1.0");
    let mut ids = std::collections::BTreeSet::new();
    for route in ROUTES.iter() {
        let fields =
            |place: Place| -> Vec<&Field> { route.fields.iter().filter(|field| field.place == place).collect() };
        let names = |place: Place| -> Vec<&str> { fields(place).iter().map(|field| field.name).collect() };
        let (verb, path) = (route.verb.as_str(), filled(route.path));
        let operation = &described["paths"][route.path][verb.to_ascii_lowercase()];
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{verb} {path}");
        assert!(operation["summary"].as_str().is_some_and(|words| words.ends_with('.')), "{verb} {path}");
        // Served: neither missing nor with another method. Signed routes exist only under configured
        // names.
        let token = format!("Bearer {TOKEN}");
        let headers: &[(&str, &str)] = if route.access == Access::Open { &[] } else { &[("authorization", &token)] };
        let answer = ask(&routes, verb, &format!("{path}?zzz=1"), headers).await;
        assert_ne!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{verb} {path}");
        let hint = if answer.body.starts_with('{') && answer.status.is_client_error() {
            answer.refusal().hint.unwrap_or_default()
        } else {
            String::new()
        };
        if answer.status == StatusCode::NOT_FOUND {
            assert!(route.access == Access::Signed && hint.contains("webhooks"), "{verb} {path}: {}", answer.body);
            continue;
        }
        if route.access != Access::Open {
            let without = ask(&routes, verb, &path, &[]).await;
            assert_eq!(without.status, StatusCode::UNAUTHORIZED, "{verb} {path}");
        }
        // The parameters in the table are those that the handler accepts.
        if route.verb == Verb::Get
            && !matches!(route.access, Access::Open | Access::Setting)
            && route.path != "/api/events/ws"
        {
            let names = names(Place::Query);
            let expected = if names.is_empty() {
                "this route takes no parameters".to_owned()
            } else {
                format!("the parameters are: {}", names.join(", "))
            };
            assert_eq!(hint, expected, "{verb} {path}: {}", answer.body);
            let listed = operation["parameters"].as_array().unwrap();
            for param in fields(Place::Query) {
                let listed_param = listed.iter().find(|listed_param| listed_param["name"] == param.name).unwrap();
                assert_eq!(listed_param["schema"]["type"] == "array", param.kind == Kind::Texts, "{}", param.name);
            }
        }
        // The fields of a body are those that the handler accepts, each with a type and a description
        // from the contract.
        if !fields(Place::Key).is_empty() {
            let body = names(Place::Body);
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"]["properties"];
            let properties = schema.as_object().unwrap();
            assert_eq!(properties.len(), body.len(), "{verb} {path}: {schema}");
            for (name, property) in properties {
                assert!(property["type"] != Value::Null && property["description"].is_string(), "{name}: {property}");
            }
            let misspelled = write(&routes, verb, &path, "k", &json!({ "zzz": 1 })).await;
            let hint = misspelled.refusal().hint.unwrap();
            assert!(hint.contains(&body.join(", ")), "{verb} {path}: {hint}");
        }
        if let Some(schema) =
            operation["responses"]["200"]["content"].get("application/json").map(|json| &json["schema"])
        {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                assert!(property.is_object(), "{verb} {path}: {name}");
            }
        }
    }
    // Records have the descriptions of the contract.
    let agents = &described["paths"]["/api/agents"]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
    let agent = &agents["properties"]["agents"]["items"]["properties"];
    assert_eq!(agent["created_at"]["format"], "date-time");
    assert!(agent["status"]["description"].as_str().unwrap().contains("`failed`"), "{agent}");
}
