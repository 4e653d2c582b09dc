//! Drives one run: the pipes, the protocol's library and the course of the run, side by side in one task.

use std::sync::Arc;

use agent_client_protocol::Channel;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bounds::{PROMPT_MAX, SESSION_MAX};
use crate::connection::connect;
use crate::flow::Flow;
use crate::host::Host;
use crate::office::Office;
use crate::outcome::End;
use crate::reader::Reader;
use crate::record::Record;
use crate::task::{Streams, Task};
use crate::why::{StartError, Why};
use crate::wire::Wire;
use crate::writer::write;
use ghost_coding::text::one_line;

pub(crate) struct Drive {
    pub(crate) task: Task,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) cancel: CancellationToken,
    pub(crate) record: Arc<Record>,
    pub(crate) wire: Arc<Wire>,
    pub(crate) began: Instant,
}

impl Drive {
    /// Runs the task, and returns when nothing of it is left.
    pub(crate) async fn run(self, streams: Streams) -> End {
        if let Err(why) = check(&self.task) {
            return End::StartFailed { why };
        }
        let Self { task, host, cancel, record, wire, began } = self;
        let grace = task.timeouts.grace;
        let office = Arc::new(Office::new(Arc::clone(&host), Arc::clone(&record)));
        let flow = Flow { task, office: Arc::clone(&office), wire: Arc::clone(&wire), cancel, began };
        let reader = Reader { wire: Arc::clone(&wire), record: Arc::clone(&record), host: Arc::clone(&host) };
        let end = side_by_side(streams, flow, reader).await;
        // The handlers are gone now, so no terminal is added any more.
        office.terminals.release_all(grace).await;
        record.said_all().into_iter().chain(record.left_out()).for_each(|note| host.progress(note));
        end
    }
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
