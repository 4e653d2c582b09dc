//! The one vocabulary of refusals. A refusal is a value, not a crash: it says what was wrong, where, and what to do,
//! and every edge (gRPC, exit codes, the JSON that a model reads) maps it in exactly one place.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Why something was refused or failed (TOOL-08 and its corrections).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// No tool of that name exists in this registry.
    UnknownTool,
    /// The caller may not do this.
    AccessDenied,
    /// An argument does not fit its schema or its bounds.
    InvalidArguments,
    /// The path is outside what the caller may reach or write.
    PathDenied,
    /// What was named does not exist.
    NotFound,
    /// The state of things forbids it: a version, a cycle, a duplicate.
    Conflict,
    /// A deadline passed.
    Timeout,
    /// Someone cancelled it.
    Cancelled,
    /// A program ran and failed.
    ExecFailed,
    /// A policy forbids it whoever asks.
    PolicyDenied,
    /// It waits for an operator's approval.
    ApprovalPending,
    /// An operator denied it.
    ApprovalDenied,
    /// Too fast.
    RateLimited,
    /// A part that is needed is not there now.
    Unavailable,
    /// Larger than its bound.
    TooLarge,
    /// A defect of ours.
    Internal,
    /// An outside effect may or may not have happened.
    OutcomeUnknown,
    /// The receiver's inbox is full.
    InboxFull,
    /// The chain of messages is too long.
    HopLimit,
    /// A budget is spent.
    BudgetExhausted,
    /// The same call keeps giving the same outcome.
    LoopGuard,
    /// A cursor names a place that the feed has not reached.
    CursorAhead,
    /// A cursor names a place that is no longer kept.
    CursorExpired,
    /// What a cron job is to its agent does not go with where it runs, or with what only the other kind has.
    PayloadMismatch,
    /// The way to the outside cannot do this.
    Unsupported,
}

impl Code {
    /// Every code, for tests that must cover them all.
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

    /// The code as it is written everywhere.
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

    /// Whether trying the same thing again later can succeed without anything else being changed first.
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

/// A refusal that someone can read and act on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The machine-readable reason.
    pub code: Code,
    /// What was wrong, and where.
    #[serde(rename = "error")]
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Facts a program may want, such as the field or the cycle of agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

impl Refusal {
    /// A refusal with a code and a message.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, details: None }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds machine-readable facts.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// "There is no such thing", with the nearest existing name if one is near. Whoever knows where to look puts a better
    /// hint in the place of the general one.
    #[must_use]
    pub fn not_found(what: &str, name: &str, nearest: Option<&str>) -> Self {
        let refusal = Self::new(Code::NotFound, format!("there is no {what} `{}`", crate::text::shown(name, 80)));
        match nearest {
            Some(near) => refusal.hint(format!("did you mean `{near}`?")),
            None => refusal.hint("see which there are, and name one of them"),
        }
    }

    /// What was wrong and what to do, for people, on one line.
    #[must_use]
    pub fn in_words(&self) -> String {
        let words = match &self.hint {
            Some(hint) => format!("{} ({hint})", self.message),
            None => self.message.clone(),
        };
        crate::text::one_line(&words)
    }

    /// The object that a model reads (TOOL-08).
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

/// Refuses a text that says nothing: an empty one, or white space alone.
///
/// # Errors
/// `InvalidArguments` with the field, in the same words wherever something must be said.
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
    fn every_code_reads_back() {
        for code in Code::ALL {
            assert_eq!(code.as_str().parse::<Code>().unwrap(), code);
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn what_says_nothing_is_refused_in_one_wording() {
        for blank in ["", " ", "\n\t "] {
            let refusal = not_blank("message", blank).unwrap_err();
            assert_eq!(
                (refusal.message.as_str(), refusal.hint.as_deref()),
                ("message is empty", Some("say something in it"))
            );
        }
        not_blank("message", " x ").unwrap();
    }
}
