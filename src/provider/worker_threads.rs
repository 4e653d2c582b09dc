//! Threads of a provider's own, for what may take long at a stretch: a script decides how long its rules take, and the
//! daemon's own threads answer everybody. A call that is given up is abandoned here even in the middle of a
//! step that does not return.
//!
//! Must never: run anything of the daemon's, or outlive the value that holds it.

use std::future::Future;
use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio::task::{JoinError, JoinHandle};

/// How many threads there are: one at a long step must not stop the others that are read beside it.
const THREADS: usize = 2;

/// The threads, which begin with the first call.
#[derive(Default)]
pub(crate) struct WorkerThreads(OnceCell<Runtime>);

impl WorkerThreads {
    /// Begins `work` there.
    pub(crate) async fn begin<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<Task<T>> {
        let threads = self.0.get_or_try_init(|| async {
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("ghost-answers").enable_all().build()
        });
        Ok(Task(threads.await?.spawn(work)))
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        if let Some(threads) = self.0.take() {
            // Whoever drops this may not wait.
            threads.shutdown_background();
        }
    }
}

/// Work under way. It ends with this value.
pub(crate) struct Task<T>(JoinHandle<T>);

impl<T> Task<T> {
    /// What it comes to.
    pub(crate) async fn end(mut self) -> Result<T, JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_step_that_does_not_return_is_left_behind() {
        let (aside, (begun, wait), (go, gone)) =
            (WorkerThreads::default(), tokio::sync::oneshot::channel(), mpsc::sync_channel(1));
        let task = aside.begin(async move {
            begun.send(()).unwrap();
            // Nothing is sent before the test is over.
            gone.recv().unwrap_or(())
        });
        let task = task.await.unwrap();
        // This test has one thread, and it is not that one's.
        wait.await.unwrap();
        drop((task, aside));
        go.send(()).unwrap_or(());
    }
}
