//! What a provider attached to its earlier answers, as it goes back to it.
//!
//! Must never: show it to another provider or model than the one that wrote it, or change it.

use ghost_domain::transcript::{Block, Message, Opaque};
use serde_json::value::RawValue;

use crate::model::ModelRequest;

/// A part of an earlier answer.
pub(crate) enum Part<'m> {
    /// A block, with what its author attached to it, if this is its author.
    Block(&'m Block, Option<&'m RawValue>),
    /// What the author added beside its blocks.
    Alone(&'m RawValue),
}

/// The parts of an answer, for whom `request` asks. What others attached is left out.
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

/// It as JSON; nothing if it is none, which no adapter has written.
fn raw(opaque: &Opaque) -> Option<&RawValue> {
    serde_json::from_str(&opaque.json).ok()
}

/// What is attached to the block that follows.
pub(crate) fn attached(request: &ModelRequest, json: String) -> Block {
    Block::Opaque(Opaque { author: request.author(), json, attached: true })
}

/// What stands for itself.
pub(crate) fn alone(request: &ModelRequest, json: String) -> Block {
    Block::Opaque(Opaque { author: request.author(), json, attached: false })
}

#[cfg(test)]
mod tests {
    use ghost_domain::transcript::Role;

    use super::*;
    use crate::testing::request;

    #[test]
    fn only_its_author_gets_what_was_attached() {
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
