//! What is known of a model beside its price: how it is told to think, and what it takes (LOOP-05).
//!
//! Must never: name a model; those are data.

use serde::{Deserialize, Serialize};

use crate::envelope::text_enum;

text_enum! {
    /// How much a model is to think before it answers.
    Thinking, "amount of thinking" {
        /// Not at all, where the model can be told so.
        None = "none",
        /// A little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
    }
}

text_enum! {
    /// Which of its APIs a provider of OpenAI's kind is spoken to through.
    Api, "API" {
        /// `/responses`.
        Responses = "responses",
        /// `/chat/completions`.
        Chat = "chat",
    }
}

/// How a model is told to think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingControl {
    /// Nobody has said: it is told as most models of its provider are.
    #[default]
    Unknown,
    /// It does not think.
    Never,
    /// By a number of tokens.
    Budget,
    /// By a word for the effort. What there is no word for is left out.
    Effort,
    /// By a word for the effort, where it decides by itself whether it thinks.
    Adaptive,
    /// As `Adaptive`, and it cannot be told not to.
    AlwaysAdaptive,
    /// It can only be told whether to think.
    Switch,
}

/// What is known of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    /// How it is told to think.
    pub thinking: ThinkingControl,
    /// The words for effort that it takes, weakest first; empty if nobody has said.
    pub efforts: Vec<String>,
    /// Fewest and most tokens of a thinking budget; `None` if nobody has said.
    pub thinking_tokens: Option<(u64, u64)>,
    /// Whether it takes a temperature.
    pub temperature: bool,
    /// Tokens of its context window.
    pub context_tokens: Option<u64>,
    /// Most tokens of one answer, thinking included.
    pub output_tokens: Option<u64>,
    /// The API that it needs, where its provider has several.
    pub api: Option<Api>,
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
        }
    }
}

impl ModelFacts {
    /// How many tokens the model may think for, within what it takes.
    #[must_use]
    pub fn thinking_budget(&self, thinking: Thinking) -> u64 {
        let wanted = match thinking {
            Thinking::None => return 0,
            Thinking::Low => 2_048,
            Thinking::Medium => 8_192,
            Thinking::High => 24_576,
        };
        self.thinking_tokens.map_or(wanted, |(least, most)| wanted.clamp(least.min(most), most))
    }

    /// The word for `thinking` that this model takes: the same, else the nearest weaker one of the model's own, else its
    /// weakest. `None` where it takes no word for it.
    #[must_use]
    pub fn effort(&self, thinking: Thinking) -> Option<&str> {
        const ORDER: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
        if self.efforts.is_empty() {
            return (thinking != Thinking::None).then_some(thinking.as_str());
        }
        let rank = |word: &str| ORDER.iter().position(|known| *known == word);
        let wanted = rank(thinking.as_str());
        let takes = |word: &&String| rank(word).is_some() && rank(word) <= wanted;
        let found = self.efforts.iter().rev().find(takes);
        // One that always thinks does so as little as it can.
        found.or_else(|| self.efforts.first()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_for_an_effort_is_one_that_the_model_takes() {
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
