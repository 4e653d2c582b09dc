//! Tests of Gemini's streamGenerateContent.

use ghost_domain::transcript::TokenUsage;

use super::*;
use crate::error::{Charge, ErrorKind};
use crate::model::{NoDeltas, Stop};

pub(super) fn answer() -> Vec<Value> {
    let part = |parts: Value| json!({ "candidates": [{ "index": 0, "content": { "role": "model", "parts": parts } }] });
    vec![
        part(json!([{ "text": "Let me think.", "thought": true }])),
        part(json!([{ "text": "Two " }])),
        part(json!([{ "text": "files." }])),
        part(json!([
            { "functionCall": { "name": "workspace__read", "args": { "path": "ä.md" } }, "thoughtSignature": "c2ln" },
            { "functionCall": { "name": "workspace__list", "args": { "path": "b" } } },
        ])),
        json!({
            "candidates": [{ "index": 0, "content": { "role": "model", "parts": [{ "text": "" }] }, "finishReason": "STOP" }],
            "usageMetadata": { "promptTokenCount": 100, "cachedContentTokenCount": 64, "candidatesTokenCount": 12,
                "thoughtsTokenCount": 8, "totalTokenCount": 120 },
            "modelVersion": "gemini-x",
        }),
    ]
}

// covers: LOOP-05
#[tokio::test]
async fn a_streamed_answer_is_assembled_and_the_request_is_as_documented() {
    let server =
        serve(|_| FakeReply::new(200, "text/event-stream", sse(&answer()).replace('\n', "\r\n")).in_pieces(13)).await;
    let adapter = adapter(ProviderKind::Gemini, server.url());
    let mut request = conversation("gemini-x");
    let answer = ask(&adapter, &request).await;
    assert_eq!(
        answer.blocks,
        [
            thought("Let me think."),
            text("Two files."),
            opaque("gemini-x", r#"{"thoughtSignature":"c2ln"}"#, true),
            call("call-3", "workspace.read", json!({ "path": "ä.md" })),
            call("call-4", "workspace.list", json!({ "path": "b" })),
        ]
    );
    assert_eq!(answer.stop, Stop::ToolUse);
    assert_eq!(answer.usage, Some(TokenUsage { input: 100, output: 20, cache_read: 64, cache_write: 0 }));

    let sent = server.requests().remove(0);
    assert_eq!(sent.path, "/v1beta/models/gemini-x:streamGenerateContent?alt=sse");
    assert_eq!(sent.headers["x-goog-api-key"], KEY);
    let body = &sent.body;
    assert_eq!(body["systemInstruction"]["parts"][0]["text"], "You are careful.");
    assert_eq!(body["generationConfig"]["maxOutputTokens"], 777);
    assert_eq!(body["generationConfig"]["temperature"], 0.5);
    let declared = &body["tools"][0]["functionDeclarations"];
    assert_eq!((&declared[0]["name"], &declared[1]["name"]), (&json!("workspace__list"), &json!("workspace__read")));
    assert_eq!(declared[0]["description"], "Does workspace.list.");
    let contents = &body["contents"];
    assert_eq!(contents[0], json!({ "role": "user", "parts": [{ "text": "The briefing." }] }));
    assert_eq!(contents[2]["role"], "model");
    assert_eq!(contents[2]["parts"][1]["functionCall"]["name"], "workspace__read");
    assert_eq!(contents[2]["parts"][1]["thoughtSignature"], "skip_thought_signature_validator");
    assert_eq!(contents[3]["parts"][0]["functionResponse"]["name"], "workspace__read");
    assert_eq!(contents[3]["parts"][1]["functionResponse"]["response"], json!({ "error": "{\"error\":\"no\"}" }));

    // Sent back, the signature is on its call, and calls without an id have none.
    request.messages_mut().push(Message { role: Role::Assistant, blocks: answer.blocks }.into());
    let result = |id: &str, name: &str| Block::ToolResult {
        id: id.to_owned(),
        name: name.to_owned(),
        content: "ok".to_owned(),
        is_error: false,
    };
    let blocks = vec![result("call-3", "workspace.read"), result("call-4", "workspace.list")];
    request.messages_mut().push(Message { role: Role::Tool, blocks }.into());
    ask(&adapter, &request).await;
    let contents = server.requests().remove(1).body["contents"].clone();
    assert_eq!(
        contents[4]["parts"],
        json!([
            { "text": "Two files." },
            { "functionCall": { "name": "workspace__read", "args": { "path": "ä.md" } }, "thoughtSignature": "c2ln" },
            { "functionCall": { "name": "workspace__list", "args": { "path": "b" } } },
        ])
    );
    assert_eq!(contents[5]["parts"][1]["functionResponse"]["name"], "workspace__list");
    assert_eq!(contents[5]["parts"][1]["functionResponse"].get("id"), None);
}

/// An adapter for a server that always answers with `body`.
async fn answering(body: String) -> (FakeServer, Arc<dyn Provider>) {
    let server = serve(move |_| FakeReply::new(200, "text/event-stream", body.clone()).in_pieces(17)).await;
    let adapter = adapter(ProviderKind::Gemini, server.url());
    (server, adapter)
}

#[tokio::test]
async fn a_blocked_prompt_is_refused_with_its_usage_and_reason() {
    let counts = r#""usageMetadata":{"promptTokenCount":10,"totalTokenCount":10}"#;
    let ratings = r#""safetyRatings":[{"category":"HARM_CATEGORY_DANGEROUS_CONTENT","probability":"HIGH"}]"#;
    for why in ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"] {
        for rest in [counts.to_owned(), format!("{counts},\"candidates\":[],\"modelVersion\":\"m\"")] {
            let body = format!("data: {{\"promptFeedback\":{{\"blockReason\":\"{why}\",{ratings}}},{rest}}}\r\n\r\n");
            let (_server, adapter) = answering(body).await;
            let answer = ask(&adapter, &conversation("m")).await;
            assert_eq!(answer.stop, Stop::Refused(Some(format!("the prompt was blocked: {why}"))));
            assert_eq!(answer.usage, Some(TokenUsage { input: 10, ..TokenUsage::default() }), "{why}");
            assert_eq!((answer.blocks, answer.estimated), (vec![text("")], false), "{why}");
        }
    }
    // If the block comes within the answer, the text so far is kept.
    let half = sse(&answer()[1..3]);
    let (_server, adapter) =
        answering(format!("{half}data: {{\"promptFeedback\":{{\"blockReason\":\"SAFETY\"}}}}\n\n")).await;
    let answer = ask(&adapter, &conversation("m")).await;
    assert!(matches!(answer.stop, Stop::Refused(Some(_))), "{answer:?}");
    assert_eq!(answer.blocks, [text("Two files.")]);
}

#[tokio::test]
async fn an_event_with_counts_only_is_accepted() {
    let mut list = answer();
    list.insert(
        0,
        json!({ "usageMetadata": { "promptTokenCount": 100, "totalTokenCount": 100 }, "modelVersion": "m" }),
    );
    list.insert(3, json!({ "promptFeedback": { "safetyRatings": [] }, "modelVersion": "m" }));
    let (_server, adapter) = answering(sse(&list)).await;
    let answer = ask(&adapter, &conversation("m")).await;
    assert_eq!((answer.stop, answer.blocks.len()), (Stop::ToolUse, 5));
    assert_eq!(answer.usage, Some(TokenUsage { input: 100, output: 20, cache_read: 64, cache_write: 0 }));
}

#[tokio::test]
async fn each_stop_reason_has_its_meaning_and_an_unknown_one_leaves_a_usable_answer() {
    let refused = |why: &str| Ok(Stop::Refused(Some(why.to_owned())));
    let bad_answer = Err(ErrorKind::BadAnswer);
    // With calls, and with text only.
    for (reason, calls, text_only) in [
        ("STOP", Ok(Stop::ToolUse), Ok(Stop::EndTurn)),
        ("MAX_TOKENS", Ok(Stop::MaxTokens), Ok(Stop::MaxTokens)),
        ("SAFETY", refused("SAFETY"), refused("SAFETY")),
        ("RECITATION", refused("RECITATION"), refused("RECITATION")),
        ("LANGUAGE", refused("LANGUAGE"), refused("LANGUAGE")),
        ("BLOCKLIST", refused("BLOCKLIST"), refused("BLOCKLIST")),
        ("PROHIBITED_CONTENT", refused("PROHIBITED_CONTENT"), refused("PROHIBITED_CONTENT")),
        ("SPII", refused("SPII"), refused("SPII")),
        ("OTHER", bad_answer.clone(), bad_answer.clone()),
        ("TOO_MANY_TOOL_CALLS", bad_answer.clone(), bad_answer.clone()),
        ("FINISH_REASON_UNSPECIFIED", bad_answer.clone(), bad_answer.clone()),
        ("MALFORMED_FUNCTION_CALL", bad_answer.clone(), bad_answer.clone()),
        ("UNEXPECTED_TOOL_CALL", bad_answer.clone(), bad_answer.clone()),
        ("MALFORMED_RESPONSE", bad_answer.clone(), bad_answer.clone()),
        ("MISSING_THOUGHT_SIGNATURE", Err(ErrorKind::StaleState), Err(ErrorKind::StaleState)),
        ("FUNCTION_CALL", Ok(Stop::Other("FUNCTION_CALL".to_owned())), Ok(Stop::Other("FUNCTION_CALL".to_owned()))),
    ] {
        for (from, expected) in [(0, calls), (1, text_only)] {
            let mut list = answer();
            list[4]["candidates"][0]["finishReason"] = json!(reason);
            if from == 1 {
                list.remove(3);
            }
            let (_server, adapter) = answering(sse(&list)).await;
            let answer = adapter.complete(&conversation("m"), &mut NoDeltas).await;
            let outcome = answer.as_ref().map(|answer| answer.stop.clone()).map_err(|error| error.kind);
            assert_eq!(outcome, expected, "{reason}");
            if let Err(error) = answer {
                assert!(error.message.contains(reason), "{error}");
                // The charge is what the provider reports.
                assert_eq!((error.usage.map(|usage| usage.output), error.charge), (Some(20), Charge::Unknown));
            }
        }
    }
}
