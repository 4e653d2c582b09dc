//! The protocols that go through genai, and what each has of its own.
//!
//! Must never: know a request or an answer.

use genai::adapter::AdapterKind;

use crate::whole_events::Ends;

/// The protocols that go through genai.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Anthropic,
    Gemini,
    Ollama,
}

impl Protocol {
    /// The protocol in genai's words.
    pub(crate) fn adapter(self) -> AdapterKind {
        match self {
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Gemini => AdapterKind::Gemini,
            Self::Ollama => AdapterKind::Ollama,
        }
    }

    /// The provider's own address, and the path that a bare base URL gets.
    pub(crate) fn home(self) -> (&'static str, &'static str) {
        match self {
            Self::Anthropic => ("https://api.anthropic.com/v1/", "v1/"),
            Self::Gemini => ("https://generativelanguage.googleapis.com/v1beta/", "v1beta/"),
            Self::Ollama => ("http://localhost:11434/", ""),
        }
    }

    /// What ends an event of its streams.
    pub(crate) fn ends(self) -> Ends {
        match self {
            Self::Anthropic | Self::Gemini => Ends::EmptyLine,
            Self::Ollama => Ends::Line,
        }
    }

    /// What marks the signatures of this provider in a transcript, so that no other is sent them after a fall-back.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic:",
            Self::Gemini => "gemini:",
            Self::Ollama => "ollama:",
        }
    }
}
