//! The transport over the streams of a process: one message is one line.
//!
//! A line that is too long ends the connection: if it were skipped, the request that it answers would wait for ever.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::ClosedReason;
use crate::gate::Gate;
use crate::incoming::{message, number};
use crate::limits::within;

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
    /// Requests whose answers `rmcp` reads itself.
    typed: HashSet<i64>,
}

impl<R: AsyncRead + Send + Unpin> Lines<R> {
    pub(crate) fn new<W>(reader: R, stream: W, gate: Arc<Gate>) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let writer = Writer::start(stream, Arc::clone(&gate));
        let reader = BufReader::with_capacity(READ, reader);
        Self { reader, line: Vec::new(), writer, gate, typed: HashSet::new() }
    }

    /// Reads to the next line break.
    async fn read(&mut self) -> Result<(), ClosedReason> {
        let limit = self.gate.limits.line_bytes;
        let room = limit.saturating_add(1).saturating_sub(self.line.len());
        let mut bounded = (&mut self.reader).take(u64::try_from(room).unwrap_or(u64::MAX));
        match bounded.read_until(b'\n', &mut self.line).await {
            Err(error) => Err(ClosedReason::Broken { detail: error.to_string() }),
            Ok(_) if self.line.len() > limit => Err(ClosedReason::LineTooLong { limit }),
            Ok(_) if self.line.ends_with(b"\n") => Ok(()),
            Ok(_) => Err(ClosedReason::Ended),
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
                self.gate.closing.set(reason);
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
        self.writer.finish(self.gate.limits.close_timeout / 2).await;
        Ok(())
    }
}

/// A queue of lines, and the task that writes them.
struct Writer {
    queue: Option<mpsc::Sender<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Starts the task.
    fn start<W>(stream: W, gate: Arc<Gate>) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (queue, waiting) = mpsc::channel(gate.limits.outgoing_messages.max(1));
        Self { queue: Some(queue), task: tokio::spawn(write(stream, waiting, gate)) }
    }

    /// Puts a line into the queue. Waits while it is full.
    fn push(&self, line: Vec<u8>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let queue = self.queue.clone();
        async move {
            match queue {
                Some(queue) => queue.send(line).await.map_err(|_| io::ErrorKind::BrokenPipe.into()),
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    /// Writes what waits, and closes the stream. Takes at most `limit`.
    async fn finish(&mut self, limit: Duration) {
        self.queue = None;
        if within(limit, &mut self.task).await.is_none() {
            self.task.abort();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write<W>(mut stream: W, mut waiting: mpsc::Receiver<Vec<u8>>, gate: Arc<Gate>)
where
    W: AsyncWrite + Send + Unpin,
{
    let limit = gate.limits.write_timeout;
    while let Some(line) = waiting.recv().await {
        let written = async {
            stream.write_all(&line).await?;
            stream.flush().await
        };
        match within(limit, written).await {
            Some(Ok(())) => {}
            Some(Err(_)) => return gate.closing.set(ClosedReason::Ended),
            None => return gate.closing.set(ClosedReason::NotReading { after: limit }),
        }
    }
    drop(within(limit, stream.shutdown()).await);
}
