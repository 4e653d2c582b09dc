//! The signals that a daemon receives: SIGINT and SIGTERM, which stop it, and SIGXFSZ, which must
//! not stop it. A thread of its own receives them, so that a busy runtime cannot delay them.
//!
//! The first signal must never end the process. The thread must never depend on the runtime of the
//! world.

use std::sync::mpsc;
use std::thread;

use ghost_domain::{Code, Refusal};
use rustix::process::Signal;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Returns a flag that turns true at the first SIGINT or SIGTERM. The second one ends the process at once.
///
/// # Errors
/// `Internal` if the system refuses signal handlers.
pub fn stop_signal() -> Result<watch::Receiver<bool>, Refusal> {
    let refuse = |error: std::io::Error| Refusal::new(Code::Internal, format!("signals cannot be received: {error}"));
    let (stop, stopped) = watch::channel(false);
    let (ready, listens) = mpsc::sync_channel(1);
    let receive = move || {
        let listened = Builder::new_current_thread().enable_io().build().and_then(|runtime| {
            let entered = runtime.enter();
            // A write past the file size limit would end the process without a message. With a handler, the write fails
            // with an error instead. The handler stays when the receiver is dropped.
            drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
            let signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            drop(entered);
            Ok((runtime, signals))
        });
        let (runtime, (mut interrupt, mut terminate)) = match listened {
            Ok(listened) => listened,
            // The caller waits for this message.
            Err(error) => return drop(ready.send(Err(error))),
        };
        drop(ready.send(Ok(())));
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if stop.send_replace(true) {
                    // The second signal means that the user does not want to wait for the grace period.
                    // Acknowledged data is not lost.
                    std::process::exit(130);
                }
            }
        });
    };
    thread::Builder::new().name("signals".to_owned()).spawn(receive).map_err(refuse)?;
    match listens.recv() {
        Ok(Ok(())) => Ok(stopped),
        Ok(Err(error)) => Err(refuse(error)),
        Err(_) => Err(Refusal::new(Code::Internal, "signals cannot be received: their thread panicked")),
    }
}
