//! Gemini's streamGenerateContent.

use ghost_domain::transcript::TokenUsage;

use super::*;
use crate::model::Stop;

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

#[tokio::test]
async fn a_streamed_answer_is_gathered_and_the_request_is_as_documented() {
    let server =
        serve(|_| FakeReply::new(200, "text/event-stream", sse(&answer()).replace('\n', "\r\n")).in_pieces(13)).await;
    let adapter = adapter(ProviderKind::Gemini, server.url());
    let mut request = conversation("gemini-x");
    let answer = ask(&adapter, &request).await;
    assert_eq!(
        answer.blocks,
        [
            Block::Thinking { text: "Let me think.".to_owned(), signature: None },
            text("Two files."),
            Block::Thinking { text: String::new(), signature: Some("gemini:c2ln".to_owned()) },
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
    assert_eq!(contents[3]["parts"][0]["functionResponse"]["name"], "workspace__read");
    assert_eq!(contents[3]["parts"][1]["functionResponse"]["response"]["content"], "{\"error\":\"no\"}");

    // Sent back, the signature is on its call, and calls that had no id have none.
    request.messages.push(Message { role: Role::Assistant, blocks: answer.blocks });
    let result = |id: &str, name: &str| Block::ToolResult {
        id: id.to_owned(),
        name: name.to_owned(),
        content: "ok".to_owned(),
        is_error: false,
    };
    let blocks = vec![result("call-3", "workspace.read"), result("call-4", "workspace.list")];
    request.messages.push(Message { role: Role::Tool, blocks });
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
