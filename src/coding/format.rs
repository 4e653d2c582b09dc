//! The formats of coding agents.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// The event format of a coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Cursor CLI with `--output-format stream-json`.
    Cursor,
    /// Claude Code with `--output-format stream-json --verbose`.
    Claude,
    /// OpenAI Codex with `codex exec --json`.
    Codex,
    /// Gemini CLI with `--output-format stream-json`.
    Gemini,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Cursor, Self::Claude, Self::Codex, Self::Gemini];

    /// The name of the format in a configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cursor => "cursor-json",
            Self::Claude => "claude-json",
            Self::Codex => "codex-json",
            Self::Gemini => "gemini-json",
        }
    }

    /// The name of the agent for people and models.
    #[must_use]
    pub fn agent(self) -> &'static str {
        match self {
            Self::Cursor => "Cursor agent",
            Self::Claude => "Claude agent",
            Self::Codex => "Codex agent",
            Self::Gemini => "Gemini agent",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// The error for a name that no format has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFormat(pub String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Format::ALL.map(Format::name).join(", ");
        write!(f, "no output format `{}`; there are {names}", crate::text::one_line(&self.0, 40))
    }
}

impl Error for UnknownFormat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_refused() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "cursor\n".parse::<Format>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no output format `cursor`; there are cursor-json, claude-json, codex-json, gemini-json"
        );
    }
}
