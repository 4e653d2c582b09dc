//! Prompt caches by the documented rules of the providers.
//!
//! Anthropic: the prefix before each mark is cached. A later request reads the longest cached
//! prefix, searching up to twenty blocks before each of its marks; the minimum is 1,024 tokens. The
//! others cache the beginnings of requests by themselves: at least 1,024 tokens, in steps of 128.
//!
//! The cache must never count a hit that a provider would not count.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::common::{InputTokens, Wire, list};

const TOKENS_MIN: u64 = 1_024;
const STEP: u64 = 128;
const LOOK_BACK: usize = 20;
/// Bytes that count as one token.
const TOKEN: u64 = 4;

/// Hashes of the cached prefixes.
#[derive(Default)]
pub(super) struct Prefixes(BTreeSet<u64>);

/// The end of a prefix: its hash, its tokens, and whether it has a mark.
struct End {
    hash: u64,
    tokens: u64,
    marked: bool,
}

impl Prefixes {
    /// The cache tokens of a request; also stores its prefixes.
    pub(super) fn take(&mut self, wire: Wire, body: &Value) -> InputTokens {
        let ends = match wire {
            Wire::Anthropic => blocks(body),
            _ => steps(body),
        };
        let all = ends.last().map_or(0, |end| end.tokens) + 1;
        let known = |end: &&End| end.tokens >= TOKENS_MIN && self.0.contains(&end.hash);
        let read = match wire {
            Wire::Anthropic => {
                let marks = ends.iter().enumerate().filter(|(_, end)| end.marked).map(|(at, _)| at);
                let found = marks.filter_map(|at| ends[at.saturating_sub(LOOK_BACK)..=at].iter().rev().find(known));
                found.map(|end| end.tokens).max().unwrap_or(0)
            }
            _ => ends.iter().rev().find(known).map_or(0, |end| end.tokens),
        };
        let kept: Vec<&End> =
            ends.iter().filter(|end| end.tokens >= TOKENS_MIN && (end.marked || wire != Wire::Anthropic)).collect();
        let last = kept.last().map_or(0, |end| end.tokens);
        self.0.extend(kept.iter().map(|end| end.hash));
        // Only Anthropic reports the tokens that it writes to the cache.
        let written = if wire == Wire::Anthropic { last.saturating_sub(read) } else { 0 };
        InputTokens { read, written, uncached: all - read - written }
    }
}

/// The ends of Anthropic's blocks: tools, system part, then messages.
fn blocks(body: &Value) -> Vec<End> {
    let messages = list(body, "messages").iter().flat_map(|message| list(message, "content"));
    let all = list(body, "tools").iter().chain(list(body, "system")).chain(messages);
    let (mut hasher, mut bytes) = (DefaultHasher::new(), 0);
    all.map(|block| {
        let mut block = block.clone();
        let marked = block.as_object_mut().is_some_and(|fields| fields.remove("cache_control").is_some());
        let text = block.to_string();
        text.hash(&mut hasher);
        bytes += text.len() as u64;
        End { hash: hasher.finish(), tokens: bytes / TOKEN, marked }
    })
    .collect()
}

/// The prefixes that the other providers cache, in their order, in steps of 128 tokens.
fn steps(body: &Value) -> Vec<End> {
    let parts = ["tools", "instructions", "systemInstruction", "input", "messages", "contents"];
    let text: String = parts.iter().filter_map(|key| body.get(*key)).map(Value::to_string).collect();
    let mut hasher = DefaultHasher::new();
    let step = usize::try_from(STEP * TOKEN).unwrap_or(512);
    let ends = text.as_bytes().chunks_exact(step).zip(1..);
    ends.map(|(chunk, n)| {
        chunk.hash(&mut hasher);
        End { hash: hasher.finish(), tokens: n * STEP, marked: false }
    })
    .collect()
}
