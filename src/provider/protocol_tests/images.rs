//! Images in the form of each provider.

use super::deferred::adapter_for;
use super::*;
use crate::model::NoDeltas;
use crate::testing::Wire;

fn image(data: &str) -> Block {
    Block::Image { media_type: "image/png".to_owned(), data: data.to_owned() }
}

/// A conversation whose two results have two images and one.
fn with_images() -> ModelRequest {
    let mut request = conversation("m");
    let results = &mut request.messages_mut()[3].blocks;
    *results = vec![results[0].clone(), image("QQ=="), image("Qg=="), results[1].clone(), image("Qw==")];
    request
}

/// The same for a model that needs chat completions.
fn chat(request: ModelRequest) -> ModelRequest {
    ModelRequest { facts: Arc::new(ModelFacts { api: Some(Api::Chat), ..ModelFacts::default() }), ..request }
}

/// The body of a request. The black-box tests send such requests to strict servers; here only the form counts.
async fn sent(wire: Wire, request: &ModelRequest) -> Value {
    let server = serve(|_| FakeReply::new(400, "application/json", "{}")).await;
    adapter_for(wire, server.url()).complete(request, &mut NoDeltas).await.unwrap_err();
    server.requests().remove(0).body
}

// covers: LOOP-05, TOOL-15
#[tokio::test]
async fn the_images_of_results_are_sent_as_each_vendor_documents_it() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let error = "{\"error\":\"no\"}";

    let body = sent(Wire::Anthropic, &with_images()).await;
    let source = |data: &str| json!({ "type": "base64", "media_type": "image/png", "data": data });
    let block = |data: &str| json!({ "type": "image", "source": source(data) });
    let results = &body["messages"][3]["content"];
    assert_eq!(results.as_array().unwrap().len(), 2, "images are within the results");
    assert_eq!(results[0]["content"], json!([text("content of a"), block("QQ=="), block("Qg==")]));
    assert_eq!(results[1]["content"], json!([text(error), block("Qw==")]));
    assert_eq!(results[1]["cache_control"], json!({ "type": "ephemeral" }));

    let body = sent(Wire::Responses, &with_images()).await;
    let url = |data: &str| format!("data:image/png;base64,{data}");
    let block = |data: &str| json!({ "type": "input_image", "image_url": url(data), "detail": "auto" });
    let outputs: Vec<&Value> =
        body["input"].as_array().unwrap().iter().filter(|item| item["type"] == "function_call_output").collect();
    let text_part = |text: &str| json!({ "type": "input_text", "text": text });
    assert_eq!(outputs[0]["output"], json!([text_part("content of a"), block("QQ=="), block("Qg==")]));
    assert_eq!(outputs[1]["output"], json!([text_part(error), block("Qw==")]));
}

// covers: LOOP-05, TOOL-15
#[tokio::test]
async fn images_follow_the_results_where_a_result_is_only_text() {
    let body = sent(Wire::Chat, &chat(with_images())).await;
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "user", "assistant", "tool", "tool", "user"]);
    let url = |data: &str| json!({ "url": format!("data:image/png;base64,{data}") });
    let block = |data: &str| json!({ "type": "image_url", "image_url": url(data) });
    let parts = messages[6]["content"].as_array().unwrap();
    assert_eq!((&parts[0]["type"], &parts[1..]), (&json!("text"), &[block("QQ=="), block("Qg=="), block("Qw==")][..]));

    let body = sent(Wire::Gemini, &with_images()).await;
    let parts = body["contents"][3]["parts"].as_array().unwrap();
    let kinds: Vec<&str> = parts.iter().map(|part| part.as_object().unwrap().keys().next().unwrap().as_str()).collect();
    assert_eq!(kinds, ["functionResponse", "functionResponse", "inlineData", "inlineData", "inlineData"]);
    assert_eq!(parts[3]["inlineData"], json!({ "mimeType": "image/png", "data": "Qg==" }));

    let body = sent(Wire::Ollama, &with_images()).await;
    let last = body["messages"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["role"], &last["images"]), (&json!("user"), &json!(["QQ==", "Qg==", "Qw=="])));
}

#[tokio::test]
async fn an_image_counts_in_the_estimate_and_not_by_its_bytes() {
    let before = crate::estimate_tokens(&conversation("m"));
    let with = crate::estimate_tokens(&with_images());
    assert_eq!(with - before, 3 * ghost_domain::image::IMAGE_TOKENS as u64);
}
