//! The address of a daemon, and the process that listens there. An address is never guessed: an invalid one is a usage
//! error that lists the valid forms.

use std::fmt;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::Failure;
use crate::text::one_line;

/// Name of the socket in a data directory.
pub const SOCKET: &str = "ghostd.sock";
/// Longest path of a Unix socket in bytes, a limit of the kernel.
const SOCKET_PATH_MAX: usize = 107;
/// Longest `HOST:PORT` in bytes. A host name has at most 253.
const AUTHORITY_MAX: usize = 300;

/// Time limit of one check whether a TCP port accepts connections.
const CONNECT: Duration = Duration::from_secs(1);

/// The address of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp {
        /// `HOST:PORT`, an IPv6 host in brackets.
        authority: String,
        /// Whether to use TLS.
        tls: bool,
    },
}

impl Endpoint {
    /// Whether something accepts connections there. Blocks the thread for at most a second for each address, plus the
    /// time of a DNS lookup.
    pub fn listens(&self) -> bool {
        match self {
            Self::Unix(path) => UnixStream::connect(path).is_ok(),
            Self::Tcp { authority, .. } => authority.to_socket_addrs().is_ok_and(|mut addresses| {
                addresses.any(|address| TcpStream::connect_timeout(&address, CONNECT).is_ok())
            }),
        }
    }
}

impl FromStr for Endpoint {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(not_an_endpoint(text)) } else { Self::socket(path) };
        }
        if let Some(rest) = text.strip_prefix("http://") {
            return tcp(text, rest, false);
        }
        if let Some(rest) = text.strip_prefix("https://") {
            return tcp(text, rest, true);
        }
        if text.is_empty() || text.contains("://") {
            return Err(not_an_endpoint(text));
        }
        if text.contains('/') || !text.contains(':') {
            return Self::socket(text);
        }
        tcp(text, text, false)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { authority, tls: false } => write!(f, "http://{authority}"),
            Self::Tcp { authority, tls: true } => write!(f, "https://{authority}"),
        }
    }
}

impl Endpoint {
    /// The endpoint of a socket path, or of the socket in a data directory.
    fn socket(path: impl Into<PathBuf>) -> Result<Self, Failure> {
        let path = path.into();
        let path = if path.is_dir() { path.join(SOCKET) } else { path };
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_MAX {
            // A usage error at once: retries cannot succeed.
            let what = format!("the socket path has {bytes} bytes; the maximum is {SOCKET_PATH_MAX}");
            return Err(Failure::new("invalid_arguments", what).hint("use a relative path or a symbolic link"));
        }
        Ok(Self::Unix(path))
    }

    /// Whether data sent there stays on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp { authority, .. } => {
                let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }
}

fn tcp(whole: &str, authority: &str, tls: bool) -> Result<Endpoint, Failure> {
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let Some((host, port)) = authority.rsplit_once(':') else { return Err(not_an_endpoint(whole)) };
    // Without brackets, the last group of an IPv6 address would be taken for the port.
    let bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '@' | '?' | '#');
    if authority.len() > AUTHORITY_MAX
        || host.is_empty()
        || bare_ipv6
        || host.contains(odd)
        || port.parse::<u16>().is_err()
    {
        return Err(not_an_endpoint(whole));
    }
    Ok(Endpoint::Tcp { authority: authority.to_owned(), tls })
}

fn not_an_endpoint(text: &str) -> Failure {
    Failure::new("invalid_arguments", format!("`{}` is not an endpoint", one_line(text, 100)))
        .hint("write unix:PATH, a path, HOST:PORT, http://HOST:PORT or https://HOST:PORT")
}

/// A handle (pidfd) of a process that is not a child of this one.
pub struct Process(OwnedFd);

impl Process {
    /// The process that listens at `endpoint`. `None` if the kernel does not report it: over TCP,
    /// or in another container.
    pub async fn behind(endpoint: &Endpoint) -> Option<Self> {
        let Endpoint::Unix(path) = endpoint else { return None };
        let pid = tokio::net::UnixStream::connect(path).await.ok()?.peer_cred().ok()?.pid()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp_at(authority: &str, tls: bool) -> Endpoint {
        Endpoint::Tcp { authority: authority.to_owned(), tls }
    }

    #[test]
    fn endpoints_are_parsed_in_every_form() {
        let read = |text: &str| text.parse::<Endpoint>().unwrap();
        assert_eq!(read("unix:/run/g.sock"), Endpoint::Unix("/run/g.sock".into()));
        assert_eq!(read("unix:///run/g.sock"), Endpoint::Unix("/run/g.sock".into()));
        assert_eq!(read("/run/g.sock"), Endpoint::Unix("/run/g.sock".into()));
        assert_eq!(read("g.sock"), Endpoint::Unix("g.sock".into()));
        assert_eq!(read("127.0.0.1:7777"), tcp_at("127.0.0.1:7777", false));
        assert_eq!(read("http://box:1/"), tcp_at("box:1", false));
        assert_eq!(read("https://[::1]:443"), tcp_at("[::1]:443", true));
        for wrong in
            ["", "unix:", "ftp://x:1", "http://x", ":80", "x:port", "x:70000", "::1:80", "a@b:80", "http://a/b:80"]
        {
            let failure = wrong.parse::<Endpoint>().unwrap_err();
            assert_eq!(failure.exit_code(), 2, "{wrong}");
        }
        let long = "x".repeat(100_000);
        for wrong in [long.clone(), format!("unix:/{long}"), format!("{long}:80"), format!("https://{long}:80")] {
            let failure = wrong.parse::<Endpoint>().unwrap_err();
            assert_eq!((failure.exit_code(), failure.message.len() < 200), (2, true));
        }
    }

    #[test]
    fn a_data_directory_means_its_socket() {
        let data = tempfile::tempdir().unwrap();
        let endpoint: Endpoint = data.path().to_str().unwrap().parse().unwrap();
        assert_eq!(endpoint, Endpoint::Unix(data.path().join("ghostd.sock")));
    }
}
