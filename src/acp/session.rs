//! The entry of the library: the pipes, the protocol's library and the course of the run, side by side in one task.

use std::sync::Arc;

use agent_client_protocol::Channel;
use ghost_coding::text::one_line;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::flow::Flow;
use crate::handlers::{Office, connect};
use crate::host::Host;
use crate::outcome::{End, Outcome, StartError, Why};
use crate::record::Record;
use crate::task::{PROMPT_MAX, SESSION_MAX, Streams, Task};
use crate::wire::{Reader, Wire, write};

/// One session of a coding agent.
#[derive(Debug)]
pub struct Session;

impl Session {
    /// Gives the agent one task, and returns when the agent has answered, or when it is clear that it will not.
    ///
    /// When `cancel` is cancelled or the future is dropped, the agent is told to stop, every open permission question
    /// is answered with "cancelled", and the agent has [`Timeouts::grace`](crate::Timeouts::grace) to confirm. After a
    /// drop this goes on in a task of the runtime, which keeps the pipes and the host until then.
    ///
    /// The agent's process is the caller's: end it when this returns.
    ///
    /// # Panics
    /// Outside a tokio runtime with time.
    pub async fn run(streams: Streams, task: Task, host: Arc<dyn Host>, cancel: CancellationToken) -> Outcome {
        let began = Instant::now();
        let record = Arc::new(Record::new(&task.cwd));
        let wire = Arc::new(Wire::default());
        let stop = cancel.child_token();
        let driven = drive(streams, task, host, stop.clone(), Arc::clone(&record), Arc::clone(&wire), began);
        // If this future is dropped, the guard cancels the run, and the task goes on until the agent has stopped.
        let guard = stop.drop_guard();
        let end = tokio::spawn(driven).await;
        drop(guard);
        let end = end.unwrap_or_else(|error| {
            let what = if error.is_panic() { "it panicked" } else { "its runtime ended" };
            End::Died { why: Why::Internal(what.to_owned()) }
        });
        let whole = matches!(end, End::Finished { .. } | End::Refused);
        let work = record.work(wire.was_prompt_given(), whole, began.elapsed());
        Outcome { end, work }
    }
}

/// Runs the task, and returns when nothing of it is left.
async fn drive(
    streams: Streams,
    task: Task,
    host: Arc<dyn Host>,
    cancel: CancellationToken,
    record: Arc<Record>,
    wire: Arc<Wire>,
    began: Instant,
) -> End {
    if let Err(why) = check(&task) {
        return End::StartFailed { why };
    }
    let grace = task.timeouts.grace;
    let office = Arc::new(Office::new(Arc::clone(&host), Arc::clone(&record)));
    let flow = Flow { task, office: Arc::clone(&office), wire: Arc::clone(&wire), cancel, began };
    let reader = Reader { wire, record: Arc::clone(&record), host: Arc::clone(&host) };
    let end = side_by_side(streams, flow, reader).await;
    // The handlers are gone now, so no terminal is added any more.
    office.terminals.release_all(grace).await;
    record.said_all().into_iter().chain(record.left_out()).for_each(|note| host.progress(note));
    end
}

/// Runs everything until the flow ends, and drops the rest.
async fn side_by_side(streams: Streams, flow: Flow, reader: Reader) -> End {
    let Streams { output, input } = streams;
    let (ours, theirs) = Channel::duplex();
    let (from_library, to_library) = ours.into_parts();
    let (ready, connected) = oneshot::channel();
    let wire = Arc::clone(&reader.wire);
    let flow_office = Arc::clone(&flow.office);
    let run = async {
        match connected.await {
            Ok(cx) => flow.run(&cx).await,
            // The library ended before it began, and says why.
            Err(_) => std::future::pending().await,
        }
    };
    let reading = async {
        // The closure is dropped after the last message. For the library, that is the end of the agent's output.
        let deliver = move |frame| drop(to_library.unbounded_send(frame));
        reader.read(output, deliver).await;
        std::future::pending::<()>().await;
    };
    let writing = async {
        write(&wire, input, from_library).await;
        std::future::pending::<()>().await;
    };
    // The reading half comes last: it can always go on when the agent floods it, and the others must have their turn.
    tokio::select! {
        biased;
        end = run => end,
        result = connect(theirs, flow_office, ready) => {
            let message = result.err().map(|error| one_line(&error.to_string(), 200));
            End::Died { why: Why::Internal(message.unwrap_or_else(|| "the connection ended".to_owned())) }
        }
        () = writing => End::Died { why: Why::Ended },
        () = reading => End::Died { why: Why::Ended },
    }
}

fn check(task: &Task) -> Result<(), StartError> {
    let bad = |text: String| Err(StartError::BadTask(text));
    if !task.cwd.starts_with('/') {
        return bad("its directory is not an absolute path".to_owned());
    }
    if task.prompt.trim().is_empty() {
        return bad("its prompt is empty".to_owned());
    }
    if task.prompt.len() > PROMPT_MAX {
        return bad(format!("its prompt has {} bytes, and at most {PROMPT_MAX} are allowed", task.prompt.len()));
    }
    match &task.resume {
        Some(id) if id.0.is_empty() || id.0.len() > SESSION_MAX => {
            bad("its session id is empty or too long".to_owned())
        }
        _ => Ok(()),
    }
}
