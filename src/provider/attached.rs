//! Opaque state that a provider attached to its earlier answers. Later calls send it back.
//!
//! This module must never change the state. It must never send it to any provider or model but its author.

use ghost_domain::transcript::{Block, Message, Opaque};
use serde_json::value::RawValue;

use crate::model::ModelRequest;

/// A part of an earlier answer, as it is sent back.
pub(crate) enum Part<'m> {
    /// A block, with the state that is attached to it.
    Block(&'m Block, Option<&'m RawValue>),
    /// State that belongs to no block.
    Alone(&'m RawValue),
}

/// The parts of an earlier answer, for the model that `request` calls. State of other authors is
/// omitted.
pub(crate) fn parts<'m>(request: &ModelRequest, message: &'m Message) -> Vec<Part<'m>> {
    let (author, mut attached) = (request.author(), None);
    let mut parts = Vec::with_capacity(message.blocks.len());
    for block in &message.blocks {
        let Block::Opaque(opaque) = block else {
            parts.push(Part::Block(block, attached.take()));
            continue;
        };
        let json = raw(opaque).filter(|_| opaque.author == author);
        match (json, opaque.attached) {
            (Some(json), true) => attached = Some(json),
            (Some(json), false) => parts.push(Part::Alone(json)),
            (None, _) => {}
        }
    }
    parts
}

/// The state as JSON; `None` if it is not JSON, which no adapter writes.
fn raw(opaque: &Opaque) -> Option<&RawValue> {
    serde_json::from_str(&opaque.json).ok()
}

/// A block of state that is attached to the block after it.
pub(crate) fn attached(request: &ModelRequest, json: String) -> Block {
    Block::Opaque(Opaque { author: request.author(), json, attached: true })
}

/// A block of state that belongs to no other block.
pub(crate) fn alone(request: &ModelRequest, json: String) -> Block {
    Block::Opaque(Opaque { author: request.author(), json, attached: false })
}

#[cfg(test)]
mod tests {
    use ghost_domain::transcript::Role;

    use super::*;
    use crate::testing::request;

    #[test]
    fn only_the_author_gets_its_state_back() {
        let own = request("m", "");
        let other = ModelRequest { model: "n".to_owned(), ..request("m", "") };
        let json = "{ \"signature\" : \"\u{e4}/+=\" }";
        let thought = Block::Thinking { text: "hm".to_owned() };
        let blocks = vec![attached(&own, json.to_owned()), thought.clone(), alone(&own, "[1, 2]".to_owned()), thought];
        let message = Message { role: Role::Assistant, blocks };
        let shown = |request: &ModelRequest| -> Vec<String> {
            let text = |part: &Part<'_>| match part {
                Part::Block(_, Some(json)) => format!("thought {json}"),
                Part::Block(_, None) => "thought".to_owned(),
                Part::Alone(json) => json.to_string(),
            };
            parts(request, &message).iter().map(text).collect()
        };
        assert_eq!(shown(&own), [format!("thought {json}").as_str(), "[1, 2]", "thought"]);
        assert_eq!(shown(&other), ["thought", "thought"]);
    }
}
