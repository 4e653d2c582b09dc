//! What whoever watches sees of an answer while it is made.

use ghost_domain::EventKind;
use ghost_domain::transcript::Block;
use ghost_provider::Stop;
use serde_json::Value;

use super::fakes::{Reply, say};
use super::rig::Rig;

const FILLER: &str = "and on it goes, word after word, until there is enough of it to be streamed, ";

/// What is streamed of an answer that comes in these pieces.
async fn streamed(rig: &Rig, pieces: Vec<&'static str>) -> String {
    let payloads = deltas(rig, pieces).await;
    payloads.iter().map(|payload| payload["text"].as_str().unwrap()).collect()
}

/// The deltas that are streamed of an answer that comes in these pieces.
async fn deltas(rig: &Rig, pieces: Vec<&'static str>) -> Vec<Value> {
    let mut feed = rig.store().feed();
    rig.model.does(move |_, _| Reply::Stream(pieces.clone()));
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    let mut streamed = Vec::new();
    while let Ok(batch) = feed.try_recv() {
        let deltas = batch.iter().filter(|event| event.kind == EventKind::ModelDelta);
        streamed.extend(deltas.map(|event| (*event.payload).clone()));
    }
    streamed
}

// covers: LOOP-07, LOOP-08
#[tokio::test]
async fn reasoning_and_calls_in_words_are_not_streamed() {
    let rig = Rig::new().await;
    let mut pieces = vec!["<thi", "nk>the se", "cret plan, "];
    pieces.extend([FILLER; 8]);
    pieces.extend(["</th", "ink>\n\n", "The answer, "]);
    pieces.extend([FILLER; 8]);
    pieces.extend(["<|im_", "end|>"]);
    let seen = streamed(&rig, pieces).await;
    assert!(seen.starts_with("The answer, and on") && !seen.contains("secret") && !seen.contains("im_end"), "{seen}");
    assert_eq!(rig.turn("ada").await.text.unwrap(), seen.trim());
}

#[tokio::test]
async fn of_a_model_whose_reasoning_is_opened_elsewhere_nothing_is_streamed_before_its_close() {
    let rig = Rig::new().await;
    let pieces = || {
        let mut pieces = vec!["the secret plan, "];
        pieces.extend([FILLER; 8]);
        pieces.extend(["</think>", "The answer."]);
        pieces
    };
    // Nobody can tell at its first answer: what was shown is to be discarded. From then on it is known.
    let first = deltas(&rig, pieces()).await;
    let discards = first.iter().position(|delta| delta["discard"] == true).unwrap();
    assert!(discards > 0 && first[0]["text"].as_str().unwrap().starts_with("the secret plan"));
    let rest: String = first[discards..].iter().map(|delta| delta["text"].as_str().unwrap()).collect();
    assert_eq!(rest, "The answer.");
    assert_eq!(rig.turn("ada").await.text.as_deref(), Some("The answer."), "none of it is kept as the answer");
    for _ in 0..2 {
        assert_eq!(streamed(&rig, pieces()).await, "The answer.");
    }
    // One that does so no more is shown again, from the answer after the one that tells.
    assert_eq!(streamed(&rig, vec!["Plain words."]).await, "");
    assert_eq!(streamed(&rig, vec!["Plain words."]).await, "Plain words.");
}

#[tokio::test]
async fn a_model_that_reasons_first_is_known_though_nobody_watched_and_has_said_nothing_when_it_is_cut_there() {
    let rig = Rig::new().await;
    rig.model.does(|_, _| say("the secret plan</think>The answer."));
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    assert_eq!(streamed(&rig, vec!["the secret plan", "</think>The answer."]).await, "The answer.");
    rig.model.does(|_, n| match n {
        0 => Reply::Say(vec![Block::Text { text: "the secret plan is".into() }], Stop::MaxTokens),
        _ => say("the plan</think>Short."),
    });
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    assert_eq!(rig.turn("ada").await.text.as_deref(), Some("Short."), "reasoning that was cut is no answer");
}
