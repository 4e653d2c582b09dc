//! What keeps a command inside: the protections that a runner reports, and that of the daemon itself, by name.

/// One protection. The numbers are bits of the runner's protocol, which does not know that of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Protection {
    /// A filter refuses dangerous system calls.
    Seccomp = 1,
    /// Files are read, written and executed in listed places only.
    Files = 2,
    /// There are no sockets but those that the network mode allows.
    Network = 4,
    /// Nothing outside the command can be signalled.
    Signals = 8,
    /// Nothing outside can be traced, nor its environment or memory read.
    Trace = 16,
    /// Every process dies, even if the runner is killed.
    Tree = 32,
    /// Mode, owner and times of files outside cannot be changed.
    Metadata = 64,
    /// The kernel bounds the number of tasks.
    Tasks = 128,
    /// User, PID, mount, IPC and host name are the command's own.
    Namespaces = 256,
    /// The network is the command's own.
    Netns = 512,
    /// The command runs as another user than the daemon.
    Uid = 1_024,
    /// The kernel's control groups bound memory and tasks of an agent's commands together, and weigh their disk access.
    Cgroup = 4_096,
}

impl Protection {
    /// All, in the order of their bits.
    pub const ALL: [Self; 12] = [
        Self::Seccomp,
        Self::Files,
        Self::Network,
        Self::Signals,
        Self::Trace,
        Self::Tree,
        Self::Metadata,
        Self::Tasks,
        Self::Namespaces,
        Self::Netns,
        Self::Uid,
        Self::Cgroup,
    ];
    /// Those without which no command runs.
    pub const ALWAYS: [Self; 5] = [Self::Seccomp, Self::Files, Self::Network, Self::Signals, Self::Trace];

    /// The bit of the protection.
    #[must_use]
    pub fn bit(self) -> u32 {
        self as u32
    }

    /// The name of the protection, as the world file and the runner write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seccomp => "seccomp",
            Self::Files => "files",
            Self::Network => "network",
            Self::Signals => "signals",
            Self::Trace => "trace",
            Self::Tree => "tree",
            Self::Metadata => "metadata",
            Self::Tasks => "tasks",
            Self::Namespaces => "namespaces",
            Self::Netns => "netns",
            Self::Uid => "uid",
            Self::Cgroup => "cgroup",
        }
    }

    /// The protection of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protection| protection.as_str() == name)
    }

    /// The bits of those that always apply and of those that the world requires, by name.
    ///
    /// # Errors
    /// If there is no protection of such a name.
    pub(crate) fn required(names: &[String]) -> Result<u32, String> {
        let mut bits = Self::ALWAYS.iter().fold(0, |bits, protection| bits | protection.bit());
        for name in names {
            bits |= Self::named(name).ok_or_else(|| format!("there is no protection `{name}`"))?.bit();
        }
        Ok(bits)
    }

    /// The names of the protections in `bits`.
    #[must_use]
    pub fn names(bits: u32) -> Vec<&'static str> {
        Self::ALL.into_iter().filter(|protection| bits & protection.bit() != 0).map(Self::as_str).collect()
    }
}

/// Why there is no sandbox: these protections are required and not to be had. `reasons` are the runner's.
pub(crate) fn lacking(bits: u32, reasons: &[String]) -> String {
    format!("this machine lacks the protections {}: {}", Protection::names(bits).join(", "), reasons.join("; "))
}

/// What a sandbox can enforce on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The protections that commands get, as bits.
    pub in_force: u32,
    /// Why others are missing, one line each, as the runner found it.
    pub missing: Vec<String>,
    /// The image of containers with its id; empty if there is none.
    pub image: String,
    /// The version of the browser in the image, if it has one.
    pub browser: Option<String>,
}
