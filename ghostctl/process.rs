//! The daemon's process, found through the peer credentials of its socket.
//!
//! The only operation on the process must be the check whether it has ended.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::net::UnixStream;

use crate::endpoint::Endpoint;

/// A handle (pidfd) of a process that is not a child of this one.
pub struct Process(OwnedFd);

impl Process {
    /// The process that listens at `endpoint`. `None` if the kernel does not report it: over TCP,
    /// or in another container.
    pub async fn behind(endpoint: &Endpoint) -> Option<Self> {
        let Endpoint::Unix(path) = endpoint else { return None };
        let pid = UnixStream::connect(path).await.ok()?.peer_cred().ok()?.pid()?;
        // In tests the daemon runs in this process, which cannot wait for its own end.
        let pid = Pid::from_raw(pid).filter(|pid| *pid != rustix::process::getpid())?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// Whether the process has ended. Does not block.
    pub fn ended(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error is treated as ended: the caller has already seen that the daemon does not listen
        // any more.
        !poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready == 0)
    }
}
