//! The bounds of a connection. A server must never be able to raise one.

use std::time::Duration;

/// What a server may use. The defaults fit a server that behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one line of a server on streams, with its line break. A longer one closes the connection.
    pub line_bytes: usize,
    /// Bytes of one JSON answer or one event of a server on HTTP. A larger one fails the request.
    pub http_bytes: usize,
    /// Messages in one second that answer nothing: notifications, requests, unknown answers and lines that are no
    /// message. One more closes the connection.
    pub messages_per_second: u32,
    /// Requests of the server that may wait for their answer. One more closes the connection.
    pub server_requests: usize,
    /// Progress events that may wait for the caller, for each call. Further ones are left out.
    pub progress_events: usize,
    /// Messages that may wait until the server reads them.
    pub outgoing_messages: usize,
    /// Bytes of the arguments of a call, as JSON. Larger ones are not sent.
    pub argument_bytes: usize,
    /// Pages of one list. The rest is left out, and the list says so.
    pub pages: usize,
    /// Entries of one list. The rest is left out, and the list says so.
    pub entries: usize,
    /// Bytes of all entries of one list, as JSON. The rest is left out, and the list says so.
    pub list_bytes: usize,
    /// Time for one list with all its pages.
    pub list_timeout: Duration,
    /// Time for reading one resource or one prompt.
    pub read_timeout: Duration,
    /// Bytes of a resource or of a prompt that are kept.
    pub read_bytes: usize,
    /// Time in which a server has to read a message. A slower one loses the connection.
    pub write_timeout: Duration,
    /// Time for telling a server that a call is cancelled.
    pub cancel_timeout: Duration,
    /// Time for closing.
    pub close_timeout: Duration,
    /// Time for the answer to one question of the server. After it the question counts as cancelled.
    pub answer_timeout: Duration,
    /// Times that a question is put again if its answer does not fit its schema.
    pub answer_rounds: u32,
    /// Times that a server may ask for input in one call (protocol 2026-07-28).
    pub input_rounds: u32,
    /// Questions of one such round.
    pub inputs: usize,
    /// Times that the subscription to changes is opened again in the life of a connection.
    pub listens: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line_bytes: 4 * 1_024 * 1_024,
            http_bytes: 4 * 1_024 * 1_024,
            messages_per_second: 1_000,
            server_requests: 8,
            progress_events: 64,
            outgoing_messages: 64,
            argument_bytes: 1_024 * 1_024,
            pages: 100,
            entries: 10_000,
            list_bytes: 16 * 1_024 * 1_024,
            list_timeout: Duration::from_secs(60),
            read_timeout: Duration::from_secs(60),
            read_bytes: 1_024 * 1_024,
            write_timeout: Duration::from_secs(10),
            cancel_timeout: Duration::from_secs(2),
            close_timeout: Duration::from_secs(2),
            answer_timeout: Duration::from_secs(600),
            answer_rounds: 3,
            input_rounds: 10,
            inputs: 8,
            listens: 10,
        }
    }
}
