//! Long rounds of calls with servers that require their opaque state back, byte for byte.

use super::*;
use crate::model::Stop;
use crate::testing::{StrictServer, Wire};

const ROUNDS: usize = 20;

/// Text in every third round, two parallel calls in every second, and an answer without calls at
/// the end.
fn script(answers: usize) -> Vec<Block> {
    let path = |n: usize| json!({ "path": format!("{n}.md") });
    let mut blocks = Vec::new();
    if answers.is_multiple_of(3) || answers == ROUNDS {
        blocks.push(text(&format!("round {answers}")));
    }
    if answers < ROUNDS {
        blocks.push(call("", "workspace.read", path(answers)));
        if answers % 2 == 1 {
            blocks.push(call("", "workspace.list", path(answers)));
        }
    }
    blocks
}

fn answers(messages: &[Message]) -> usize {
    messages.iter().filter(|message| message.role == Role::Assistant).count()
}

/// The blocks as they are after a restart of the daemon: written to JSON and read back.
fn journaled(blocks: Vec<Block>) -> Vec<Block> {
    serde_json::from_str(&serde_json::to_string(&blocks).unwrap()).unwrap()
}

pub(super) fn adapter_for(wire: Wire, url: String) -> Arc<dyn Provider> {
    let api = match wire {
        Wire::Responses => Some(Api::Responses),
        _ => None,
    };
    let plan = ProviderPlan { api_key_env: Some("THE_KEY".to_owned()), api, ..provider_plan(wire.kind(), Some(url)) };
    build(plan, &|_| Some(KEY.to_owned())).unwrap().get("p").unwrap().provider.clone()
}

fn turn() -> ModelRequest {
    let mut turn = conversation("model-x");
    turn.messages_mut().truncate(2);
    (turn.temperature, turn.thinking, turn.max_tokens) = (None, Some(Thinking::High), 32_000);
    turn
}

/// Makes a call and adds the answer and the results of its calls to the conversation.
async fn round(adapter: &Arc<dyn Provider>, turn: &mut ModelRequest) -> Stop {
    let answer = ask(adapter, turn).await;
    let blocks = journaled(answer.blocks);
    let results = |block: &Block| match block {
        Block::ToolCall { id, name, .. } => Some(Block::ToolResult {
            id: id.clone(),
            name: name.clone(),
            content: format!("result of {id}"),
            is_error: false,
        }),
        _ => None,
    };
    let results: Vec<Block> = blocks.iter().filter_map(results).collect();
    turn.messages_mut().push(Message { role: Role::Assistant, blocks }.into());
    if !results.is_empty() {
        turn.messages_mut().push(Message { role: Role::Tool, blocks: results }.into());
    }
    answer.stop
}

#[tokio::test]
async fn twenty_rounds_send_all_opaque_state_back() {
    for wire in Wire::ALL {
        let server = StrictServer::start(wire, |asked| script(answers(&asked.messages))).await.unwrap();
        let adapter = adapter_for(wire, server.base_url());
        let mut turn = turn();
        for n in 0..=ROUNDS {
            let stop = round(&adapter, &mut turn).await;
            assert_eq!(stop, if n < ROUNDS { Stop::ToolUse } else { Stop::EndTurn }, "{wire:?} {n}");
        }
        assert_eq!((server.refusals(), server.requests().len()), (Vec::new(), ROUNDS + 1), "{wire:?}");
    }
}

#[tokio::test]
async fn another_model_gets_no_opaque_state_and_is_not_asked_to_reason() {
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Gemini] {
        let server = StrictServer::start(wire, |asked| script(answers(&asked.messages))).await.unwrap();
        let adapter = adapter_for(wire, server.base_url());
        let mut turn = turn();
        for _ in 0..3 {
            round(&adapter, &mut turn).await;
        }
        let first = server.requests().remove(0).body.to_string();
        turn.model = "model-y".to_owned();
        let mut shown = Shown::default();
        // The server refuses this conversation, which does not matter here.
        let _ = adapter.complete(&turn, &mut shown).await;
        let sent = server.requests().pop().unwrap().body.to_string();
        for secret in ["c2ln", "gAAAA", "redacted", "rs_1", "thought 1"] {
            assert!(!sent.contains(secret), "{wire:?}: {secret} in {sent}");
        }
        let asks_for_reasoning = |body: &str| {
            ["adaptive", "\"effort\":\"high\"", "\"thinkingLevel\":\"high\""].iter().any(|word| body.contains(word))
        };
        assert!(asks_for_reasoning(&first) && !asks_for_reasoning(&sent), "{wire:?}: {sent}");
    }
}

#[tokio::test]
async fn changed_state_gives_a_stale_state_error() {
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Chat] {
        let server = StrictServer::start(wire, |asked| script(answers(&asked.messages))).await.unwrap();
        let adapter = adapter_for(wire, server.base_url());
        let mut turn = turn();
        round(&adapter, &mut turn).await;
        for block in turn.messages_mut().iter_mut().flat_map(|message| &mut message.blocks) {
            if let Block::Opaque(opaque) = block {
                opaque.json = opaque.json.replace("c2ln", "c2lo").replace("gAAAA", "gBBBB");
            }
        }
        let error = adapter.complete(&turn, &mut Shown::default()).await.unwrap_err();
        assert_eq!(error.kind.as_str(), "stale_state", "{wire:?}: {error}");
    }
}
