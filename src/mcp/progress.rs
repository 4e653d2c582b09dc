//! Progress of a call, from the stream of the server to the caller. It must never wait for the caller.

use tokio::sync::mpsc;

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// How much is done, in the server's own unit. It grows with every event of a call.
    pub done: f64,
    /// How much there is to do, in the same unit.
    pub total: Option<f64>,
    /// What the server says about it, at most 1 KiB.
    pub message: Option<String>,
}

/// Bytes of a message that are kept.
pub(crate) const MESSAGE_MAX: usize = 1_024;

/// Where the progress of one call goes. It travels to the stream within the request, because the token of a request
/// is known only there before the server can answer.
#[derive(Clone, Debug)]
pub(crate) struct ProgressSink(mpsc::Sender<Progress>);

impl ProgressSink {
    /// A sink that holds at most `events`.
    pub(crate) fn new(events: usize) -> (Self, mpsc::Receiver<Progress>) {
        let (sender, receiver) = mpsc::channel(events.max(1));
        (Self(sender), receiver)
    }

    /// Hands an event over. It is left out if too many wait.
    pub(crate) fn push(&self, progress: Progress) {
        drop(self.0.try_send(progress));
    }

    /// Whether nobody waits for events any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// Hands events on only if they grow.
#[derive(Debug, Default)]
pub(crate) struct Monotone {
    last: Option<f64>,
}

impl Monotone {
    /// Whether an event with `done` is news.
    pub(crate) fn takes(&mut self, done: f64) -> bool {
        let is_news = done.is_finite() && self.last.is_none_or(|last| done > last);
        if is_news {
            self.last = Some(done);
        }
        is_news
    }
}
