//! The parts of an answer that subscribers see while the model writes it.

use ghost_domain::EventKind;
use ghost_domain::transcript::Block;
use ghost_provider::Stop;
use ghost_provider::testing::{Reply, say};
use serde_json::Value;

use super::agent_world::AgentWorld;

const FILLER: &str = "and on it goes, word after word, until there is enough of it to be streamed, ";

/// The text that is streamed when an answer comes in these pieces.
async fn streamed(world: &AgentWorld, pieces: Vec<&'static str>) -> String {
    let payloads = deltas(world, pieces).await;
    payloads.iter().map(|payload| payload["text"].as_str().unwrap()).collect()
}

/// The deltas that are streamed when an answer comes in these pieces.
async fn deltas(world: &AgentWorld, pieces: Vec<&'static str>) -> Vec<Value> {
    let mut feed = world.store().feed();
    world.model.reply_with(move |_, _| Reply::Stream(pieces.clone()));
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let mut streamed = Vec::new();
    while let Ok(batch) = feed.try_recv() {
        let deltas = batch.iter().filter(|event| event.kind == EventKind::ModelDelta);
        streamed.extend(deltas.map(|event| (*event.payload).clone()));
    }
    streamed
}

// covers: LOOP-07, LOOP-08
#[tokio::test]
async fn reasoning_and_control_tokens_are_not_streamed() {
    let world = AgentWorld::new().await;
    let mut pieces = vec!["<thi", "nk>the se", "cret plan, "];
    pieces.extend([FILLER; 8]);
    pieces.extend(["</th", "ink>\n\n", "The answer, "]);
    pieces.extend([FILLER; 8]);
    pieces.extend(["<|im_", "end|>"]);
    let seen = streamed(&world, pieces).await;
    assert!(seen.starts_with("The answer, and on") && !seen.contains("secret") && !seen.contains("im_end"), "{seen}");
    assert_eq!(world.turn("ada").await.text.unwrap(), seen.trim());
}

#[tokio::test]
async fn unopened_reasoning_is_discarded_once_and_then_never_streamed() {
    let world = AgentWorld::new().await;
    let pieces = || {
        let mut pieces = vec!["the secret plan, "];
        pieces.extend([FILLER; 8]);
        pieces.extend(["</think>", "The answer."]);
        pieces
    };
    // The first answer cannot be recognised in time: its text is shown and then discarded.
    // Afterwards it is known.
    let first = deltas(&world, pieces()).await;
    let discards = first.iter().position(|delta| delta["discard"] == true).unwrap();
    assert!(discards > 0 && first[0]["text"].as_str().unwrap().starts_with("the secret plan"));
    let rest: String = first[discards..].iter().map(|delta| delta["text"].as_str().unwrap()).collect();
    assert_eq!(rest, "The answer.");
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("The answer."), "reasoning is not kept as the answer");
    for _ in 0..2 {
        assert_eq!(streamed(&world, pieces()).await, "The answer.");
    }
    // When the model stops reasoning first, its text is shown from the answer after the next.
    assert_eq!(streamed(&world, vec!["Plain words."]).await, "");
    assert_eq!(streamed(&world, vec!["Plain words."]).await, "Plain words.");
}

#[tokio::test]
async fn a_model_that_reasons_first_is_recognised_without_subscribers_and_its_cut_reasoning_is_no_answer() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| say("the secret plan</think>The answer."));
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(streamed(&world, vec!["the secret plan", "</think>The answer."]).await, "The answer.");
    world.model.reply_with(|_, n| match n {
        0 => Reply::Answer(vec![Block::Text { text: "the secret plan is".into() }], Stop::MaxTokens),
        _ => say("the plan</think>Short."),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("Short."), "cut reasoning is no answer");
}
