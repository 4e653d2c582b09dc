//! Runs commands: for one answer, or with a stream in each direction. A command does not outlive the connection that asked for
//! it, or a client that has fallen silent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use ghost_domain::{Clock, Code, Refusal};
use ghost_sandbox::remote::node::is_plain;
use ghost_sandbox::remote::protocol;
use ghost_sandbox::remote::protocol::{
    BEAT, Ended, Exec, FromCommand, HEAD_MAX, LINE_MAX, Lines, PIECE, SILENCE, STDIN_MAX, ToCommand,
};
use ghost_sandbox::{Command, Feed, Finished, Sandbox as _, within};
use tokio::sync::{mpsc, watch};

use crate::requests::{invalid, lines, next_line, parsed};
use crate::worlds::{Key, Worlds};

/// Longest time of a command: a week, as in a world file.
const TIMEOUT_MAX: Duration = Duration::from_secs(604_800);
/// Bytes of each output that are kept at most.
const LIMIT_MAX: usize = 16 << 20;
/// Write prefixes of a command, and protections that it requires.
const NAMES_MAX: usize = 256;
/// Lines that may wait for the client.
const LINES: usize = 64;
/// Bytes of output that may wait for the client. More is left out of the stream; the result has its beginning and end.
const WAITING_MAX: usize = 2 << 20;

type Input = Lines<axum::body::BodyDataStream>;

fn command(request: Exec, feed: Option<Feed>) -> Result<(Command, Key), Refusal> {
    let timeout = Duration::from_millis(request.timeout_ms);
    let bounds = request.bounds;
    let is_place = |prefix: &String| is_plain(prefix.strip_suffix('/').unwrap_or(prefix));
    if !(request.dir.is_empty() || is_plain(&request.dir)) || !request.writable.iter().all(is_place) {
        return Err(invalid("a directory is not one of the workspace"));
    }
    if request.argv.is_empty() || request.writable.len() > NAMES_MAX || request.require.len() > NAMES_MAX {
        return Err(invalid("there is no program, or there are too many directories"));
    }
    if timeout > TIMEOUT_MAX || request.stdout_limit > LIMIT_MAX || request.stderr_limit > LIMIT_MAX {
        return Err(invalid("a limit is larger than the server allows"));
    }
    if bounds.memory_bytes == 0 || bounds.processes == 0 || bounds.disk_bytes == 0 {
        return Err(invalid("a bound is 0"));
    }
    if request.stdin.0.len() > STDIN_MAX {
        return Err(Refusal::new(Code::TooLarge, "the standard input is too long").hint("use a file of the workspace"));
    }
    let key = Key { bounds, access: request.access, require: request.require };
    let command = Command {
        agent_id: request.agent_id.parse()?,
        // A server's sandbox is `local`, where sessions of an agent share a runner.
        conversation_id: None,
        argv: request.argv,
        dir: request.dir,
        env: request.env,
        stdin: request.stdin.0,
        feed,
        drain: None,
        toolbox: None,
        timeout,
        writable: request.writable,
        stdout_limit: request.stdout_limit,
        stderr_limit: request.stderr_limit,
    };
    Ok((command, key))
}

/// Runs a command in the sandbox of its world. Dropping the future kills it.
async fn run(
    worlds: &Arc<Worlds>,
    request: Exec,
    feed: Option<Feed>,
    progress: &(dyn for<'t> Fn(&'t [u8]) + Send + Sync),
) -> Result<Finished, Refusal> {
    let _room = worlds.room()?;
    let world = worlds.world(&request.world).await?;
    let (command, key) = command(request, feed)?;
    let sandbox = worlds.sandbox(&world, key).await?;
    let mut places = command.writable.clone();
    places.push(command.agent_id.home());
    let _busy = world.busy.begin(places);
    let mut stopped = worlds.stopped();
    tokio::select! {
        biased;
        done = sandbox.run(command, progress) => done,
        _ = stopped.wait_for(|stopped| *stopped) => Err(stopping()),
    }
}

fn stopping() -> Refusal {
    Refusal::new(Code::Unavailable, "the toolbox server is stopping, and has killed the command")
        .hint("check what it did before you repeat it")
}

/// Runs a command for one answer. Dropping the future, because the connection is gone, kills it.
///
/// # Errors
/// If the request is not valid or the command does not run.
pub(crate) async fn once(worlds: &Arc<Worlds>, request: Exec) -> Result<Ended, Refusal> {
    Ok(run(worlds, request, None, &|_| {}).await?.into())
}

/// Runs a command with a stream in each direction.
///
/// # Errors
/// If the first line is not valid.
pub(crate) async fn stream(worlds: Arc<Worlds>, body: Body) -> Result<Response, Refusal> {
    let mut input = Lines::new(body.into_data_stream());
    let head = next_line(&mut input, HEAD_MAX, (&**worlds.clock(), SILENCE), "it is empty").await?;
    let request: Exec = parsed(&head)?;
    let (to, from) = mpsc::channel::<Bytes>(LINES);
    tokio::spawn(attend(worlds, request, input, to));
    Ok(lines(from))
}

/// A line for the client. `None` cannot happen: every message of the protocol has a form in JSON.
fn line(message: &FromCommand) -> Option<Bytes> {
    protocol::line(message).inspect_err(|error| tracing::error!(%error, "a message has no form")).ok().map(Bytes::from)
}

async fn tell(to: &mpsc::Sender<Bytes>, message: &FromCommand) {
    if let Some(line) = line(message) {
        // A client that is gone is noticed elsewhere.
        drop(to.send(line).await);
    }
}

async fn tell_left_out(to: &mpsc::Sender<Bytes>, left_out: &AtomicU64) {
    let left = left_out.swap(0, Ordering::Relaxed);
    if left > 0 {
        tell(to, &FromCommand::LeftOut(left)).await;
    }
}

async fn attend(worlds: Arc<Worlds>, request: Exec, input: Input, to: mpsc::Sender<Bytes>) {
    let clock = Arc::clone(worlds.clock());
    let feed = request.feeds.then(Feed::default);
    let (waiting, left_out) = (AtomicUsize::new(0), AtomicU64::new(0));
    // Pieces of the output, in order. Their bytes have a bound, so their number has one, too.
    let (pieces, mut output) = mpsc::channel::<Vec<u8>>(WAITING_MAX / 64);
    let progress = move |piece: &[u8], waiting: &AtomicUsize, left_out: &AtomicU64| {
        for part in piece.chunks(PIECE) {
            let before = waiting.fetch_add(part.len(), Ordering::Relaxed);
            if before + part.len() > WAITING_MAX || pieces.try_send(part.to_vec()).is_err() {
                waiting.fetch_sub(part.len(), Ordering::Relaxed);
                left_out.fetch_add(part.len() as u64, Ordering::Relaxed);
            }
        }
    };
    let (heard, hears) = watch::channel(());
    let done = {
        let tell_piece = |piece: &[u8]| progress(piece, &waiting, &left_out);
        let running = run(&worlds, request, feed.clone(), &tell_piece);
        let forward = async {
            loop {
                // The place in the queue comes first: a piece that was taken could be lost while it waits for one.
                let Ok(place) = to.reserve().await else { std::future::pending().await };
                let message = tokio::select! {
                    biased;
                    piece = output.recv() => match piece {
                        Some(piece) => {
                            waiting.fetch_sub(piece.len(), Ordering::Relaxed);
                            FromCommand::Output(protocol::Data(piece))
                        }
                        None => std::future::pending().await,
                    },
                    () = clock.sleep(BEAT) => FromCommand::Beat,
                };
                if let Some(line) = line(&message) {
                    place.send(line);
                }
                tell_left_out(&to, &left_out).await;
            }
        };
        let obey = obey(input, feed.as_ref(), &to, &heard);
        tokio::pin!(running);
        tokio::select! {
            biased;
            done = &mut running => done,
            never = forward => never,
            why = obey => Err(killed(why)),
            () = silence(&*clock, hears) => Err(killed("the client fell silent")),
            () = to.closed() => Err(killed("the client is gone")),
        }
    };
    drop(progress);
    // What came before the end is sent before the end.
    while let Ok(piece) = output.try_recv() {
        tell(&to, &FromCommand::Output(protocol::Data(piece))).await;
    }
    tell_left_out(&to, &left_out).await;
    let message = match done {
        Ok(done) => FromCommand::Ended(done.into()),
        Err(refusal) => FromCommand::Refused(refusal),
    };
    tell(&to, &message).await;
}

fn killed(why: &str) -> Refusal {
    Refusal::new(Code::Cancelled, format!("the command was killed: {why}"))
        .hint("check what it did before you repeat it")
}

/// Does what the client says. Completes with the reason for which the command must die.
async fn obey(
    mut input: Input,
    feed: Option<&Feed>,
    to: &mpsc::Sender<Bytes>,
    heard: &watch::Sender<()>,
) -> &'static str {
    let mut fed = false;
    loop {
        let drained = async {
            match feed {
                Some(feed) if fed => feed.drained().await,
                _ => std::future::pending().await,
            }
        };
        let line = tokio::select! {
            biased;
            line = input.next(LINE_MAX) => line,
            () = drained => {
                fed = false;
                tell(to, &FromCommand::Taken).await;
                continue;
            }
        };
        let Ok(Some(line)) = line else { return "its request broke off" };
        heard.send_replace(());
        match serde_json::from_slice(&line) {
            Ok(ToCommand::Beat) => {}
            Ok(ToCommand::Kill) => return "the client asked for it",
            Ok(ToCommand::Eof) => feed.iter().for_each(|feed| feed.close()),
            Ok(ToCommand::Stdin(bytes)) => match feed.map(|feed| feed.push(&bytes.0)) {
                Some(Ok(())) => fed = true,
                _ => return "the client sent input that was not asked for",
            },
            Err(_) => return "its request cannot be read",
        }
    }
}

/// Completes when the client has said nothing for too long.
async fn silence(clock: &dyn Clock, mut hears: watch::Receiver<()>) {
    while let Some(changed) = within(clock, SILENCE, hears.changed()).await {
        if changed.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
