//! What the handlers of the agent's requests share.

use std::sync::Arc;

use agent_client_protocol::{Error, ErrorCode};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::bounds::{WAITING_MAX, WRITING_MAX};
use crate::host::{Capabilities, Host, HostError};
use crate::record::Record;
use crate::terminals::Terminals;

pub(crate) struct Office {
    pub(crate) host: Arc<dyn Host>,
    pub(crate) record: Arc<Record>,
    /// What was offered to the agent.
    pub(crate) offers: Capabilities,
    /// Cancelled when the agent must stop.
    pub(crate) closing: CancellationToken,
    pub(crate) terminals: Terminals,
    waiting: Semaphore,
    writing: Semaphore,
}

impl Office {
    pub(crate) fn new(host: Arc<dyn Host>, record: Arc<Record>) -> Self {
        Self {
            offers: host.capabilities(),
            host,
            record,
            closing: CancellationToken::new(),
            terminals: Terminals::new(),
            waiting: Semaphore::new(WAITING_MAX),
            writing: Semaphore::new(WRITING_MAX),
        }
    }

    /// Whether a request for `session` is acceptable, if what it needs is `offered`.
    pub(crate) fn check(&self, offered: bool, session: &str) -> Result<(), Error> {
        if !offered {
            return Err(Error::method_not_found());
        }
        if !self.record.is_session(session) {
            return Err(refused(ErrorCode::INVALID_PARAMS, "this is not the session of this connection"));
        }
        self.record.acted();
        Ok(())
    }

    /// Whether the agent may begin something new.
    pub(crate) fn may_begin(&self) -> Result<(), Error> {
        if self.closing.is_cancelled() {
            return Err(refused(ErrorCode::REQUEST_CANCELLED, "the session was cancelled"));
        }
        Ok(())
    }

    /// A place among the requests that wait.
    pub(crate) fn waits(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.waiting.try_acquire().map_err(|_| {
            refused(ErrorCode::INVALID_REQUEST, "too many requests wait for an answer; wait for one of them")
        })
    }

    /// Room for writing so many bytes.
    pub(crate) fn writes(&self, bytes: usize) -> Result<SemaphorePermit<'_>, Error> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.writing.try_acquire_many(bytes).map_err(|_| {
            refused(ErrorCode::INVALID_REQUEST, "too much is written at the same time; wait for an answer")
        })
    }
}

/// The error that the agent gets.
pub(crate) fn refused(code: ErrorCode, message: &str) -> Error {
    Error::new(code.value(), message)
}

/// The host's error as the agent gets it.
pub(crate) fn host_error(error: &HostError) -> Error {
    let code = match error {
        HostError::NotFound(_) => ErrorCode::RESOURCE_NOT_FOUND,
        HostError::Refused(_) => ErrorCode::INVALID_REQUEST,
        HostError::Failed(_) => ErrorCode::INTERNAL_ERROR,
    };
    refused(code, &error.to_string())
}
