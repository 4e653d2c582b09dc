//! Refusals: the typed error of every operation, with a code, a message and a hint. gRPC, the exit
//! codes and the JSON for models each convert it in one place.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::macros::{TextEnum, text_enum};
use crate::text::{a, one_line, shown};

/// A refusal with a code and a formatted message, for example `refusal!(Conflict, "{name} has ended")`.
#[macro_export]
macro_rules! refusal {
    ($code:ident, $($message:tt)+) => {
        $crate::refusal::Refusal::new($crate::refusal::Code::$code, format!($($message)+))
    };
}
pub(crate) use refusal;

/// The value with this text. `what` is what the values are.
///
/// # Errors
/// `InvalidArguments` with all texts that there are.
pub fn text_value<T: TextEnum>(text: &str, what: &str) -> Result<T, Refusal> {
    T::ALL.iter().copied().find(|value| value.as_str() == text).ok_or_else(|| {
        let all: Vec<&str> = T::ALL.iter().map(|value| value.as_str()).collect();
        refusal!(InvalidArguments, "`{}` is not {}", shown(text, 80), a(what))
            .hint(format!("one of: {}", all.join(", ")))
    })
}

text_enum! {
    /// The code of a refusal.
    Code, "error code" {
        /// The agent has no tool of that name.
        UnknownTool = "unknown_tool",
        /// The caller is not allowed to make this call.
        AccessDenied = "access_denied",
        /// An argument does not match its schema or its range.
        InvalidArguments = "invalid_arguments",
        /// The caller may not use this path.
        PathDenied = "path_denied",
        /// The named object does not exist.
        NotFound = "not_found",
        /// The present state forbids it: another version, a cycle, a duplicate.
        Conflict = "conflict",
        /// A deadline passed.
        Timeout = "timeout",
        /// The operation was cancelled.
        Cancelled = "cancelled",
        /// A program ran and failed.
        ExecFailed = "exec_failed",
        /// A policy forbids it for every caller.
        PolicyDenied = "policy_denied",
        /// The call waits for an operator's approval.
        ApprovalPending = "approval_pending",
        /// An operator denied the call.
        ApprovalDenied = "approval_denied",
        /// Too many calls or objects of this kind.
        RateLimited = "rate_limited",
        /// A needed service or resource does not work now.
        Unavailable = "unavailable",
        /// Larger than its limit.
        TooLarge = "too_large",
        /// A bug in Ghost.
        Internal = "internal",
        /// It is unknown whether an outside effect happened.
        OutcomeUnknown = "outcome_unknown",
        /// The receiver's inbox is full.
        InboxFull = "inbox_full",
        /// The chain of messages is too long.
        HopLimit = "hop_limit",
        /// A budget is spent.
        BudgetExhausted = "budget_exhausted",
        /// The same call gave the same result too often.
        LoopGuard = "loop_guard",
        /// The cursor is a sequence that the feed has not reached.
        CursorAhead = "cursor_ahead",
        /// The cursor is a sequence that is no longer stored.
        CursorExpired = "cursor_expired",
        /// The options of a cron job exclude each other.
        PayloadMismatch = "payload_mismatch",
        /// The adapter to the outside cannot do this, or the turn has no conversation.
        Unsupported = "unsupported",
    }
}

impl Code {
    /// Whether the same call may succeed later without another change.
    pub fn retryable(self) -> bool {
        matches!(self, Self::Timeout | Self::RateLimited | Self::Unavailable | Self::InboxFull | Self::Cancelled)
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
    pub fn not_found(what: &str, name: &str, nearest: Option<&str>) -> Self {
        let refusal = refusal!(NotFound, "there is no {what} `{}`", shown(name, 80));
        match nearest {
            Some(near) => refusal.hint(format!("did you mean `{near}`?")),
            None => refusal.hint("list the existing ones and use one of them"),
        }
    }

    /// Message and hint on one line, for people.
    pub fn in_words(&self) -> String {
        let words = match &self.hint {
            Some(hint) => format!("{} ({hint})", self.message),
            None => self.message.clone(),
        };
        one_line(&words)
    }

    /// The JSON object that a model reads.
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

/// Refuses a text that is empty or only white space.
///
/// # Errors
/// `InvalidArguments` with the name of the field.
pub fn not_blank(field: &str, text: &str) -> Result<(), Refusal> {
    if text.trim().is_empty() {
        return Err(refusal!(InvalidArguments, "{field} is empty")
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
            assert_eq!(code.as_str().parse::<Code>().unwrap(), *code);
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
