//! The wire contract between `ghostd` and its clients: the code generated from `ghost/v1/*.proto`,
//! the names of gRPC trailers, and the messages as JSON.
//!
//! This crate must never contain a rule or a default. `ghost-control` converts these messages to
//! domain values.

#![warn(missing_docs)]

pub mod http;
pub mod json;

/// Metadata key of the trailer with a refusal: the JSON object `{error, code, hint?, details?}`.
pub const REFUSAL_TRAILER: &str = "ghost-refusal-bin";

/// Metadata key of the trailer at the end of an event stream whose subscriber was too slow (gRPC
/// code `ABORTED`): the last sent sequence number as decimal text. A new subscription after it
/// continues without a gap or repetition.
pub const LAST_SEQ_TRAILER: &str = "ghost-last-seq";

/// The compiled descriptors of all services, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ghost_descriptors.bin"));

// `build.rs` writes the implementations of these traits.

/// A request of one method.
pub trait Call: prost::Message + Clone + Default + 'static {
    /// The answer of the method, or one item of its stream.
    type Answer: prost::Message + Default + 'static;
    /// The path of the method, such as `/ghost.v1.Messages/Send`.
    const PATH: &'static str;
}

/// A request that changes something.
pub trait Change: Call {
    /// The name of its method in the key under which its answer is stored, such as `messages.send`.
    const METHOD: &'static str;

    /// The client's name for the request: sent again with the same one, it is carried out once.
    fn request_id(&self) -> &str;
}

/// A request for one page of a list.
pub trait Paged: Call {
    /// A row of the list.
    type Row;

    /// The request for the page of at most `limit` rows at `cursor`.
    #[must_use]
    fn at(self, limit: u32, cursor: String) -> Self;

    /// The rows of an answer, and the cursor of the next page, which is empty at the end.
    fn rows(answer: Self::Answer) -> (Vec<Self::Row>, String);
}

/// Package `ghost.v1`: messages and clients (`*_client`).
#[allow(missing_docs)] // generated code besides the messages has no comments: enums of oneofs, clients
pub mod v1 {
    tonic::include_proto!("ghost.v1");
    include!(concat!(env!("OUT_DIR"), "/calls.rs"));
}

// A refusal names the wrong field by its wire name; a user of `ghostctl` or HTTP needs the name of the option or parameter.

/// Replaces each word of `text` for which `name` returns a replacement. Text in backticks stays as
/// it is. A word is a run of letters, digits and underscores.
#[must_use]
pub fn renamed(text: &str, name: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, part) in text.split('`').enumerate() {
        if at > 0 {
            out.push('`');
        }
        // Odd parts are inside backticks.
        if at % 2 == 1 {
            out.push_str(part);
            continue;
        }
        for piece in part.split_inclusive(|c| !is_part(c)) {
            let word = piece.trim_end_matches(|c| !is_part(c));
            match name(word) {
                Some(name) => out.push_str(&name),
                None => out.push_str(word),
            }
            out.push_str(&piece[word.len()..]);
        }
    }
    out
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod renamed_tests {
    use super::*;

    fn name(word: &str) -> Option<String> {
        match word {
            "after_seq" => Some("--after".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn words_are_replaced_whole_and_never_what_somebody_wrote() {
        for (text, wanted) in [
            ("after_seq is 9; read on with after_seq.", "--after is 9; read on with --after."),
            ("`after_seq` is no tool, my_after_seq neither", "`after_seq` is no tool, my_after_seq neither"),
            ("(after_seq)", "(--after)"),
            ("an open ` and after_seq", "an open ` and after_seq"),
            ("é after_seqs, äafter_seq", "é after_seqs, äafter_seq"),
            ("", ""),
        ] {
            assert_eq!(renamed(text, name), wanted);
        }
    }
}
