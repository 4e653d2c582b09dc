//! The end of the runner, which leaves no process behind.

use std::time::{Duration, Instant};

use super::frame::kind;
use super::kernel::*;
use super::processes::kill_descendants;
use super::service::{End, GRACE, Runner};
use super::streams::{Kind, Stream};

impl Runner {
    /// Says why, if there is somebody to hear it, and kills every process below.
    pub fn finish(&mut self, end: &End) {
        if let End::Malformed(text) = end {
            self.frame(kind::FATAL, 0, &[text.as_bytes()]);
            let until = Instant::now() + GRACE;
            while self.flush().is_ok() && !self.out.is_empty() && Instant::now() < until {
                let mut fds = [PollFd { fd: 1, events: POLLOUT, ready: 0 }];
                let _ = wait_ready(&mut fds, Some(GRACE));
            }
        }
        let commands = |stream: &Stream| match stream.kind {
            Kind::Command { pid, .. } => Some((pid, stream.identity)),
            _ => None,
        };
        let supervisors: Vec<_> = self.streams.values().filter_map(commands).collect();
        let identities: Vec<_> = supervisors.iter().map(|(_, identity)| *identity).collect();
        self.streams.clear(); // closes the control sockets: the supervisors kill their trees and end
        let until = Instant::now() + GRACE;
        loop {
            match reap() {
                Ok(Some(_)) => continue,
                Err(_) => return,
                Ok(None) => {}
            }
            if Instant::now() > until {
                for (pid, identity) in &supervisors {
                    let _ = with_identity(*identity, || send_signal(*pid, SIGKILL));
                }
                for identity in &identities {
                    let _ = with_identity(*identity, || kill_descendants(&[]));
                }
            }
            let _ = wait_ready(&mut [], Some(Duration::from_millis(1)));
        }
    }
}
