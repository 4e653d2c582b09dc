//! The signals that a daemon receives: those that end it, and one that must not. They are received on a thread of their own,
//! so that they are heard whatever the others do.
//!
//! Must never: end the process before whoever asked for its end had a chance to wait for it, or depend on the runtime that
//! the world runs on.

use std::sync::mpsc;
use std::thread;

use ghost_domain::{Code, Refusal};
use rustix::process::Signal;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Turns true at the first SIGINT or SIGTERM; a second one ends the process at once.
///
/// # Errors
/// `Internal` when the system does not let signals be received.
pub fn stop_signal() -> Result<watch::Receiver<bool>, Refusal> {
    let refuse = |error: std::io::Error| Refusal::new(Code::Internal, format!("signals cannot be received: {error}"));
    let (stop, stopped) = watch::channel(false);
    let (ready, listens) = mpsc::sync_channel(1);
    let receive = move || {
        let listened = Builder::new_current_thread().enable_io().build().and_then(|runtime| {
            let entered = runtime.enter();
            // A file that meets its size limit would end the process without a word. Received, the signal lets the write
            // fail with a reason instead; its handler stays when the receiver goes.
            drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
            let signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            drop(entered);
            Ok((runtime, signals))
        });
        let (runtime, (mut interrupt, mut terminate)) = match listened {
            Ok(listened) => listened,
            // Whoever asked is still there: they wait for this.
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
                    // Asked twice: whoever asks does not want to wait for the grace period. Nothing acknowledged is lost.
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
