//! How much of an answer genai may gather: it bounds nothing itself.
//!
//! Must never: count by what genai tells of an answer alone, which leaves out parts of it that it keeps all the same.

use std::sync::atomic::{AtomicUsize, Ordering};

use genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef};
use serde_json::Value;
use tokio::sync::Notify;

use crate::error::{ErrorKind, ProviderError};
use crate::http::{ANSWER_MAX, CallBytes};
use crate::model::ModelRequest;
use crate::through_genai::Protocol;

/// Counts every frame of an answer, told of or not.
#[derive(Default)]
pub(crate) struct Wire {
    bytes: AtomicUsize,
    full: Notify,
}

impl Wire {
    /// Waits until more has come than an answer may have. genai may read on for long without telling anything.
    pub(crate) async fn full(&self) -> ProviderError {
        while self.bytes.load(Ordering::Acquire) <= ANSWER_MAX {
            self.full.notified().await;
        }
        ProviderError::new(ErrorKind::BadAnswer, format!("the answer is longer than {ANSWER_MAX} bytes"))
    }
}

impl ChatFrameSink for Wire {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        // The name of an event counts too, or empty ones were free.
        let bytes = frame.data.len() + frame.event.map_or(1, str::len);
        if self.bytes.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) > ANSWER_MAX {
            self.full.notify_one();
        }
    }
}

/// Counts the arguments of calls as genai tells of them: for Anthropic all that has come of a call, again at every
/// fragment and beginning with nothing; for the others each call once and whole.
pub(crate) struct Arguments {
    grow: bool,
    last: usize,
    bytes: CallBytes,
}

impl Arguments {
    pub(crate) fn of(protocol: Protocol, request: &ModelRequest) -> Self {
        Self { grow: protocol == Protocol::Anthropic, last: 0, bytes: CallBytes::of(request) }
    }

    /// Takes what genai tells of a call, unless it is too much.
    pub(crate) fn take(&mut self, arguments: &Value) -> Result<(), ProviderError> {
        let now = match arguments {
            Value::String(text) => text.len(),
            whole => whole.to_string().len(),
        };
        let more = if self.grow && now >= self.last { now - self.last } else { now };
        self.last = now;
        self.bytes.add(more)
    }
}
