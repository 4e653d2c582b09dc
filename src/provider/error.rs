//! The errors of model calls, in one vocabulary for all providers. [`ProviderError::redacted`] limits every message, and every
//! adapter passes its own key to be redacted.

use std::fmt;
use std::time::Duration;

use ghost_domain::json_text::joined;
use ghost_domain::redact::Redactor;
use ghost_domain::text::prefix_bytes;
use ghost_domain::transcript::TokenUsage;

/// Longest message of an error, in bytes.
pub const MESSAGE_MAX: usize = 2_000;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $transient:literal $charge:ident),* $(,)?) => {
        /// The kind of a failure. It decides what happens next (see [`crate::decide`]).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorKind {
            $($(#[$doc])* $kind),*
        }

        impl ErrorKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// The name of the kind in rule files and events.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name),*
                }
            }

            /// Whether the cause may disappear by itself or be repaired by a person, so that the same call
            /// can succeed later. A failure of another kind can still be the model's: see
            /// [`crate::circuit::Circuit::refused`].
            #[must_use]
            pub fn is_transient(self) -> bool {
                match self {
                    $(Self::$kind => $transient),*
                }
            }

            /// Whether the provider may have billed a call that failed this way.
            #[must_use]
            pub fn charge(self) -> Charge {
                match self {
                    $(Self::$kind => Charge::$charge),*
                }
            }
        }
    };
}

// Its name, whether it is transient, and its charge.
kinds! {
    /// Too many requests or tokens for this account.
    RateLimited "rate_limited" true Nothing,
    /// The provider has no capacity now.
    Overloaded "overloaded" true Nothing,
    /// The provider failed.
    Server "server" true Unknown,
    /// The provider could not be reached.
    Network "network" true Unknown,
    /// The call, or the provider, ran out of time.
    Timeout "timeout" true Unknown,
    /// The answer was interrupted before its end.
    BrokenStream "broken_stream" true Unknown,
    /// The answer is malformed.
    BadAnswer "bad_answer" false Unknown,
    /// What came back is not the provider's protocol: a page, a redirect, an empty body. Something between Ghost and the
    /// provider answered, or the address is not the provider's.
    Gateway "gateway" true Nothing,
    /// The key is missing, wrong or has no permission for the request.
    Unauthorized "unauthorized" true Nothing,
    /// The provider says that the request is wrong.
    BadRequest "bad_request" false Nothing,
    /// The provider refuses opaque state of its earlier answers, such as a signature or encrypted
    /// reasoning. The same call without that state may succeed.
    StaleState "stale_state" false Nothing,
    /// The conversation is too long for the model.
    ContextTooLong "context_too_long" false Nothing,
    /// The provider has no such model, or there is nothing at this address.
    UnknownModel "unknown_model" true Nothing,
}

impl ErrorKind {
    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }

    /// What a person must repair before the model can answer, if waiting alone does not help.
    #[must_use]
    pub fn repair(self) -> Option<&'static str> {
        match self {
            Self::Unauthorized => Some("check the provider's key, its permissions and its bill"),
            Self::UnknownModel => {
                Some("check `model` of the archetype, and `base_url` of the provider in the world file")
            }
            _ => None,
        }
    }

    /// Whether the fault can lie in one request, although the model answers others. Load and the network can not.
    #[must_use]
    pub fn may_be_of_the_request(self) -> bool {
        !matches!(self, Self::RateLimited | Self::Overloaded | Self::Network)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a failed call may have cost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// Nothing: the reservation is released.
    Nothing,
    /// Possibly something: the reservation is booked as spent.
    Unknown,
}

/// A failed model call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct ProviderError {
    /// The kind of failure.
    pub kind: ErrorKind,
    /// What happened; redacted, at most [`MESSAGE_MAX`] bytes.
    pub message: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// How long the provider asked callers to wait.
    pub retry_after: Option<Duration>,
    /// Whether tokens may have been billed.
    pub charge: Charge,
    /// Tokens used, if the provider reported them before the failure; then `charge` does not
    /// matter.
    pub usage: Option<TokenUsage>,
}

impl ProviderError {
    /// Creates a failure whose charge follows from its kind. Texts that look like tokens are
    /// redacted and the message is limited.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl AsRef<str>) -> Self {
        Self::redacted(kind, message.as_ref(), &Redactor::default())
    }

    /// Like [`Self::new`], and also redacts the values that `redactor` knows.
    #[must_use]
    pub fn redacted(kind: ErrorKind, message: &str, redactor: &Redactor) -> Self {
        // Redacting megabytes would cost too much, so the payload is truncated first. The
        // truncation may split a secret, which the redactor then cannot recognise, so the end of a
        // truncated payload is dropped too.
        let head = prefix_bytes(message, MESSAGE_MAX * 4);
        let mut clean = redactor.redact(&joined(head));
        if head.len() < message.len() {
            clean.truncate(prefix_bytes(&clean, clean.len().saturating_sub(512)).len());
        }
        let message = prefix_bytes(&clean, MESSAGE_MAX).to_owned();
        Self { kind, message, status: None, retry_after: None, charge: kind.charge(), usage: None }
    }

    /// Sets the HTTP status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Sets how long the provider asked callers to wait.
    #[must_use]
    pub fn retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait;
        self
    }

    /// Sets the tokens used, if they are known.
    #[must_use]
    pub fn usage(mut self, usage: Option<TokenUsage>) -> Self {
        self.usage = usage;
        self
    }

    /// Replaces the charge that follows from the kind.
    #[must_use]
    pub fn charge(mut self, charge: Charge) -> Self {
        self.charge = charge;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_read_back() {
        for &kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::named(kind.as_str()), Some(kind));
        }
    }

    #[test]
    fn messages_are_redacted_and_bounded() {
        let redactor = Redactor::new(["my-own-secret-key".to_owned()]);
        let long = format!("key my-own-secret-key {}", "é".repeat(MESSAGE_MAX * 3));
        let error = ProviderError::redacted(ErrorKind::Server, &long, &redactor);
        assert!(error.message.len() <= MESSAGE_MAX && !error.message.contains("my-own-secret-key"));
    }
}
