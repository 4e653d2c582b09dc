//! The URL and the API of a request, and the fields that `world-config.yaml` adds to it.

use ghost_domain::model_facts::Api;

use super::responses::{plan, provider_for};
use super::*;
use crate::model::NoDeltas;

#[tokio::test]
async fn host_setting_and_model_facts_decide_the_api() {
    let server = serve(|_| FakeReply::new(500, "text/plain", "")).await;
    let (_, port) = server.url().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
    let (chat, responses) = ("/v1/chat/completions", "/v1/responses");
    let (as_chat, as_responses) = (Some(Api::Chat), Some(Api::Responses));
    for (host, setting, fact, path) in [
        ("eu.api.openai.com", None, None, responses),
        ("eu.api.openai.com", None, as_responses, responses),
        ("eu.api.openai.com", None, as_chat, chat),
        ("eu.api.openai.com", as_chat, as_responses, chat),
        ("eu.api.openai.com", as_responses, as_chat, responses),
        ("x.openai.azure.com", None, None, responses),
        ("x.openai.azure.com", None, as_chat, chat),
        ("127.0.0.1", None, None, chat),
        ("127.0.0.1", None, as_responses, chat),
        ("127.0.0.1", as_responses, None, responses),
    ] {
        let adapter = provider_for(plan(&format!("http://{host}:{port}"), setting));
        let facts = Arc::new(ModelFacts { api: fact, ..ModelFacts::default() });
        let turn = ModelRequest { facts, ..conversation("m") };
        let error = adapter.complete(&turn, &mut NoDeltas).await.unwrap_err();
        assert_eq!(error.status, Some(500), "{error}");
        let sent = server.requests().pop().unwrap();
        assert_eq!(sent.path, path, "{host} {setting:?} {fact:?}");
        let (own, azure) = (host != "127.0.0.1", host.ends_with("azure.com"));
        // The key is the agent's id.
        let key = (own && path == responses).then(|| json!("tester"));
        assert_eq!(sent.body.get("prompt_cache_key"), key.as_ref());
        let limit = match (path == responses, own) {
            (true, _) => "max_output_tokens",
            (_, true) => "max_completion_tokens",
            (_, false) => "max_tokens",
        };
        assert_eq!(sent.body[limit], 777, "{host} {path}");
        let (name, value) =
            if azure { ("api-key", KEY.to_owned()) } else { ("authorization", format!("Bearer {KEY}")) };
        assert_eq!(sent.headers[name], value);
        assert!(!(sent.headers.contains_key("api-key") && sent.headers.contains_key("authorization")));
    }
}

#[tokio::test]
async fn additions_of_the_world_file_reach_every_provider() {
    let server = serve(|_| FakeReply::new(500, "text/plain", "")).await;
    for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic, ProviderKind::Gemini, ProviderKind::Ollama] {
        let pair = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let extra =
            json!({ "stream_options": { "include_usage": false, "x": [1] }, "options": { "seed": 7 }, "top_k": 3 });
        let plan = ProviderPlan {
            query: pair("api-version", "2025 04"),
            headers: pair("X-Title", "a world"),
            extra_body: extra.as_object().unwrap().clone(),
            ..provider_plan(kind, Some(format!("{}/base", server.url())))
        };
        let adapter = build(plan, &|_| None).unwrap().get("p").unwrap().provider.clone();
        adapter.complete(&conversation("m"), &mut NoDeltas).await.unwrap_err();
        let sent = server.requests().pop().unwrap();
        let (path, query) = sent.path.split_once('?').unwrap();
        assert!(path.starts_with("/base/") && query.contains("api-version=2025+04"), "{kind:?} {}", sent.path);
        assert_eq!(sent.headers["x-title"], "a world", "{kind:?}");
        assert_eq!(sent.headers["user-agent"], concat!("ghost/", env!("CARGO_PKG_VERSION")), "{kind:?}");
        assert_eq!((&sent.body["top_k"], &sent.body["options"]["seed"]), (&json!(3), &json!(7)), "{kind:?}");
        assert_eq!(sent.body["stream_options"], json!({ "include_usage": false, "x": [1] }), "{kind:?}");
    }
}
