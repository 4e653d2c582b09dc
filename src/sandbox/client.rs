//! A connection to one runner: many commands over one stream, each with credit for its output, so that a command whose
//! output nobody reads stops and holds no memory.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ghost_domain::{Clock, Code, Refusal};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::clock::within;
use crate::command::{Command, Finished, Progress};
use crate::frame::{DISCARD, Exec, Exit, Hello, Order, Report, STDERR, STDOUT};
use crate::left::Begun;
use crate::streams::{Capture, Drain, Feed};
use crate::tunnel::Connection;
use crate::{frame, tunnel};

/// Bytes of each output that a command may write ahead of the daemon.
const CREDIT: u32 = 128 * 1024;
/// Frames of one command that may wait: as many as its outputs' credit and its input's window allow, if each has one byte.
const FRAMES: usize = 3 * CREDIT as usize + 64;
/// Bytes of one output after which the rest is only counted.
const READ_MAX: u64 = 256 * 1024 * 1024;
/// Frames that may wait to be sent.
const ORDERS: usize = 256;
/// Bytes of standard input in one frame.
const CHUNK: usize = 32 * 1024;
/// How long after its deadline a command's end may take to arrive. The runner kills a tree within two seconds.
const GRACE: Duration = Duration::from_secs(5);
/// The longest silence towards a runner behind an engine, in seconds, and how often it is broken.
const SILENCE_SECONDS: u16 = 20;
const BEAT: Duration = Duration::from_secs(4);
/// Ids from here on are the runner's.
const OWN_IDS: u32 = 1 << 31;

/// Bytes of standard output and error that are kept, and who gets standard output instead.
type Kept<'d> = (usize, usize, Option<&'d Drain>);

/// Who gets the frames of a stream.
#[derive(Clone, Debug)]
enum Stream {
    /// A command that waits for its end, or a listener that begins.
    Command(mpsc::Sender<Report>),
    /// A connection of a command to the proxy.
    Connection(Arc<Connection>),
}

type Streams = Arc<Mutex<HashMap<u32, Stream>>>;

/// A connection to a runner.
#[derive(Debug)]
pub(crate) struct Runner {
    hello: Hello,
    orders: mpsc::Sender<Vec<u8>>,
    streams: Streams,
    next: AtomicU32,
    /// Why the runner ended, if it said so.
    ended: Arc<OnceLock<String>>,
}

fn lock(streams: &Streams) -> MutexGuard<'_, HashMap<u32, Stream>> {
    // Changes under the lock are single calls of the map.
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The runner is not there any more.
fn gone(why: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("the sandbox's runner ended: {why}"))
        .hint("it is started again with the next command; check what this one did before you repeat it")
}

/// Ends the wait of everybody who waits for the runner.
fn end_all(streams: &Streams) {
    for (_, stream) in lock(streams).drain() {
        // A command's channel closes with its sender.
        if let Stream::Connection(connection) = stream {
            connection.close();
        }
    }
}

/// Reads the runner's frames and gives them to their streams. Returns why there are no more.
async fn read_frames(
    mut from: impl AsyncRead + Unpin,
    streams: &Streams,
    orders: mpsc::WeakSender<Vec<u8>>,
    exit: Option<tunnel::Exit>,
    window: u32,
) -> String {
    loop {
        let (id, report) = match frame::read(&mut from).await {
            Ok(Some((_, Report::Fatal(why)))) => return why,
            Ok(Some(read)) => read,
            Ok(None) => return "its stream closed".to_owned(),
            Err(error) => return error.to_string(),
        };
        if let Report::Accepted(id) = report {
            match &exit {
                Some(exit) if id >= OWN_IDS => {
                    let connection = exit.serve(orders.clone(), id, window);
                    lock(streams).insert(id, Stream::Connection(connection));
                }
                _ => return "it accepted a connection that it was not told to expect".to_owned(),
            }
            continue;
        }
        let stream = lock(streams).get(&id).cloned();
        match stream {
            Some(Stream::Command(reports)) => {
                // It never waits, because the runner must be heard for others to go on. One that nobody waits for is gone.
                if let Err(mpsc::error::TrySendError::Full(_)) = reports.try_send(report) {
                    return "it sends more than it may".to_owned();
                }
            }
            Some(Stream::Connection(connection)) => match report {
                Report::Data { bytes, .. } => connection.push(&bytes),
                Report::Credit(bytes) => connection.grant(bytes),
                Report::Eof => connection.finish(),
                Report::Closed | Report::Refused { .. } => {
                    connection.close();
                    lock(streams).remove(&id);
                }
                _ => {}
            },
            // Frames of a stream that nobody waits for are dropped.
            None => {}
        }
    }
}

impl Runner {
    /// Greets a runner, which answers within a time. `exit` serves the connections that it accepts.
    ///
    /// # Errors
    /// Why it is no runner of this version.
    pub(crate) async fn connect(
        from: impl AsyncRead + Unpin + Send + 'static,
        to: impl AsyncWrite + Unpin + Send + 'static,
        exit: Option<tunnel::Exit>,
        (clock, greeting): (&dyn Clock, Duration),
    ) -> Result<Self, String> {
        let greeted = within(clock, greeting, Self::greet(from, to, exit)).await;
        greeted.ok_or("the runner does not greet")?.map_err(|why| format!("the runner does not work: {why}"))
    }

    async fn greet(
        mut from: impl AsyncRead + Unpin + Send + 'static,
        mut to: impl AsyncWrite + Unpin + Send + 'static,
        exit: Option<tunnel::Exit>,
    ) -> Result<Self, String> {
        to.write_all(&Order::Hello.encode(0)).await.map_err(|error| error.to_string())?;
        let hello = match frame::read(&mut from).await.map_err(|error| error.to_string())? {
            Some((_, Report::Hello(hello))) if hello.version == frame::VERSION => hello,
            Some((_, Report::Hello(hello))) => return Err(format!("it speaks version {}", hello.version)),
            Some((_, Report::Fatal(why))) => return Err(why),
            Some(_) => return Err("it does not greet".to_owned()),
            None => return Err("it ended at once".to_owned()),
        };
        let (orders, mut queue) = mpsc::channel::<Vec<u8>>(ORDERS);
        tokio::spawn(async move {
            while let Some(order) = queue.recv().await {
                // Its end shows on the other stream.
                if to.write_all(&order).await.is_err() || to.flush().await.is_err() {
                    break;
                }
            }
            // The end of its input ends the runner. One that has ended already is no error.
            let _ = to.shutdown().await;
        });
        let (streams, ended) = (Streams::default(), Arc::new(OnceLock::new()));
        let (reading, reason) = (Arc::clone(&streams), Arc::clone(&ended));
        let (answering, window) = (orders.downgrade(), hello.window);
        tokio::spawn(async move {
            let why = read_frames(from, &reading, answering, exit, window).await;
            let _ = reason.set(why);
            end_all(&reading);
        });
        Ok(Self { hello, orders, streams, next: AtomicU32::new(0), ended })
    }

    /// Lets the runner end if this daemon is silent while a command runs, and keeps speaking. For streams whose end may
    /// not arrive: between a container and this daemon stands an engine, which may die or stop.
    pub(crate) async fn keep_speaking(&self, clock: Arc<dyn Clock>) -> Result<(), Refusal> {
        self.order(&Order::Watch(SILENCE_SECONDS), 0).await?;
        let (orders, streams) = (self.orders.downgrade(), Arc::clone(&self.streams));
        tokio::spawn(async move {
            loop {
                clock.sleep(BEAT).await;
                let Some(orders) = orders.upgrade() else { return };
                // A full queue means that enough is said already, or that nobody reads.
                if !lock(&streams).is_empty() && orders.try_send(Order::Watch(SILENCE_SECONDS).encode(0)).is_err() {
                    tracing::debug!("a runner's stream is full");
                }
            }
        });
        Ok(())
    }

    /// Lets the runner listen at a port of its own network, for the connections that its exit serves.
    ///
    /// # Errors
    /// Why it does not listen.
    pub(crate) async fn listen(&self, port: u16) -> Result<(), String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) % OWN_IDS;
        let (sender, mut reports) = mpsc::channel(FRAMES);
        lock(&self.streams).insert(id, Stream::Command(sender));
        self.order(&Order::Listen(port), id).await.map_err(|refusal| refusal.message)?;
        let answer = reports.recv().await;
        lock(&self.streams).remove(&id);
        match answer {
            Some(Report::Opened(_)) => Ok(()),
            Some(Report::Refused { reason, .. }) => Err(reason),
            _ => Err(self.why().message),
        }
    }

    pub(crate) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Whether the runner has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Gives the runner up: every command that waits for it gets an error.
    fn give_up(&self, why: &str) {
        let _ = self.ended.set(why.to_owned());
        end_all(&self.streams);
    }

    fn why(&self) -> Refusal {
        gone(self.ended.get().map_or("its stream closed", String::as_str))
    }

    async fn order(&self, order: &Order<'_>, id: u32) -> Result<(), Refusal> {
        self.orders.send(order.encode(id)).await.map_err(|_| self.why())
    }

    /// Runs the command of an agent, and notes what it left below `root`.
    pub(crate) async fn run_for(
        &self,
        command: &Command,
        exec: &Exec,
        (begun, root): (Begun<'_>, &Path),
        progress: Progress<'_>,
        clock: &dyn Clock,
    ) -> Result<Finished, Refusal> {
        let limits = (command.stdout_limit, command.stderr_limit, command.drain.as_ref());
        let (done, found) = self.run(exec, (&command.stdin, command.feed.as_ref()), limits, progress, clock).await?;
        if let Some(Ok(dir)) = found.as_ref().map(|found| Path::new(found).strip_prefix(root)) {
            begun.left(&dir.to_string_lossy());
        }
        Ok(done)
    }

    /// Runs a command. `limits` says what is kept of its outputs. Also returns the path of a directory that the command left
    /// and that no program should walk. A runner that says nothing for
    /// some seconds after the command's deadline (stopped, or behind an engine that hangs) is given up.
    pub(crate) async fn run(
        &self,
        exec: &Exec,
        stdin: (&[u8], Option<&Feed>),
        limits: Kept<'_>,
        progress: Progress<'_>,
        clock: &dyn Clock,
    ) -> Result<(Finished, Option<String>), Refusal> {
        let attended = self.attend(exec, stdin, limits, progress);
        within(clock, exec.deadline.saturating_add(GRACE), attended).await.unwrap_or_else(|| {
            self.give_up("it did not answer until the command's deadline");
            Err(self.why())
        })
    }

    async fn attend(
        &self,
        exec: &Exec,
        stdin: (&[u8], Option<&Feed>),
        limits: Kept<'_>,
        progress: Progress<'_>,
    ) -> Result<(Finished, Option<String>), Refusal> {
        if !exec.is_sendable() {
            return Err(Refusal::new(Code::TooLarge, "the command is too long, or contains a zero byte")
                .hint("write long text to a file of the workspace, and use the file"));
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) % OWN_IDS;
        let (sender, mut reports) = mpsc::channel(FRAMES);
        lock(&self.streams).insert(id, Stream::Command(sender));
        let mut running = Running { runner: self, id, over: false };
        if self.is_gone() {
            return Err(self.why());
        }
        let exec = Exec { credit: (CREDIT, CREDIT), ..exec.clone() };
        self.order(&Order::Exec(&exec), id).await?;
        let mut input = Input {
            rest: stdin.0.to_vec(),
            feed: stdin.1,
            window: self.hello.window,
            open: exec.flags & frame::flag::STDIN != 0,
        };
        let mut outputs = Outputs::new(limits);
        let mut in_force = 0;
        loop {
            input.send(self, id).await?;
            let report = tokio::select! {
                biased;
                report = reports.recv() => report,
                () = input.more() => continue,
                bytes = drained(outputs.drain) => {
                    self.order(&Order::Credit(STDOUT, bytes), id).await?;
                    continue;
                }
            };
            let Some(report) = report else { return Err(self.why()) };
            match report {
                Report::Started { in_force: bits } => in_force = bits,
                Report::Credit(bytes) => input.window = input.window.saturating_add(bytes),
                Report::Data { channel: STDOUT, bytes } if outputs.drain.is_some() => outputs.pass_on(&bytes),
                Report::Data { channel, bytes } => {
                    progress(&bytes);
                    let credit = outputs.take(channel, &bytes);
                    self.order(&Order::Credit(channel, credit), id).await?;
                }
                Report::Exit(exit) => {
                    running.over = true;
                    let found = exit.found.clone();
                    return Ok((outputs.finish(exit, in_force), found));
                }
                Report::Refused { code, reason } => {
                    running.over = true;
                    return Err(refused(code, &reason));
                }
                _ => {}
            }
        }
    }
}

/// The refusal of a runner.
fn refused(code: u16, reason: &str) -> Refusal {
    let (code, hint) = match code {
        3 | 5 => (Code::InvalidArguments, "check the program and the directory"),
        6 => (Code::RateLimited, "wait until other commands of yours have ended"),
        _ => (Code::Unavailable, "`ghostctl status` shows what the sandbox lacks"),
    };
    Refusal::new(code, format!("the sandbox refused the command: {reason}")).hint(hint)
}

/// A command under way. Dropped before its end, it kills the whole tree.
struct Running<'r> {
    runner: &'r Runner,
    id: u32,
    over: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.runner.streams).remove(&self.id);
        if self.over {
            return;
        }
        // The end of a command waits for its output, so that is discarded.
        let orders = [Order::Kill, Order::Credit(STDOUT, DISCARD), Order::Credit(STDERR, DISCARD)];
        let mut late = Vec::new();
        for frame in orders.map(|order| order.encode(self.id)) {
            // A queue full of other streams' bytes. Without a place in it they must not be lost.
            if let Err(mpsc::error::TrySendError::Full(frame)) = self.runner.orders.try_send(frame) {
                late.push(frame);
            }
        }
        // Without a runtime the daemon is ending, and the end of the stream ends the runner.
        if let (false, Ok(runtime)) = (late.is_empty(), tokio::runtime::Handle::try_current()) {
            let orders = self.runner.orders.downgrade();
            runtime.spawn(async move {
                for frame in late {
                    // An error means that the runner has ended.
                    let Some(orders) = orders.upgrade() else { return };
                    let _ = orders.send(frame).await;
                }
            });
        }
    }
}

/// Standard input that is still to be sent, within the runner's window.
struct Input<'i> {
    rest: Vec<u8>,
    feed: Option<&'i Feed>,
    window: u32,
    open: bool,
}

impl Input<'_> {
    async fn send(&mut self, runner: &Runner, id: u32) -> Result<(), Refusal> {
        while self.open && self.window > 0 && !self.rest.is_empty() {
            let size = self.rest.len().min(CHUNK).min(usize::try_from(self.window).unwrap_or(CHUNK));
            let rest = self.rest.split_off(size);
            runner.order(&Order::Data(&self.rest), id).await?;
            self.window -= u32::try_from(size).unwrap_or(self.window);
            self.rest = rest;
        }
        if self.open && self.rest.is_empty() && self.feed.is_none() {
            self.open = false;
            runner.order(&Order::Eof, id).await?;
        }
        Ok(())
    }

    /// Waits for more input to send. Never completes if there is none to come, or if the runner must first read some.
    async fn more(&mut self) {
        match self.feed {
            Some(feed) if self.open && self.rest.is_empty() => match feed.next().await {
                Some(bytes) => self.rest = bytes,
                None => self.feed = None,
            },
            _ => std::future::pending().await,
        }
    }
}

/// The bytes for which a reader gives new credit. Never completes without one.
async fn drained(drain: Option<&Drain>) -> u32 {
    match drain {
        Some(drain) => drain.taken().await,
        None => std::future::pending().await,
    }
}

/// The two outputs of a command.
struct Outputs<'d> {
    stdout: Capture,
    stderr: Capture,
    read: [u64; 2],
    drain: Option<&'d Drain>,
}

/// The reader learns of the end, whatever the reason.
impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        if let Some(drain) = self.drain {
            drain.close();
        }
    }
}

impl<'d> Outputs<'d> {
    fn new((stdout, stderr, drain): Kept<'d>) -> Self {
        Self { stdout: Capture::new(stdout), stderr: Capture::new(stderr), read: [0; 2], drain }
    }

    /// Gives a piece of standard output to its reader.
    fn pass_on(&self, bytes: &[u8]) {
        if let Some(drain) = self.drain {
            drain.push(bytes);
        }
    }

    /// Keeps a piece. Returns the credit for the next one.
    fn take(&mut self, channel: u8, bytes: &[u8]) -> u32 {
        let (capture, read) = match channel {
            STDERR => (&mut self.stderr, &mut self.read[1]),
            _ => (&mut self.stdout, &mut self.read[0]),
        };
        capture.push(bytes);
        *read = read.saturating_add(bytes.len() as u64);
        if *read > READ_MAX { DISCARD } else { u32::try_from(bytes.len()).unwrap_or(DISCARD) }
    }

    fn finish(&mut self, exit: Exit, in_force: u32) -> Finished {
        let whole = |capture: &mut Capture| std::mem::replace(capture, Capture::new(0));
        Finished {
            end: exit.end,
            duration: exit.duration.max(Duration::ZERO),
            cpu: exit.cpu,
            stdout: whole(&mut self.stdout).finish(exit.stdout),
            stderr: whole(&mut self.stderr).finish(exit.stderr),
            in_force,
        }
    }
}
