//! Resources and prompts.

use super::fake::{limited, open, plain};
use ghost_mcp::{Block, CallError, Limits, PromptArgument};
use serde_json::json;

#[tokio::test]
async fn resources_are_listed_and_bad_ones_are_skipped() {
    let (connection, mut fake) = open(plain()).await;
    let (list, ()) = tokio::join!(connection.resources(), async {
        let request = fake.expect("resources/list").await;
        let good = json!({"uri": "file:///a", "name": "a", "mimeType": "text/plain", "size": 3});
        let long = json!({"uri": "x".repeat(3_000), "name": "long"});
        fake.reply(&request, json!({"resources": [{"name": "none"}, good, long, 7]})).await;
    });
    let list = list.unwrap();
    assert_eq!((list.items[0].uri.as_str(), list.items[0].size), ("file:///a", Some(3)));
    let skipped: Vec<_> = list.skipped.iter().map(|skipped| skipped.name.as_str()).collect();
    assert_eq!(skipped, ["none", "long", ""]);
}

#[tokio::test]
async fn a_resource_is_read_within_its_bound() {
    let (connection, mut fake) = open(limited(Limits { read_bytes: 10, ..Limits::default() })).await;
    let (result, ()) = tokio::join!(connection.read_resource("file:///a"), async {
        let request = fake.expect("resources/read").await;
        assert_eq!(request["params"]["uri"], "file:///a");
        let text = json!({"uri": "file:///a", "text": "abc"});
        let blob = json!({"uri": "file:///b", "blob": "A".repeat(20), "mimeType": "image/png"});
        fake.reply(&request, json!({"contents": [text, blob, {"odd": 1}]})).await;
    });
    let (blocks, is_cut) = result.unwrap();
    assert!(is_cut);
    assert_eq!(blocks[0].text(), "abc");
    assert!(matches!(&blocks[1], Block::Resource { base64_bytes: 20, data: None, .. }), "{:?}", blocks[1]);
    assert!(matches!(&blocks[2], Block::Unknown { .. }));
}

#[tokio::test]
async fn prompts_are_listed_and_filled() {
    let (connection, mut fake) = open(plain()).await;
    let arguments = json!({"city": "Berlin"}).as_object().unwrap().clone();
    let client = async { (connection.prompts().await, connection.get_prompt("weather", arguments).await) };
    let ((list, prompt), ()) = tokio::join!(client, async {
        let request = fake.expect("prompts/list").await;
        let arguments = json!([{"name": "city", "required": true}, {"odd": 1}]);
        fake.reply(&request, json!({"prompts": [{"name": "weather", "arguments": arguments}, {"name": ""}]})).await;
        let request = fake.expect("prompts/get").await;
        assert_eq!(request["params"]["arguments"], json!({"city": "Berlin"}));
        let message = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
        fake.reply(&request, json!({"description": "d", "messages": [message("Hello"), {"role": 1}]})).await;
    });
    let list = list.unwrap();
    let city = PromptArgument { name: "city".to_owned(), description: None, is_required: true };
    assert_eq!((list.items[0].name.as_str(), list.items[0].arguments.as_slice()), ("weather", [city].as_slice()));
    assert_eq!(list.skipped.len(), 1);
    let prompt = prompt.unwrap();
    assert_eq!((prompt.messages[0].role.as_str(), prompt.messages[0].block.text().as_str()), ("user", "Hello"));
    assert!(matches!(&prompt.messages[1].block, Block::Unknown { .. }));
}

#[tokio::test]
async fn results_without_their_list_are_malformed() {
    let (connection, mut fake) = open(plain()).await;
    let client = async { (connection.read_resource("x").await, connection.get_prompt("x", Default::default()).await) };
    let ((resource, prompt), ()) = tokio::join!(client, async {
        for method in ["resources/read", "prompts/get"] {
            let request = fake.expect(method).await;
            fake.reply(&request, json!({"other": 1})).await;
        }
    });
    assert!(matches!(resource, Err(CallError::Malformed { .. })));
    assert!(matches!(prompt, Err(CallError::Malformed { .. })));
}
