//! The transport over the streams of a process: one message is one line.
//!
//! It must never hold more than one line of the server, and it must never skip a line that is too long: the request
//! that it answers would wait for ever.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader};

use crate::closing::ClosedReason;
use crate::gate::Gate;
use crate::ids::number;
use crate::incoming::message;
use crate::limits::Limits;
use crate::writer::Writer;

/// Bytes that are read at once.
const READ: usize = 32 * 1_024;
/// Bytes of the line buffer that are kept for the next line.
const KEPT: usize = 256 * 1_024;

/// The transport over two streams.
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    /// What was read of the current line. A dropped `receive` goes on with it.
    line: Vec<u8>,
    writer: Writer,
    gate: Arc<Gate>,
    limits: Limits,
    /// Requests whose answers `rmcp` reads itself.
    typed: HashSet<i64>,
}

impl<R: AsyncRead + Send + Unpin> Lines<R> {
    pub(crate) fn new<W>(reader: R, stream: W, gate: Arc<Gate>, limits: Limits) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let closing = gate.closing().clone();
        let writer = Writer::start(stream, limits.outgoing_messages, limits.write_timeout, closing);
        let reader = BufReader::with_capacity(READ, reader);
        Self { reader, line: Vec::new(), writer, gate, limits, typed: HashSet::new() }
    }

    /// Reads to the next line break.
    async fn read(&mut self) -> Result<(), ClosedReason> {
        loop {
            let chunk = match self.reader.fill_buf().await {
                Ok([]) => return Err(ClosedReason::Ended),
                Ok(chunk) => chunk,
                Err(error) => return Err(ClosedReason::Broken { detail: error.to_string() }),
            };
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let used = end.map_or(chunk.len(), |end| end + 1);
            let limit = self.limits.line_bytes;
            if self.line.len() + used > limit {
                return Err(ClosedReason::LineTooLong { limit });
            }
            self.line.extend_from_slice(&chunk[..used]);
            self.reader.consume(used);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleClient> for Lines<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item
            && matches!(
                request.request,
                ClientRequest::InitializeRequest(_)
                    | ClientRequest::DiscoverRequest(_)
                    | ClientRequest::SubscriptionsListenRequest(_)
            )
        {
            self.typed.extend(number(&request.id));
        }
        let push = serde_json::to_vec(&item).map(|mut line| {
            line.push(b'\n');
            self.writer.push(line)
        });
        async move { push.map_err(io::Error::from)?.await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Err(reason) = self.read().await {
                self.gate.closing().set(reason);
                return None;
            }
            let text = self.line.trim_ascii();
            let is_empty = text.is_empty();
            let message = message(text, |id| number(id).is_some_and(|id| self.typed.remove(&id)));
            self.line.clear();
            self.line.shrink_to(KEPT);
            match message {
                Ok(message) => return Some(message),
                Err(unread) => {
                    if let Some(id) = self.gate.answered_by(unread.id, unread.is_answer) {
                        return Some(unread.error(id));
                    }
                }
            }
            if !is_empty && !self.gate.count() {
                return None;
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.writer.finish(self.limits.close_timeout / 2).await;
        Ok(())
    }
}
