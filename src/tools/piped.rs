//! A program in the sandbox that is reached over its standard streams, such as an MCP server or a coding agent.
//!
//! Dropping it must end the whole tree of the process.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use ghost_domain::Refusal;
use ghost_sandbox::{Command, Drain, Feed, NotTaken, Sandbox};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Bytes between the process and the connection, in each direction.
const BETWEEN: usize = 64 * 1_024;
/// Bytes that are passed to the process at once.
const PIECE: usize = 16 * 1_024;
/// Bytes of error output that are kept.
const ERRORS: usize = 2_000;

/// A running program.
pub(crate) struct PipedProcess {
    task: JoinHandle<()>,
    /// How it ended, and the end of its error output.
    said: Arc<Mutex<Said>>,
    ended: Arc<Notify>,
}

#[derive(Default)]
struct Said {
    errors: String,
    ended: Option<String>,
    /// Why the sandbox did not run it.
    refused: Option<Refusal>,
}

impl Said {
    fn add(&mut self, piece: &[u8]) {
        self.errors.push_str(&String::from_utf8_lossy(piece));
        let over = self.errors.len().saturating_sub(ERRORS);
        let cut = (over..self.errors.len()).find(|at| self.errors.is_char_boundary(*at)).unwrap_or(self.errors.len());
        self.errors.drain(..cut);
    }
}

impl Drop for PipedProcess {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PipedProcess {
    /// Starts `command`. Returns the end of its output that is read, and the end of its input that is written.
    pub(crate) fn start(sandbox: Arc<dyn Sandbox>, command: Command) -> (DuplexStream, DuplexStream, Self) {
        let (output, reader) = duplex(BETWEEN);
        let (writer, input) = duplex(BETWEEN);
        let said: Arc<Mutex<Said>> = Arc::default();
        let ended: Arc<Notify> = Arc::default();
        let (told, at_end) = (Arc::clone(&said), Arc::clone(&ended));
        let task = tokio::spawn(async move {
            run(sandbox, command, output, input, told).await;
            at_end.notify_one();
        });
        (reader, writer, Self { task, said, ended })
    }

    /// Completes when the process has ended. For one caller at a time.
    pub(crate) async fn ended(&self) {
        if !self.task.is_finished() {
            self.ended.notified().await;
        }
    }

    /// Why the sandbox did not run it, if it has refused.
    pub(crate) fn refused(&self) -> Option<Refusal> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).refused.clone()
    }

    /// What is known of its end: the reason, and the end of its error output. Empty if nothing is known.
    pub(crate) fn last_words(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let errors = said.errors.trim();
        let errors = (!errors.is_empty()).then(|| format!("its error output ends with: {errors}"));
        said.ended.clone().into_iter().chain(errors).collect::<Vec<_>>().join("; ")
    }
}

async fn run(
    sandbox: Arc<dyn Sandbox>,
    command: Command,
    mut output: DuplexStream,
    input: DuplexStream,
    said: Arc<Mutex<Said>>,
) {
    let (feed, drain) = (Feed::default(), Drain::default());
    let command = Command { feed: Some(feed.clone()), drain: Some(drain.clone()), ..command };
    let heard = Arc::clone(&said);
    let listen = move |piece: &[u8]| heard.lock().unwrap_or_else(PoisonError::into_inner).add(piece);
    let done = {
        let running = sandbox.run(command, &listen);
        let pump = async {
            tokio::join!(pass_on(&drain, &mut output), write(input, &feed));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            done = running => done,
            () = pump => return,
        }
    };
    while let Some(Some(bytes)) = drain.next().now_or_never() {
        if output.write_all(&bytes).await.is_err() {
            break;
        }
    }
    let ended = match done {
        Ok(done) => format!("its process ended: {}", done.end.status()),
        Err(refusal) => {
            let words = refusal.in_words();
            said.lock().unwrap_or_else(PoisonError::into_inner).refused = Some(refusal);
            words
        }
    };
    said.lock().unwrap_or_else(PoisonError::into_inner).ended = Some(ended);
}

/// Passes the output of the process on, at the reader's pace.
async fn pass_on(drain: &Drain, output: &mut DuplexStream) {
    while let Some(bytes) = drain.next().await {
        if output.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Passes what is written to the process, at its pace. The end of it is the end of the process's input.
async fn write(mut input: DuplexStream, feed: &Feed) {
    let mut piece = vec![0; PIECE];
    loop {
        let bytes = match input.read(&mut piece).await {
            Ok(0) | Err(_) => return feed.close(),
            Ok(count) => piece.get(..count).unwrap_or_default(),
        };
        loop {
            match feed.push(bytes) {
                Ok(()) => break,
                Err(NotTaken::Full) => feed.drained().await,
                Err(NotTaken::Closed) => return,
            }
        }
    }
}
