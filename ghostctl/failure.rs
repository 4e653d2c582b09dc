//! The failure of a command, with the daemon's refusal codes, and the table from codes to exit codes. A refusal keeps the
//! daemon's own hint on every transport.

use std::error::Error;
use std::io;

use serde_json::{Value, json};
use tonic::{Code, Status};

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// A refusal code of the daemon, or one of this client's: `output_closed`, `ask_failed`.
    pub code: String,
    /// The problem, as one sentence.
    pub message: String,
    /// The remedy.
    pub hint: Option<String>,
    /// Facts for programs, as the daemon gave them.
    pub details: Option<Value>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), hint: None, details: None }
    }

    /// Adds the remedy as a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Parses a refusal `{error, code, hint?, details?}` of the daemon; `None` if the text has another form.
    pub fn from_refusal_json(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        Some(Self {
            code: value.get("code")?.as_str()?.to_owned(),
            message: value.get("error")?.as_str()?.to_owned(),
            hint: value.get("hint").and_then(Value::as_str).map(str::to_owned),
            details: value.get("details").filter(|details| !details.is_null()).cloned(),
        })
    }

    /// The exit code: 0 ok, 1 error, 2 usage, 3 not found, 4 denied, 5 unavailable, 6 timeout, 7 conflict, 8 limit
    /// reached.
    pub fn exit_code(&self) -> u8 {
        match self.code.as_str() {
            // The reader of a pipe closed it, which is not an error.
            "output_closed" => 0,
            "invalid_arguments" | "cursor_ahead" | "payload_mismatch" => 2,
            "not_found" | "unknown_tool" | "cursor_expired" => 3,
            "access_denied" | "path_denied" | "policy_denied" | "approval_denied" | "approval_pending" => 4,
            "unavailable" => 5,
            "timeout" => 6,
            "conflict" => 7,
            "too_large" | "rate_limited" | "inbox_full" | "hop_limit" | "budget_exhausted" | "loop_guard" => 8,
            // cancelled, exec_failed, outcome_unknown, internal, unsupported, and codes of a daemon newer than this
            // client.
            _ => 1,
        }
    }

    /// Whether nothing is printed about this failure.
    pub fn is_silent(&self) -> bool {
        self.code == "output_closed"
    }

    /// The object that `--json` prints to standard error. `details` is present only if there are some.
    pub fn to_json(&self) -> Value {
        let mut object = json!({ "error": self.message, "code": self.code, "hint": self.hint });
        if let (Some(details), Value::Object(fields)) = (&self.details, &mut object) {
            fields.insert("details".into(), details.clone());
        }
        object
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let trailer = status.metadata().get_bin(ghost_proto::REFUSAL_TRAILER).and_then(|value| value.to_bytes().ok());
        if let Some(failure) = trailer.and_then(|json| Self::from_refusal_json(&json)) {
            return failure;
        }
        let (code, hint) = match status.code() {
            Code::NotFound => ("not_found", None),
            Code::PermissionDenied => ("access_denied", None),
            Code::Unauthenticated => {
                ("access_denied", Some("give the daemon's token with --token or GHOST_TOKEN; it is in <data>/token"))
            }
            Code::InvalidArgument => ("invalid_arguments", None),
            Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted => ("conflict", None),
            Code::DeadlineExceeded => ("timeout", None),
            Code::Unavailable => ("unavailable", None),
            Code::ResourceExhausted => ("too_large", None),
            Code::OutOfRange => ("cursor_ahead", None),
            Code::Cancelled => ("cancelled", None),
            Code::Unimplemented => ("internal", Some("this daemon and this ghostctl have different versions")),
            Code::Ok | Code::Unknown | Code::Internal | Code::DataLoss => ("internal", None),
        };
        let message = if status.message().is_empty() { status.code().to_string() } else { status.message().to_owned() };
        Self { code: code.to_owned(), message, hint: hint.map(str::to_owned), details: None }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::new("output_closed", "the output was closed")
        } else {
            Self::new("internal", format!("cannot write the output: {error}"))
        }
    }
}

/// Whether the daemon sent this status. A status of the transport has a source; one of the daemon has none.
pub fn came_from_the_daemon(status: &Status) -> bool {
    status.source().is_none()
}

/// Whether the daemon was unreachable, or the connection broke: a retry may help.
pub fn is_connection_failure(status: &Status) -> bool {
    if refused_by_the_kernel(status) {
        return false;
    }
    status.code() == Code::Unavailable || !came_from_the_daemon(status)
}

/// Whether no connection could be made.
pub fn is_not_listening(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<tonic::ConnectError>())
}

/// Whether the socket belongs to another user. A retry does not help.
pub fn refused_by_the_kernel(status: &Status) -> bool {
    causes(status)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Whether the TLS handshake failed, for example because of an untrusted certificate. A retry does not help.
pub fn refused_by_tls(status: &Status) -> bool {
    causes(status)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// The innermost cause. It says more than the status message "transport error".
pub fn root_cause(status: &Status) -> String {
    causes(status).last().map_or_else(|| status.message().to_owned(), ToString::to_string)
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |&cause| cause.source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ghost_domain::Code as Domain;

    // covers: CP-09
    #[test]
    fn every_refusal_code_has_its_exit_code() {
        let exits: Vec<(&str, u8)> =
            Domain::ALL.iter().map(|code| (code.as_str(), Failure::new(code.as_str(), "").exit_code())).collect();
        assert_eq!(
            exits,
            [
                ("unknown_tool", 3),
                ("access_denied", 4),
                ("invalid_arguments", 2),
                ("path_denied", 4),
                ("not_found", 3),
                ("conflict", 7),
                ("timeout", 6),
                ("cancelled", 1),
                ("exec_failed", 1),
                ("policy_denied", 4),
                ("approval_pending", 4),
                ("approval_denied", 4),
                ("rate_limited", 8),
                ("unavailable", 5),
                ("too_large", 8),
                ("internal", 1),
                ("outcome_unknown", 1),
                ("inbox_full", 8),
                ("hop_limit", 8),
                ("budget_exhausted", 8),
                ("loop_guard", 8),
                ("cursor_ahead", 2),
                ("cursor_expired", 3),
                ("payload_mismatch", 2),
                ("unsupported", 1),
            ]
        );
    }

    #[test]
    fn a_refusal_of_the_domain_is_parsed() {
        let refusal = ghost_domain::Refusal::not_found("agent", "chorra", Some("chora"));
        let read = Failure::from_refusal_json(&serde_json::to_vec(&refusal).unwrap()).unwrap();
        assert_eq!(read.code, "not_found");
        assert_eq!(read.message, "there is no agent `chorra`");
        assert_eq!(read.hint.as_deref(), Some("did you mean `chora`?"));
    }

    #[test]
    fn a_status_without_a_refusal_still_gets_a_code() {
        let exit = |code| Failure::from(Status::new(code, "x")).exit_code();
        assert_eq!(exit(Code::NotFound), 3);
        assert_eq!(exit(Code::Unauthenticated), 4);
        assert_eq!(exit(Code::Unavailable), 5);
        assert_eq!(exit(Code::DeadlineExceeded), 6);
        assert_eq!(exit(Code::AlreadyExists), 7);
        assert_eq!(exit(Code::ResourceExhausted), 8);
        assert_eq!(exit(Code::Internal), 1);
    }

    #[test]
    fn a_trailer_that_is_not_a_refusal_is_ignored() {
        for garbage in ["", "null", "[]", "{}", r#"{"code":1,"error":"x"}"#, r#"{"code":"x"}"#] {
            assert_eq!(Failure::from_refusal_json(garbage.as_bytes()), None, "{garbage}");
        }
    }
}
