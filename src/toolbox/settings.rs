//! What the server was started with, checked. Without TLS it does not listen where another machine could read the token.

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_domain::bearer::check_token;
use ghost_domain::{Code, Refusal};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::users::Range;

/// Bytes of a file that are read.
const FILE_MAX: u64 = 1 << 20;

/// The settings.
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) dir: PathBuf,
    pub(crate) token: Arc<str>,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    pub(crate) agent_uids: Range,
}

fn read(what: &str, path: &Path) -> Result<Vec<u8>, Refusal> {
    let failed = |error: &dyn std::fmt::Display| {
        Refusal::new(Code::Unavailable, format!("the {what} {} cannot be read: {error}", path.display()))
            .hint("name a file that this user may read")
    };
    // A pipe or another special file must not block the start.
    let file = ghost_config::regular(path).map_err(|error| failed(&error))?;
    let file = file.ok_or_else(|| failed(&"it is not a regular file"))?;
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    Ok(bytes)
}

fn token(path: &Path) -> Result<Arc<str>, Refusal> {
    let bytes = read("token", path)?;
    let text = String::from_utf8_lossy(&bytes);
    check_token(text.trim()).map_err(|why| {
        Refusal::new(Code::InvalidArguments, format!("the token {} {why}", path.display()))
            .hint("make one with `openssl rand -hex 32`, or take 32 random bytes from elsewhere")
    })?;
    let mode = std::fs::metadata(path).map_or(0, |found| found.mode());
    if mode & 0o077 != 0 {
        return Err(Refusal::new(Code::AccessDenied, format!("others may read the token {}", path.display()))
            .hint("chmod 600 it, and use another token if others were there"));
    }
    Ok(text.trim().into())
}

fn tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Refusal> {
    let wrong = |error: &dyn std::fmt::Display| {
        Refusal::new(Code::InvalidArguments, format!("the TLS files cannot be used: {error}"))
            .hint("--tls-cert and --tls-key name PEM files that belong together")
    };
    let (chain, key) = (read("certificate", certificate)?, read("key", key)?);
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| wrong(&error))?;
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    config.map(Arc::new).map_err(|error| wrong(&error))
}

impl Settings {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be read or used, or an address that others reach has no TLS.
    pub(crate) fn read(
        listen: SocketAddr,
        dir: &Path,
        token_file: &Path,
        tls_files: Option<(PathBuf, PathBuf)>,
        agent_uids: Range,
    ) -> Result<Self, Refusal> {
        if tls_files.is_none() && !listen.ip().is_loopback() {
            let what = format!("{listen} can be reached by other machines, and the token would travel in the open");
            return Err(Refusal::new(Code::InvalidArguments, what)
                .hint("give --tls-cert and --tls-key, or listen on 127.0.0.1 or [::1]"));
        }
        let token = token(token_file)?;
        let tls = tls_files.map(|(certificate, key)| tls(&certificate, &key)).transpose()?;
        Ok(Self { listen, dir: dir.to_owned(), token, tls, agent_uids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    // covers: TBX-07
    #[test]
    fn an_open_address_needs_tls_and_the_token_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let with = |listen: &str, text: &str, mode: u32| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            Settings::read(listen.parse().unwrap(), dir.path(), &file, None, Range::default())
                .map(|_| ())
                .map_err(|refusal| refusal.code)
        };
        let good = "0123456789abcdef\n";
        assert_eq!(with("127.0.0.1:9090", good, 0o600), Ok(()));
        assert_eq!(with("[::1]:9090", good, 0o400), Ok(()));
        for open in ["0.0.0.0:9090", "10.0.0.1:9090", "[::]:9090"] {
            assert_eq!(with(open, good, 0o600), Err(Code::InvalidArguments), "{open}");
        }
        assert_eq!(with("127.0.0.1:9090", "short", 0o600), Err(Code::InvalidArguments));
        assert_eq!(with("127.0.0.1:9090", good, 0o640), Err(Code::AccessDenied));
        std::fs::remove_file(&file).unwrap();
        let missing = Settings::read("127.0.0.1:9090".parse().unwrap(), dir.path(), &file, None, Range::default());
        assert_eq!(missing.map(|_| ()).unwrap_err().code, Code::Unavailable);
    }
}
