//! What the daemon takes from its system: clock, ids and random numbers, the signals that stop it, values of its environment,
//! and its file descriptors. A value of the environment is never shown.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use ghost_config::plan::Plan;
use ghost_control::TlsFiles;
use ghost_domain::ports::{Ids, Ports, Rng};
use ghost_domain::{Code, Limits, Refusal};
pub use ghost_sandbox::SystemClock;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use uuid::Uuid;

/// UUIDs of version 7. They grow with time, so new rows go to the same database pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct UuidIds;

impl Ids for UuidIds {
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}

/// Random numbers for jitter, from UUIDs of version 4.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsRng;

impl Rng for OsRng {
    fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Modulo is off by less than one in 2^40 for the small bounds of jitter.
        let (high, low) = Uuid::new_v4().as_u64_pair();
        (high ^ low.rotate_left(17)) % bound
    }
}

/// The ports of a real daemon.
pub fn system_ports() -> Ports {
    Ports { clock: Arc::new(SystemClock), ids: Arc::new(UuidIds), rng: Arc::new(OsRng) }
}

/// Reads an environment variable; shared with the reload.
pub type SharedEnv = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The values that redaction removes: keys of providers, `GHOST_TOKEN`, and the variables that
/// `world-config.yaml` names.
pub(crate) fn secrets_of(plan: &Plan, env: &(dyn Fn(&str) -> Option<String> + Send + Sync)) -> Vec<String> {
    let keys = plan.llm.providers.values().filter_map(|provider| provider.api_key_env.as_deref());
    let named = plan.secret_env.iter().map(String::as_str);
    keys.chain(named).chain(["GHOST_TOKEN"]).filter_map(env).filter(|value| !value.is_empty()).collect()
}

/// The files of mutual TLS, if the environment names them: all three, or none.
pub(crate) fn tls_files(env: &(dyn Fn(&str) -> Option<String> + Send + Sync)) -> Result<Option<TlsFiles>, Refusal> {
    let named = |name: &str| env(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    match (named("GHOST_TLS_CERT"), named("GHOST_TLS_KEY"), named("GHOST_TLS_CA")) {
        (None, None, None) => Ok(None),
        (Some(certificate), Some(key), Some(client_ca)) => Ok(Some(TlsFiles { certificate, key, client_ca })),
        _ => Err(Refusal::new(Code::InvalidArguments, "mutual TLS is only partly configured")
            .hint("set GHOST_TLS_CERT, GHOST_TLS_KEY and GHOST_TLS_CA, or none of them")),
    }
}

/// The name of this daemon's node: host and process id, so that two daemons on one database have different names.
pub(crate) fn node_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}

/// A thread and a runtime of its own receive the signals, so that a busy world cannot delay them, and the first one never
/// ends the process.
///
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

/// Descriptors that a daemon needs besides its connections: the database with its readers, the runtime, listeners,
/// providers, files of tools.
const OWN: u64 = 128;

/// Raises the limit of open files to the hard one. Returns how many files this process may have open; `None` means
/// any number.
fn raise_descriptors() -> Option<u64> {
    let found = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: found.maximum, maximum: found.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => found.maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files could not be raised");
            found.current
        }
    }
}

/// How many descriptors a world with these limits may need: its connections, over the network and over Unix sockets.
fn descriptors_needed(limits: &Limits) -> u64 {
    OWN + 2 * u64::from(limits.connections_max) + u64::from(limits.free_descriptors_min)
}

/// Raises the limit of open files. Returns a warning if the system still allows fewer than the world's limits may need.
pub(crate) fn raise_and_check(limits: &Limits) -> Option<String> {
    descriptors_warning(raise_descriptors(), descriptors_needed(limits))
}

fn descriptors_warning(most: Option<u64>, needed: u64) -> Option<String> {
    let most = most.filter(|most| *most < needed)?;
    Some(format!(
        "ghostd may have {most} files open, and the limits of this world may need {needed}: raise the limit (`ulimit -Hn {needed}`, \
         `LimitNOFILE={needed}` in a systemd unit), or lower `limits.connections_max`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_descriptors_are_reported_with_the_number_that_is_needed() {
        let limits = Limits { connections_max: 100, free_descriptors_min: 16, ..Limits::default() };
        assert_eq!(descriptors_needed(&limits), 344);
        assert_eq!((descriptors_warning(None, 344), descriptors_warning(Some(344), 344)), (None, None));
        assert!(descriptors_warning(Some(343), 344).unwrap().contains("LimitNOFILE=344"));
        let most = raise_descriptors();
        assert_eq!(getrlimit(Resource::Nofile).current, most);
    }
}
