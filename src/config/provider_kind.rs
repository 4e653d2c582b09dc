//! The protocols of providers, by name.
//!
//! This module must never contain a provider's address or a model.

/// The protocol of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// Anthropic's Messages API.
    Anthropic,
    /// Every server with OpenAI's Responses or chat completions API (OpenAI, vLLM, llama.cpp, …).
    OpenAi,
    /// Gemini's generateContent.
    Gemini,
    /// Ollama's own chat API.
    Ollama,
    /// Answers from a rule file, for demos, tests and simulation.
    Scripted,
    /// Answers recorded in an earlier run.
    Recorded,
}

impl ProviderKind {
    /// Every kind with the name that files and flags use.
    pub const ALL: [(&'static str, Self); 6] = [
        ("anthropic", Self::Anthropic),
        ("openai", Self::OpenAi),
        ("gemini", Self::Gemini),
        ("ollama", Self::Ollama),
        ("scripted", Self::Scripted),
        ("recorded", Self::Recorded),
    ];

    /// The kind with the given name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// The name of the kind in files and flags.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Scripted => "scripted",
            Self::Recorded => "recorded",
        }
    }

    /// Whether a model sees images unless the list of models says otherwise. All models of two vendors do; at other
    /// servers many do not, and refuse a request with one.
    #[must_use]
    pub fn sees_images(self) -> bool {
        matches!(self, Self::Anthropic | Self::Gemini)
    }

    /// The environment variable that usually holds the provider's key.
    #[must_use]
    pub fn usual_key_env(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::OpenAi => Some("OPENAI_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama | Self::Scripted | Self::Recorded => None,
        }
    }

    /// Whether answers come from a file, without cost and network.
    #[must_use]
    pub fn is_local(self) -> bool {
        matches!(self, Self::Scripted | Self::Recorded)
    }
}
