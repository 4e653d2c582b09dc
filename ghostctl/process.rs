//! The daemon's process, as the kernel shows it to whoever is connected to its socket.
//!
//! Must never: do anything to it but look whether it has ended.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::net::UnixStream;

use crate::endpoint::Endpoint;

/// A process whose end can be seen, though it is nobody's child here.
pub struct Process(OwnedFd);

impl Process {
    /// The one that listens there. None if the kernel does not say: over TCP, or into another container.
    pub async fn behind(endpoint: &Endpoint) -> Option<Self> {
        let Endpoint::Unix(path) = endpoint else { return None };
        let pid = UnixStream::connect(path).await.ok()?.peer_cred().ok()?.pid()?;
        // Nobody can wait for their own end.
        let pid = Pid::from_raw(pid).filter(|pid| *pid != rustix::process::getpid())?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// Whether it has ended. Does not wait.
    pub fn ended(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // What cannot be looked at counts as ended: that nobody listens was seen before.
        !poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&at_once)).is_ok_and(|ready| ready == 0)
    }
}
