//! Refusals: the typed error of every operation, with a code, a message and a hint. gRPC, the exit
//! codes and the JSON for models each convert it in one place.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The code of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The agent has no tool of that name.
    UnknownTool,
    /// The caller is not allowed to make this call.
    AccessDenied,
    /// An argument does not match its schema or its range.
    InvalidArguments,
    /// The caller may not use this path.
    PathDenied,
    /// The named object does not exist.
    NotFound,
    /// The present state forbids it: another version, a cycle, a duplicate.
    Conflict,
    /// A deadline passed.
    Timeout,
    /// The operation was cancelled.
    Cancelled,
    /// A program ran and failed.
    ExecFailed,
    /// A policy forbids it for every caller.
    PolicyDenied,
    /// The call waits for an operator's approval.
    ApprovalPending,
    /// An operator denied the call.
    ApprovalDenied,
    /// Too many calls or objects of this kind.
    RateLimited,
    /// A needed service or resource does not work now.
    Unavailable,
    /// Larger than its limit.
    TooLarge,
    /// A bug in Ghost.
    Internal,
    /// It is unknown whether an outside effect happened.
    OutcomeUnknown,
    /// The receiver's inbox is full.
    InboxFull,
    /// The chain of messages is too long.
    HopLimit,
    /// A budget is spent.
    BudgetExhausted,
    /// The same call gave the same result too often.
    LoopGuard,
    /// The cursor is a sequence that the feed has not reached.
    CursorAhead,
    /// The cursor is a sequence that is no longer stored.
    CursorExpired,
    /// The options of a cron job exclude each other.
    PayloadMismatch,
    /// The adapter to the outside cannot do this, or the turn has no conversation.
    Unsupported,
}

impl Code {
    /// All codes.
    pub const ALL: [Self; 25] = [
        Self::UnknownTool,
        Self::AccessDenied,
        Self::InvalidArguments,
        Self::PathDenied,
        Self::NotFound,
        Self::Conflict,
        Self::Timeout,
        Self::Cancelled,
        Self::ExecFailed,
        Self::PolicyDenied,
        Self::ApprovalPending,
        Self::ApprovalDenied,
        Self::RateLimited,
        Self::Unavailable,
        Self::TooLarge,
        Self::Internal,
        Self::OutcomeUnknown,
        Self::InboxFull,
        Self::HopLimit,
        Self::BudgetExhausted,
        Self::LoopGuard,
        Self::CursorAhead,
        Self::CursorExpired,
        Self::PayloadMismatch,
        Self::Unsupported,
    ];

    /// The code's text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::AccessDenied => "access_denied",
            Self::InvalidArguments => "invalid_arguments",
            Self::PathDenied => "path_denied",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::ExecFailed => "exec_failed",
            Self::PolicyDenied => "policy_denied",
            Self::ApprovalPending => "approval_pending",
            Self::ApprovalDenied => "approval_denied",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::TooLarge => "too_large",
            Self::Internal => "internal",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::InboxFull => "inbox_full",
            Self::HopLimit => "hop_limit",
            Self::BudgetExhausted => "budget_exhausted",
            Self::LoopGuard => "loop_guard",
            Self::CursorAhead => "cursor_ahead",
            Self::CursorExpired => "cursor_expired",
            Self::PayloadMismatch => "payload_mismatch",
            Self::Unsupported => "unsupported",
        }
    }

    /// Whether the same call may succeed later without another change.
    #[must_use]
    pub fn retryable(self) -> bool {
        matches!(self, Self::Timeout | Self::RateLimited | Self::Unavailable | Self::InboxFull | Self::Cancelled)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Code {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|code| code.as_str() == text).ok_or_else(|| {
            Refusal::new(Self::InvalidArguments, format!("`{}` is not an error code", crate::text::shown(text, 80)))
        })
    }
}

/// A typed error with a hint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Machine-readable code.
    pub code: Code,
    /// What is wrong, as text for people and models.
    #[serde(rename = "error")]
    pub message: String,
    /// What the caller can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Facts for programs, such as the field or the cycle of agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl Refusal {
    /// A refusal with a code and a message.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, details: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds facts for programs.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// A `NotFound` refusal. It suggests the nearest existing name, if there is one. Otherwise the
    /// hint is general; callers replace it by a better one if they can.
    #[must_use]
    pub fn not_found(what: &str, name: &str, nearest: Option<&str>) -> Self {
        let refusal = Self::new(Code::NotFound, format!("there is no {what} `{}`", crate::text::shown(name, 80)));
        match nearest {
            Some(near) => refusal.hint(format!("did you mean `{near}`?")),
            None => refusal.hint("list the existing ones and use one of them"),
        }
    }

    /// Message and hint on one line, for people.
    #[must_use]
    pub fn in_words(&self) -> String {
        let words = match &self.hint {
            Some(hint) => format!("{} ({hint})", self.message),
            None => self.message.clone(),
        };
        crate::text::one_line(&words)
    }

    /// The JSON object that a model reads.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = serde_json::Map::new();
        object.insert("error".into(), self.message.clone().into());
        object.insert("code".into(), self.code.as_str().into());
        object.insert("retryable".into(), self.code.retryable().into());
        if let Some(hint) = &self.hint {
            object.insert("hint".into(), hint.clone().into());
        }
        if let Some(details) = &self.details {
            object.insert("details".into(), details.clone());
        }
        Value::Object(object)
    }
}

/// A refusal with a code and a formatted message, for example `refusal!(Conflict, "{name} has ended")`.
#[macro_export]
macro_rules! refusal {
    ($code:ident, $($message:tt)+) => {
        $crate::refusal::Refusal::new($crate::refusal::Code::$code, format!($($message)+))
    };
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// Refuses a text that is empty or only white space.
///
/// # Errors
/// `InvalidArguments` with the name of the field.
pub fn not_blank(field: &str, text: &str) -> Result<(), Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::new(Code::InvalidArguments, format!("{field} is empty"))
            .hint("say something in it")
            .details(json!({ "field": field })));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: TOOL-08
    #[test]
    fn every_code_parses_from_its_own_text() {
        for code in Code::ALL {
            assert_eq!(code.as_str().parse::<Code>().unwrap(), code);
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn blank_text_is_refused() {
        for blank in ["", " ", "\n\t "] {
            let refusal = not_blank("message", blank).unwrap_err();
            assert_eq!(refusal.code, Code::InvalidArguments);
            assert!(refusal.message.starts_with("message ") && refusal.hint.is_some(), "{refusal}");
        }
        not_blank("message", " x ").unwrap();
    }
}
