//! Failures between the fork and the program.

use std::io;

use super::frame::{Refusal, Refused};
use super::kernel::Errno;

/// Where a set-up failed. The forked child reports it as one byte, because it must not allocate.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Step {
    Streams,
    Map,
    Path,
    Mount,
    Root,
    Proc,
    Loopback,
    Tunnel,
    Landlock,
    Seccomp,
    Limits,
    Identity,
    Capabilities,
    Directory,
    Program,
}
impl Step {
    pub const ALL: [Step; 15] = {
        use Step::*;
        [
            Streams,
            Map,
            Path,
            Mount,
            Root,
            Proc,
            Loopback,
            Tunnel,
            Landlock,
            Seccomp,
            Limits,
            Identity,
            Capabilities,
            Directory,
            Program,
        ]
    };
}

pub struct Failed(pub Step, pub Errno, pub String);

impl Failed {
    pub fn refusal(&self) -> Refusal {
        let Failed(step, errno, what) = self;
        let code = if matches!(step, Step::Program) { Refused::Program } else { Refused::SetUp };
        let step = format!("{step:?}").to_lowercase();
        Refusal(code, format!("{step} {what}: {}", io::Error::from_raw_os_error(*errno)))
    }
}

/// For `map_err`: the step with no more to say.
pub fn at(step: Step) -> impl Fn(Errno) -> Failed {
    move |errno| Failed(step, errno, String::new())
}
