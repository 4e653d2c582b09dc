//! The tokens of a run, under the names that the agents use for them (DEV-21).

use serde::de::{IgnoredAny, MapAccess};

use crate::fields::{Loose, Number, Text, read_loosely};

/// The tokens of a run, as the agent counts them: with some agents, `input` includes the tokens
/// that were read from a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the input.
    pub input: u64,
    /// Tokens that the model wrote.
    pub output: u64,
    /// Tokens of the input that were read from a cache.
    pub cache_read: u64,
    /// Tokens of the input that were written to a cache.
    pub cache_write: u64,
}

/// The usage in an event and, with some agents, the duration.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) usage: Option<Usage>,
    pub(crate) duration_ms: Option<u64>,
}
read_loosely!(Stats);

impl<'de> Loose<'de> for Stats {
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let (mut usage, mut found, mut duration_ms) = (Usage::default(), false, None);
        while let Some(key) = map.next_key::<Text<'de>>()? {
            let field = match key.as_str() {
                "inputTokens" | "input_tokens" => &mut usage.input,
                "outputTokens" | "output_tokens" => &mut usage.output,
                "cacheReadTokens"
                | "cache_read_tokens"
                | "cache_read_input_tokens"
                | "cacheReadInputTokens"
                | "cached_input_tokens"
                | "cached" => &mut usage.cache_read,
                "cacheWriteTokens"
                | "cache_write_tokens"
                | "cache_creation_input_tokens"
                | "cacheCreationInputTokens"
                | "cache_write_input_tokens" => &mut usage.cache_write,
                "duration_ms" | "durationMs" => {
                    duration_ms = map.next_value::<Number>()?.0;
                    continue;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if let Some(number) = map.next_value::<Number>()?.0 {
                *field = number;
                found = true;
            }
        }
        Ok(Self { usage: found.then_some(usage), duration_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_has_many_names() {
        let camel = r#"{"inputTokens":1,"outputTokens":"2","cacheReadTokens":3,"cacheWriteTokens":4}"#;
        let snake = r#"{"input_tokens":1,"output_tokens":2,"cache_read_tokens":3,"cache_write_tokens":4}"#;
        let claude = r#"{"input_tokens":1,"cache_creation_input_tokens":4,"cache_read_input_tokens":3,
            "cache_creation":{"ephemeral_5m_input_tokens":4},"output_tokens":2,"service_tier":"standard"}"#;
        for json in [camel, snake, claude] {
            let expected = Usage { input: 1, output: 2, cache_read: 3, cache_write: 4 };
            assert_eq!(read(json).usage, Some(expected), "{json}");
        }
        assert_eq!(read("{\"input_tokens\":null}").usage, None);
        assert_eq!(read("{\"duration_ms\":\"12\"}").duration_ms, Some(12));
    }

    fn read(json: &str) -> Stats {
        serde_json::from_str(json).unwrap()
    }
}
