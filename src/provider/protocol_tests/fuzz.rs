//! Arbitrary bytes as an answer: always an answer or an error, never a panic or a hang.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::Builder;

use super::*;
use crate::model::NoDeltas;

/// Pieces that are almost valid, so that the parsers are reached.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let almost_valid = prop_oneof![
        Just("data: "),
        Just("\n\n"),
        Just("\n"),
        Just("event: content_block_delta\n"),
        Just("event: content_block_start\n"),
        Just("event: message_delta\n"),
        Just("event: message_stop\ndata: {}\n\n"),
        Just("[DONE]"),
        Just("{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":4000000000,\"function\":{\"name\":\"x\"}}]}}]}"),
        Just("{\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}"),
        Just(
            "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"\",\"name\":\"\"}}"
        ),
        Just("{\"delta\":{\"partial_json\":\"{\"}}"),
        Just(
            "{\"usage\":{\"input_tokens\":2147483647,\"output_tokens\":2147483647,\"cache_read_input_tokens\":2147483647}}"
        ),
        Just("{\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{}}]},\"finishReason\":\"STOP\"}]}"),
        Just(
            "{\"usageMetadata\":{\"promptTokenCount\":2147483647,\"toolUsePromptTokenCount\":2147483647},\"candidates\":[]}"
        ),
        Just("{\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"usageMetadata\":{\"promptTokenCount\":-1}}"),
        Just("{\"content_block\":{\"type\":\"server_tool_use\"},\"delta\":{\"type\":\"citations_delta\"}}"),
        Just("{\"message\":{\"content\":\"x\",\"tool_calls\":[{}]},\"done\":false}"),
        Just("{\"done\":true,\"prompt_eval_count\":2147483647,\"eval_count\":2147483647}"),
        Just("{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"message\",\"content\":[{\"text\":\"x\"}]}}"),
        Just("{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"reasoning\",\"content\":[{}]}}"),
        Just("{\"type\":\"response.output_text.delta\",\"delta\":\"x\",\"content_index\":4000000000}"),
        Just("{\"type\":\"response.incomplete\",\"response\":{\"output\":[{\"type\":\"function_call\"}]}}"),
        Just("{\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":-1}}}"),
        Just("null"),
        Just("[]"),
    ];
    prop_oneof![4 => almost_valid.prop_map(|text| text.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..20)]
}

#[test]
fn any_bytes_end_in_an_answer_or_an_error() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (server, body) = runtime.block_on(async {
        let body = Arc::new(std::sync::Mutex::new((200_u16, Vec::new(), 1)));
        let shared = Arc::clone(&body);
        let server = serve(move |_| {
            let (status, bytes, size) = shared.lock().unwrap().clone();
            FakeReply::new(status, "text/event-stream", bytes).in_pieces(size)
        });
        (server.await, body)
    });
    let kinds = [ProviderKind::OpenAi, ProviderKind::Anthropic, ProviderKind::Gemini, ProviderKind::Ollama];
    let mut adapters: Vec<_> = kinds.into_iter().map(|kind| adapter(kind, server.url())).collect();
    adapters.push(responses::adapter(&server));
    let turn = conversation("m");
    let input =
        (prop::collection::vec(piece(), 0..12), 1_usize..40, prop::sample::select(vec![200_u16, 200, 200, 404, 500]));
    TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() })
        .run(&input, |(pieces, size, status)| {
            *body.lock().unwrap() = (status, pieces.concat(), size);
            for adapter in &adapters {
                let outcome = runtime.block_on(adapter.complete(&turn, &mut NoDeltas));
                match outcome {
                    Ok(answer) => prop_assert!(!answer.blocks.is_empty()),
                    Err(error) => prop_assert!(error.message.len() <= crate::error::MESSAGE_MAX),
                }
            }
            Ok(())
        })
        .unwrap();
}
