//! Where a daemon keeps the data of a world and its workspace, and where it listens, as far as the world file says.
//!
//! A relative path must never be in a plan: it would depend on where the daemon was started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Maximum length of a Unix socket's path in bytes (Linux).
pub const SOCKET_PATH_MAX: usize = 107;

/// The places that the world file names. Flags win over them, and they win over the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacesPlan {
    /// The data directory, absolute.
    pub data_dir: Option<PathBuf>,
    /// The workspace, absolute.
    pub workspace_dir: Option<PathBuf>,
    /// The addresses of gRPC; empty for the default.
    pub grpc: Vec<ListenAddress>,
    /// The address of HTTP; `None` for no HTTP.
    pub http: Option<SocketAddr>,
    /// The database.
    pub storage: StoragePlan,
}

/// The database of a world's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoragePlan {
    /// SQLite, in the data directory.
    #[default]
    Sqlite,
    /// PostgreSQL.
    Postgres {
        /// The environment variable with the URL. The URL itself may hold a password, so it is not in the plan.
        url_env: String,
    },
}

impl StoragePlan {
    /// The variable with the URL of PostgreSQL.
    #[must_use]
    pub fn url_env(&self) -> Option<&str> {
        match self {
            Self::Sqlite => None,
            Self::Postgres { url_env } => Some(url_env),
        }
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A Unix socket, for the daemon's own user.
    Unix(PathBuf),
    /// A TCP port, for holders of the token or of a client certificate.
    Tcp(SocketAddr),
}

impl ListenAddress {
    /// The address, with the path of a socket relative to `dir`.
    ///
    /// # Errors
    /// The remedy, if that path is too long.
    pub(crate) fn within(self, dir: &Path) -> Result<Self, String> {
        match self {
            Self::Unix(path) => {
                let path = dir.join(path);
                if path.as_os_str().len() > SOCKET_PATH_MAX { Err(too_long()) } else { Ok(Self::Unix(path)) }
            }
            tcp @ Self::Tcp(_) => Ok(tcp),
        }
    }
}

impl FromStr for ListenAddress {
    /// The remedy.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err("unix: needs a path".into()),
                1..=SOCKET_PATH_MAX => Ok(Self::Unix(path.into())),
                _ => Err(too_long()),
            };
        }
        text.parse::<SocketAddr>()
            .map(Self::Tcp)
            .map_err(|_| "give unix:PATH or HOST:PORT with a numeric host, such as 127.0.0.1:7070".to_owned())
    }
}

fn too_long() -> String {
    format!("a socket's path has {SOCKET_PATH_MAX} bytes at most")
}

/// Parses the address of the HTTP listener.
///
/// # Errors
/// The remedy.
pub fn http_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "give HOST:PORT with a numeric host, such as 127.0.0.1:8080".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_socket_or_a_numeric_host_with_a_port() {
        let read = |text: &str| text.parse::<ListenAddress>().ok();
        assert_eq!(read("unix:a/b.sock"), Some(ListenAddress::Unix("a/b.sock".into())));
        assert_eq!(read("[::1]:7070"), Some(ListenAddress::Tcp("[::1]:7070".parse().unwrap())));
        for text in ["", "unix:", "7070", "localhost:7070", "http://127.0.0.1:1", &format!("unix:{}", "x".repeat(108))]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(http_address("127.0.0.1:0").is_ok());
        assert!(http_address("unix:x").is_err());
        let long = ListenAddress::Unix("x".repeat(100).into());
        assert!(long.clone().within(Path::new("/w")).is_ok());
        assert!(long.within(Path::new("/a/longer/path")).is_err());
    }
}
