//! Facts about a model other than its price: how it takes the setting for reasoning, and which
//! parameters and sizes it accepts.
//!
//! This module must never contain the name of a model. Names are data.

use serde::{Deserialize, Serialize};

use crate::macros::text_enum;

text_enum! {
    /// How much a model should reason before it answers.
    Thinking, "amount of thinking" {
        /// No reasoning, if the model can turn it off.
        None = "none",
        /// Little reasoning.
        Low = "low",
        /// Medium reasoning.
        Medium = "medium",
        /// Much reasoning.
        High = "high",
    }
}

text_enum! {
    /// The API of a provider of the kind `openai`.
    Api, "API" {
        /// `/responses`.
        Responses = "responses",
        /// `/chat/completions`.
        Chat = "chat",
    }
}

/// How a request tells a model to reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingControl {
    /// Not known. The request uses the form of most models of the provider.
    #[default]
    Unknown,
    /// The model does not reason.
    Never,
    /// With a number of tokens.
    Budget,
    /// With an effort word. The request omits an amount that has no word.
    Effort,
    /// With an effort word; the model itself decides whether it reasons.
    Adaptive,
    /// Like `Adaptive`, but the reasoning cannot be turned off.
    AlwaysAdaptive,
    /// Only on or off.
    Switch,
}

/// Facts about a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    /// How a request tells the model to reason.
    pub thinking: ThinkingControl,
    /// Effort words that the model accepts, weakest first; empty if unknown.
    pub efforts: Vec<String>,
    /// Smallest and largest thinking budget in tokens; `None` if unknown.
    pub thinking_tokens: Option<(u64, u64)>,
    /// Whether the model accepts a temperature.
    pub temperature: bool,
    /// Size of the context window in tokens.
    pub context_tokens: Option<u64>,
    /// Largest answer in tokens, reasoning included.
    pub output_tokens: Option<u64>,
    /// The API that the model needs, if its provider has several.
    pub api: Option<Api>,
    /// Whether the model can see images.
    pub vision: bool,
    /// Whether the model can load a tool in the middle of a conversation, in its provider's own form.
    pub loads_tools: bool,
}

impl Default for ModelFacts {
    fn default() -> Self {
        Self {
            thinking: ThinkingControl::Unknown,
            efforts: Vec::new(),
            thinking_tokens: None,
            temperature: true,
            context_tokens: None,
            output_tokens: None,
            api: None,
            vision: false,
            loads_tools: false,
        }
    }
}

impl ModelFacts {
    /// The thinking budget in tokens for `thinking`, within the model's bounds.
    pub fn thinking_budget(&self, thinking: Thinking) -> u64 {
        let wanted = match thinking {
            Thinking::None => return 0,
            Thinking::Low => 2_048,
            Thinking::Medium => 8_192,
            Thinking::High => 24_576,
        };
        self.thinking_tokens.map_or(wanted, |(least, most)| wanted.clamp(least.min(most), most))
    }

    /// The model's effort word for `thinking`: the same word, else the next weaker one that it
    /// accepts, else its weakest. If the model's words are unknown, the same word, or `None` for
    /// [`Thinking::None`].
    pub fn effort(&self, thinking: Thinking) -> Option<&str> {
        const ORDER: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
        if self.efforts.is_empty() {
            return (thinking != Thinking::None).then_some(thinking.as_str());
        }
        let rank = |word: &str| ORDER.iter().position(|known| *known == word);
        let wanted = rank(thinking.as_str());
        let not_stronger = |word: &&String| rank(word).is_some() && rank(word) <= wanted;
        let found = self.efforts.iter().rev().find(not_stronger);
        // A model that cannot turn reasoning off gets its weakest word.
        found.or_else(|| self.efforts.first()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effort_word_is_the_nearest_one_that_the_model_accepts() {
        let facts = |efforts: &[&str]| ModelFacts {
            efforts: efforts.iter().map(|word| (*word).to_owned()).collect(),
            ..ModelFacts::default()
        };
        let all = facts(&["none", "low", "medium", "high", "xhigh"]);
        assert_eq!(
            Thinking::ALL.iter().map(|t| all.effort(*t)).collect::<Vec<_>>(),
            [Some("none"), Some("low"), Some("medium"), Some("high")]
        );
        assert_eq!(facts(&["minimal", "low", "high"]).effort(Thinking::Medium), Some("low"));
        assert_eq!(facts(&["low", "high"]).effort(Thinking::None), Some("low"), "it cannot be told not to think");
        assert_eq!(facts(&["high"]).effort(Thinking::Low), Some("high"));
        assert_eq!((facts(&[]).effort(Thinking::Low), facts(&[]).effort(Thinking::None)), (Some("low"), None));
    }
}
