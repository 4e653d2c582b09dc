//! Searches against servers that answer as the services document, or as they should not.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::Arc;

use common::{Asked, Names, Server, TestWeb, http};
use ghost_config::plan::WebPlan;
use ghost_config::plan::web::{GooglePlan, SearchKind, SearchPlan};
use ghost_domain::{Code, Money, Refusal};
use ghost_web::{Found, Freshness, Query, machine_tls};
use serde_json::{Value, json};

const KEY: &str = "tiger-in-the-tank";

fn web_for(plan: &WebPlan) -> TestWeb {
    TestWeb::with(plan, Names::of(&[]), machine_tls().unwrap(), &|name| (name == "KEY").then(|| KEY.to_owned()))
}

fn searching(kind: SearchKind, server: &Server) -> TestWeb {
    let api_key_env = (kind == SearchKind::Brave).then(|| "KEY".to_owned());
    let base_url = format!("http://{}", server.address);
    web_for(&WebPlan { search: Some(SearchPlan { kind, base_url, api_key_env }), ..WebPlan::default() })
}

fn google(server: &Server) -> TestWeb {
    let plan = GooglePlan {
        model: "gemini-2.5-flash".into(),
        models: vec!["gemini-2.5-pro".into()],
        base_url: format!("http://{}", server.address),
        api_key_env: "KEY".into(),
        usd_per_query: Money(14_000),
    };
    web_for(&WebPlan { google_search: Some(plan), ..WebPlan::default() })
}

async fn answering(status: &'static str, headers: &'static str, body: Value) -> Server {
    let body = body.to_string();
    Server::answering(move |_| http(status, &format!("Content-Type: application/json\r\n{headers}"), body.as_bytes()))
        .await
}

async fn search(web: &TestWeb, query: Query) -> Result<Vec<Found>, Refusal> {
    let Ok(service) = &web.web.search else { panic!("no search") };
    let done = service.search(&query).await;
    if let Err(refusal) = &done {
        assert!(refusal.hint.is_some() && !refusal.to_json().to_string().contains(KEY), "{refusal}");
    }
    done
}

fn query(words: &str) -> Query {
    Query { query: words.into(), count: 2, ..Query::default() }
}

fn only(server: &Server) -> Asked {
    let asked = server.asked();
    assert_eq!(asked.len(), 1);
    asked[0].clone()
}

// covers: BI-15
#[tokio::test]
async fn brave_is_asked_as_it_documents() {
    let server = answering("200 OK", "", json!({
        "type": "search",
        "query": { "original": "rust & ghosts" },
        "web": { "type": "search", "results": [
            { "title": "The <strong>Rust</strong> book", "url": "https://doc.rust-lang.org/book/", "description": "A &amp; b" },
            { "title": "no page", "url": "javascript:alert(1)", "description": "" },
            { "title": "Second", "url": "https://b.example/" },
            { "title": "Third", "url": "https://c.example/", "description": "beyond the count" },
        ] },
    }))
    .await;
    let web = searching(SearchKind::Brave, &server);
    let wanted = Query {
        country: Some("de".into()),
        freshness: Some(Freshness::Between("2026-01-01".into(), "2026-01-31".into())),
        ..query("rust & ghosts")
    };
    let found = search(&web, wanted).await.unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].title.as_str(), found[0].description.as_str()), ("The Rust book", "A & b"));
    assert_eq!((found[1].url.as_str(), found[1].description.as_str()), ("https://b.example/", ""));
    let asked = only(&server);
    assert_eq!(
        asked.path(),
        "/res/v1/web/search?q=rust+%26+ghosts&count=2&country=DE&freshness=2026-01-01to2026-01-31&text_decorations=false"
    );
    assert_eq!((asked.header("x-subscription-token"), asked.header("accept")), (Some(KEY), Some("application/json")));
    assert_eq!(asked.header("accept-encoding"), Some("gzip"));
    // No results come without `web`.
    let none = answering("200 OK", "", json!({ "type": "search", "query": {} })).await;
    assert_eq!(search(&searching(SearchKind::Brave, &none), query("x")).await.unwrap(), []);
}

// covers: BI-15
#[tokio::test]
async fn searxng_is_asked_as_it_documents() {
    let server = answering(
        "200 OK",
        "",
        json!({
            "query": "a", "number_of_results": 0, "answers": [], "suggestions": [],
            "results": [{ "title": "One", "url": "https://a.example/x", "content": "text", "engine": "duckduckgo" }],
        }),
    )
    .await;
    let web = searching(SearchKind::Searxng, &server);
    let found = search(&web, Query { freshness: Some(Freshness::Month), ..query("a b") }).await.unwrap();
    assert_eq!(found, [Found { title: "One".into(), url: "https://a.example/x".into(), description: "text".into() }]);
    let asked = only(&server);
    assert_eq!(asked.path(), "/search?q=a+b&format=json&time_range=month");
    assert_eq!(asked.header("authorization"), None);
    for refused in [
        Query { country: Some("DE".into()), ..query("a") },
        Query { freshness: Some(Freshness::Week), ..query("a") },
        Query { freshness: Some(Freshness::Between("2026-01-01".into(), "2026-01-02".into())), ..query("a") },
        Query { country: Some("DEU".into()), ..query("a") },
        query(" "),
    ] {
        assert_eq!(search(&web, refused.clone()).await.unwrap_err().code, Code::InvalidArguments, "{refused:?}");
    }
    assert_eq!(search(&web, query(&"x".repeat(1_001))).await.unwrap_err().code, Code::TooLarge);
    assert_eq!(server.asked().len(), 1);
    let html_only = Server::answering(|_| http("403 Forbidden", "", b"<html>Forbidden</html>")).await;
    let refusal = search(&searching(SearchKind::Searxng, &html_only), query("a")).await.unwrap_err();
    assert!(refusal.hint.unwrap().contains("search.formats"));
}

// covers: BI-15a
#[tokio::test]
async fn failures_of_a_service_are_typed_and_show_no_key() {
    let error = |status: u16, detail: &str| json!({ "type": "ErrorResponse", "error": { "id": "1", "status": status, "code": "X", "detail": detail, "meta": {} } });
    for (status, headers, body, code, part) in [
        ("429 Too Many Requests", "Retry-After: 7\r\n", error(429, "Rate limit"), Code::RateLimited, "Rate limit"),
        ("429 Too Many Requests", "", json!({}), Code::RateLimited, "429"),
        ("401 Unauthorized", "", error(401, &format!("bad token {KEY}")), Code::Unavailable, "bad token"),
        ("422 Unprocessable Entity", "", error(422, "query too long"), Code::InvalidArguments, "query too long"),
        ("503 Service Unavailable", "", json!("down"), Code::Unavailable, "503"),
        ("302 Found", "Location: https://evil.example/\r\n", json!({}), Code::ExecFailed, "redirects"),
        ("200 OK", "", json!([1]), Code::ExecFailed, "JSON"),
    ] {
        let server = answering(status, headers, body).await;
        let refusal = search(&searching(SearchKind::Brave, &server), query("x")).await.unwrap_err();
        assert_eq!(refusal.code, code, "{status}");
        assert!(refusal.message.contains(part), "{status}: {refusal}");
        only(&server);
        if headers.starts_with("Retry-After") {
            assert_eq!(refusal.details.unwrap(), json!({ "status": 429, "retry_after_s": 7 }));
            assert!(refusal.hint.unwrap().contains("7 s"));
        }
    }
    for body in [&b""[..], b"{\"web\": {", b"<html>", b"\0"] {
        let body = body.to_vec();
        let server = Server::answering(move |_| http("200 OK", "", &body)).await;
        assert_eq!(
            search(&searching(SearchKind::Brave, &server), query("x")).await.unwrap_err().code,
            Code::ExecFailed
        );
    }
    let large = Server::answering(|_| http("200 OK", "", &vec![b' '; (4 << 20) + 1])).await;
    assert_eq!(search(&searching(SearchKind::Brave, &large), query("x")).await.unwrap_err().code, Code::TooLarge);
    let cut = Server::answering(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{".to_vec()).await;
    assert_eq!(search(&searching(SearchKind::Brave, &cut), query("x")).await.unwrap_err().code, Code::Unavailable);
    let dated = Server::answering(|_| {
        let headers = "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\nDate: Sun, 06 Nov 1994 08:49:27 GMT\r\n";
        http("429 Too Many", headers, b"")
    })
    .await;
    let refusal = search(&searching(SearchKind::Brave, &dated), query("x")).await.unwrap_err();
    assert_eq!(refusal.details.unwrap()["retry_after_s"], 10);
}

// covers: BI-15a
#[tokio::test]
async fn a_search_without_its_key_is_absent_with_the_reason() {
    let brave = SearchPlan {
        kind: SearchKind::Brave,
        base_url: "http://127.0.0.1:1".into(),
        api_key_env: Some("MISSING".into()),
    };
    let web = web_for(&WebPlan { search: Some(brave), ..WebPlan::default() });
    assert!(web.web.search.as_ref().err().unwrap().contains("`MISSING`"));
    assert!(web.web.google.as_ref().err().unwrap().contains("web.google_search"));
    let broken = SearchPlan {
        kind: SearchKind::Brave,
        base_url: "http://127.0.0.1:1".into(),
        api_key_env: Some("BROKEN".into()),
    };
    let plan = WebPlan { search: Some(broken), ..WebPlan::default() };
    let web = TestWeb::with(&plan, Names::of(&[]), machine_tls().unwrap(), &|_| Some("a\nb".into()));
    let why = web.web.search.err().unwrap();
    assert!(why.contains("`BROKEN`") && !why.contains("a\nb"), "{why}");
}

// covers: BI-16, BI-16a
#[tokio::test]
async fn gemini_answers_with_sources_and_a_price() {
    let server = answering("200 OK", "", json!({
        "candidates": [{
            "content": { "role": "model", "parts": [{ "text": "thinking", "thought": true }, { "text": "Spain " }, { "text": "won." }] },
            "finishReason": "STOP",
            "groundingMetadata": {
                "webSearchQueries": ["UEFA Euro 2024 winner", "who won euro 2024"],
                "searchEntryPoint": { "renderedContent": "<style>…</style>" },
                "groundingChunks": [
                    { "web": { "uri": "https://vertexaisearch.cloud.google.com/x", "title": "aljazeera.com" } },
                    { "web": { "uri": "javascript:x", "title": "no" } },
                    { "retrievedContext": {} },
                ],
                "groundingSupports": [{ "segment": { "startIndex": 0, "endIndex": 10 }, "groundingChunkIndices": [0] }],
            },
        }],
        "usageMetadata": { "promptTokenCount": 8, "candidatesTokenCount": 3, "thoughtsTokenCount": 4, "totalTokenCount": 15 },
    }))
    .await;
    let web = google(&server);
    let Ok(service) = &web.web.google else { panic!("no google") };
    let answer = service.ask("Who won the euro 2024?", None).await.unwrap();
    assert_eq!((answer.answer.as_str(), answer.model.as_str()), ("Spain won.", "gemini-2.5-flash"));
    assert_eq!((answer.queries.len(), answer.cost, answer.tokens), (2, Money(28_000), (8, 7)));
    assert_eq!(answer.citations.len(), 1);
    assert_eq!(answer.citations[0].title, "aljazeera.com");
    let asked = only(&server);
    assert!(
        asked.head.starts_with("POST /v1beta/models/gemini-2.5-flash:generateContent HTTP/1.1\r\n"),
        "{}",
        asked.head
    );
    assert_eq!((asked.header("x-goog-api-key"), asked.header("content-type")), (Some(KEY), Some("application/json")));
    let body: Value = serde_json::from_slice(&asked.body).unwrap();
    let expected = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "Who won the euro 2024?" }] }],
        "tools": [{ "google_search": {} }],
    });
    assert_eq!(body, expected);
    service.ask("x", Some("gemini-2.5-pro")).await.unwrap();
    assert!(server.asked()[1].path().contains("gemini-2.5-pro"));
    for model in ["gemini-9", "../x", ""] {
        assert_eq!(service.ask("x", Some(model)).await.unwrap_err().code, Code::InvalidArguments, "{model}");
    }
    assert_eq!(server.asked().len(), 2);
}

// covers: BI-16
#[tokio::test]
async fn gemini_without_an_answer_is_a_refusal() {
    let quota = json!({ "error": { "code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED" } });
    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" } });
    let unsafe_answer = json!({ "candidates": [{ "finishReason": "SAFETY" }] });
    for (status, body, code) in [
        ("429 Too Many Requests", quota, Code::RateLimited),
        ("400 Bad Request", json!({ "error": { "code": 400, "message": "API key not valid" } }), Code::Unavailable),
        ("200 OK", blocked, Code::PolicyDenied),
        ("200 OK", unsafe_answer, Code::PolicyDenied),
        ("200 OK", json!({ "candidates": [{ "finishReason": "MAX_TOKENS" }] }), Code::ExecFailed),
        ("200 OK", json!({}), Code::ExecFailed),
    ] {
        let server = answering(status, "", body).await;
        let web = google(&server);
        let Ok(service) = &web.web.google else { panic!("no google") };
        let refusal = service.ask("x", None).await.unwrap_err();
        assert_eq!(refusal.code, code, "{status}: {refusal}");
        assert!(refusal.hint.is_some());
    }
    let lost = Server::start(Arc::new(|_, stream| Box::pin(async move { drop(stream) }))).await;
    let web = google(&lost);
    let Ok(service) = &web.web.google else { panic!("no google") };
    let refusal = service.ask("x", None).await.unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.hint.unwrap().contains("billed"));
}
