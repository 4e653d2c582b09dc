//! The signals that a daemon receives: those that end it, and one that must not.
//!
//! Must never: end the process before whoever asked for its end had a chance to wait for it.

use ghost_domain::{Code, Refusal};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Turns true at the first SIGINT or SIGTERM; a second one ends the process at once.
///
/// # Errors
/// `Internal` when the system does not let signals be received.
pub fn stop_signal() -> Result<watch::Receiver<bool>, Refusal> {
    let (stop, stopped) = watch::channel(false);
    let listen = |kind| {
        signal(kind).map_err(|error| Refusal::new(Code::Internal, format!("signals cannot be received: {error}")))
    };
    // A file that meets its size limit would end the process without a word. Received, the signal lets the write fail with
    // a reason instead; its handler stays when the receiver goes.
    drop(listen(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::spawn(async move {
        for _ in 0..2 {
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
    Ok(stopped)
}
