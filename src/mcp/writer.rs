//! Writes lines to the standard input of a server. It must never wait longer than its bound for a server that does
//! not read.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::closing::{ClosedReason, Closing};
use crate::time::within;

/// A queue of lines, and the task that writes them.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Option<mpsc::Sender<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Starts the task. At most `lines` wait, and one may take `limit`.
    pub(crate) fn start<W>(stream: W, lines: usize, limit: Duration, closing: Closing) -> Self
    where
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (queue, waiting) = mpsc::channel(lines.max(1));
        Self { queue: Some(queue), task: tokio::spawn(write(stream, waiting, limit, closing)) }
    }

    /// Puts a line into the queue. Waits while it is full.
    pub(crate) fn push(&self, line: Vec<u8>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let queue = self.queue.clone();
        async move {
            match queue {
                Some(queue) => queue.send(line).await.map_err(|_| io::ErrorKind::BrokenPipe.into()),
                None => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    /// Writes what waits, and closes the stream. Takes at most `limit`.
    pub(crate) async fn finish(&mut self, limit: Duration) {
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

async fn write<W>(mut stream: W, mut waiting: mpsc::Receiver<Vec<u8>>, limit: Duration, closing: Closing)
where
    W: AsyncWrite + Send + Unpin,
{
    while let Some(line) = waiting.recv().await {
        let written = async {
            stream.write_all(&line).await?;
            stream.flush().await
        };
        match within(limit, written).await {
            Some(Ok(())) => {}
            Some(Err(_)) => return closing.set(ClosedReason::Ended),
            None => return closing.set(ClosedReason::NotReading { after: limit }),
        }
    }
    drop(within(limit, stream.shutdown()).await);
}
