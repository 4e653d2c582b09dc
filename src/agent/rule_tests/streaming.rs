//! What whoever watches sees of an answer while it is made.

use ghost_domain::EventKind;

use super::fakes::Reply;
use super::rig::Rig;

const FILLER: &str = "and on it goes, word after word, until there is enough of it to be streamed, ";

/// What is streamed of an answer that comes in these pieces.
async fn streamed(rig: &Rig, pieces: Vec<&'static str>) -> String {
    let mut feed = rig.store().feed();
    rig.model.does(move |_, _| Reply::Stream(pieces.clone()));
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    let mut streamed = Vec::new();
    while let Ok(batch) = feed.try_recv() {
        let deltas = batch.iter().filter(|event| event.kind == EventKind::ModelDelta);
        streamed.extend(deltas.map(|event| event.payload["text"].as_str().unwrap().to_owned()));
    }
    streamed.concat()
}

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
    // Nobody can tell at its first answer; from then on it is known.
    streamed(&rig, pieces()).await;
    for _ in 0..2 {
        assert_eq!(streamed(&rig, pieces()).await, "The answer.");
    }
    // One that does so no more is shown again, from the answer after the one that tells.
    assert_eq!(streamed(&rig, vec!["Plain words."]).await, "");
    assert_eq!(streamed(&rig, vec!["Plain words."]).await, "Plain words.");
}
