//! The daemon's file descriptors: its own limit is raised as far as the system allows, and a start says if that is
//! too few for the world's limits.

use ghost_domain::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that a daemon needs besides its connections: the database with its readers, the runtime, listeners,
/// providers, files of tools.
const OWN: u64 = 128;

/// Raises the limit of open files to the hard one. Returns how many files this process may have open; `None` means
/// any number.
fn raise() -> Option<u64> {
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
fn needed(limits: &Limits) -> u64 {
    OWN + 2 * u64::from(limits.connections_max) + u64::from(limits.free_descriptors_min)
}

/// Raises the limit of open files. Returns a warning if the system still allows fewer than the world's limits may need.
pub(crate) fn raise_and_check(limits: &Limits) -> Option<String> {
    warning(raise(), needed(limits))
}

fn warning(most: Option<u64>, needed: u64) -> Option<String> {
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
        assert_eq!(needed(&limits), 344);
        assert_eq!((warning(None, 344), warning(Some(344), 344)), (None, None));
        assert!(warning(Some(343), 344).unwrap().contains("LimitNOFILE=344"));
        let most = raise();
        assert_eq!(getrlimit(Resource::Nofile).current, most);
    }
}
