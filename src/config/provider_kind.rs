//! The protocols that providers speak, by name.
//!
//! Must never: know a provider's address, or a model.

/// The protocol that a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProviderKind {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's Responses and chat completions, and everything that speaks these (vLLM, llama.cpp, …).
    OpenAi,
    /// Gemini's generateContent.
    Gemini,
    /// Ollama's own chat API.
    Ollama,
    /// Rules from a file: demos, tests, simulation.
    Scripted,
    /// Answers of an earlier run.
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

    /// The kind of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Its name in files and flags.
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

    /// The environment variable that usually holds its key.
    #[must_use]
    pub fn usual_key_env(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::OpenAi => Some("OPENAI_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama | Self::Scripted | Self::Recorded => None,
        }
    }

    /// Whether its answers come from a file, cost nothing and need no network.
    #[must_use]
    pub fn is_local(self) -> bool {
        matches!(self, Self::Scripted | Self::Recorded)
    }
}
