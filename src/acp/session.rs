//! The entry of the library.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::drive::Drive;
use crate::host::Host;
use crate::outcome::{End, Outcome};
use crate::record::Record;
use crate::task::{Streams, Task};
use crate::why::Why;
use crate::wire::Wire;

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
        let drive =
            Drive { task, host, cancel: stop.clone(), record: Arc::clone(&record), wire: Arc::clone(&wire), began };
        // If this future is dropped, the guard cancels the run, and the task goes on until the agent has stopped.
        let guard = stop.drop_guard();
        let end = tokio::spawn(drive.run(streams)).await;
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
