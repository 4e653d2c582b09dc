//! Who may connect. A caller is the daemon's own user over the Unix socket, the holder of the token over TCP, or the holder
//! of a client certificate over mutual TLS; HTTP has the server's TLS alone. A key never gets into a message or the log.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_domain::bearer::{bearer_matches, check_token};
use ghost_domain::{Code, Refusal};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;
use tonic::service::Interceptor;
use tonic::transport::server::TlsConnectInfo;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Request, Status};

use crate::dispatch::Principal;
use crate::refusal::{status, unauthenticated};
use crate::serving::connections::Peer;
use crate::serving::grpc;

/// Where the token is and how to send it.
const TOKEN_HINT: &str = "the token is the daemon's GHOST_TOKEN, or else the text of <data>/token; pass it to ghostctl with --token or \
                          GHOST_TOKEN, or send `authorization: Bearer <token>`";

/// How one listener authenticates its callers.
#[derive(Clone)]
pub(crate) enum Gate {
    /// Peer credentials: the daemon's user, or root.
    Peer {
        /// User id of the daemon.
        uid: u32,
    },
    /// A bearer token.
    Token(Arc<str>),
    /// A client certificate that the TLS handshake has verified.
    Certificate,
}

impl Interceptor for Gate {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let principal = match self {
            Self::Peer { uid } => match request.extensions().get::<Peer>().and_then(Peer::credentials) {
                Some(peer) if peer.uid() == *uid || peer.uid() == 0 => format!("uid-{}", peer.uid()),
                Some(peer) => {
                    let refusal = Refusal::new(
                        Code::AccessDenied,
                        format!("user {} may not use the socket of user {uid}", peer.uid()),
                    )
                    .hint("use a TCP listener with a token");
                    return Err(status(&refusal));
                }
                None => {
                    return Err(unauthenticated(
                        "the socket gives no peer credentials",
                        "use a TCP listener with a token",
                    ));
                }
            },
            Self::Token(token) => {
                let given = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
                match given {
                    Some(given) if bearer_matches(given, token) => {}
                    Some(_) => return Err(unauthenticated("the token is wrong", TOKEN_HINT)),
                    None => return Err(unauthenticated("a token is needed", TOKEN_HINT)),
                }
                "token".to_owned()
            }
            Self::Certificate => {
                let certificates =
                    request.extensions().get::<TlsConnectInfo<Peer>>().and_then(TlsConnectInfo::peer_certs);
                let Some(first) = certificates.as_ref().and_then(|list| list.first()) else {
                    return Err(unauthenticated(
                        "a client certificate is needed",
                        "present one that the daemon's GHOST_TLS_CA has signed; for ghostctl set GHOST_TLS_CERT and GHOST_TLS_KEY",
                    ));
                };
                let digest = Sha256::digest(first.as_ref());
                format!("certificate-{}", hex::encode(&digest[..8]))
            }
        };
        request.extensions_mut().insert(Principal(principal));
        Ok(request)
    }
}

/// 32 random bytes from the system, as 64 hexadecimal digits.
pub(crate) fn random_hex() -> std::io::Result<String> {
    let mut random = [0u8; 32];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random))?;
    Ok(hex::encode(random))
}

/// Name of the token's file in the data directory.
pub(crate) const TOKEN_FILE: &str = "token";

/// Largest number of bytes read from the token's file: more than any token has.
const TOKEN_FILE_MAX: u64 = 64 * 1024;

/// The token of a data directory. If there is no file, a random token is written, readable only by its
/// owner.
pub(crate) fn token(data_dir: &Path) -> Result<Arc<str>, Refusal> {
    let path = data_dir.join(TOKEN_FILE);
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Refusal::new(Code::Unavailable, format!("the token {} {what}: {error}", path.display()))
            .hint("set GHOST_TOKEN, or make the data directory writable")
    };
    // A pipe or another special file must not block the start.
    let read = || match ghost_config::regular(&path)? {
        Some(file) => {
            let mut text = String::new();
            file.take(TOKEN_FILE_MAX).read_to_string(&mut text).map(|_| text)
        }
        None => Err(std::io::Error::other("it is not a regular file")),
    };
    match read() {
        Ok(text) => {
            check_token(text.trim()).map_err(|why| {
                Refusal::new(Code::InvalidArguments, format!("the token {} {why}", path.display()))
                    .hint("remove it to get a new one")
            })?;
            let mode = std::fs::metadata(&path).map_err(|error| failed("cannot be examined", &error))?.mode();
            if mode & 0o077 != 0 {
                return Err(Refusal::new(Code::AccessDenied, format!("others may read the token {}", path.display()))
                    .hint("chmod 600 it, or remove it to get a new one"));
            }
            return Ok(text.trim().into());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("cannot be read", &error)),
    }
    let text = random_hex().map_err(|error| failed("cannot be made", &error))?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(|error| failed("cannot be written", &error))?;
    file.write_all(text.as_bytes()).map_err(|error| failed("cannot be written", &error))?;
    Ok(text.into())
}

/// What to do about files that cannot be used.
const FILES: &str = "GHOST_TLS_CERT, GHOST_TLS_KEY and GHOST_TLS_CA name PEM files that belong together";

/// PEM files for TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate chain.
    pub certificate: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
    /// The CA that signs the certificates of clients.
    pub client_ca: PathBuf,
}

/// The content of these files.
pub(crate) struct Pems {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Vec<u8>,
}

impl Pems {
    /// Reads the files, each once: one may be a named pipe, which also is why a blocking thread reads them.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) async fn read(files: TlsFiles) -> Result<Self, Refusal> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| {
                Refusal::new(Code::Unavailable, format!("cannot read {}: {error}", path.display())).hint(FILES)
            })
        };
        let reading = tokio::task::spawn_blocking(move || {
            Ok(Self {
                certificate: read(&files.certificate)?,
                key: read(&files.key)?,
                client_ca: read(&files.client_ca)?,
            })
        });
        reading
            .await
            .map_err(|error| Refusal::new(Code::Internal, format!("reading the files of TLS panicked: {error}")))?
    }

    /// A gRPC server with mutual TLS.
    ///
    /// # Errors
    /// If the files do not belong together.
    pub(crate) fn grpc(&self) -> Result<Server, Refusal> {
        let identity = Identity::from_pem(&self.certificate, &self.key);
        let tls = ServerTlsConfig::new().identity(identity).client_ca_root(Certificate::from_pem(&self.client_ca));
        grpc::server(Some(tls)).map_err(|error| {
            // tonic's own text is only "transport error".
            unusable(&std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
        })
    }

    /// TLS for HTTP, without certificates of clients.
    ///
    /// # Errors
    /// If the files do not belong together.
    pub(crate) fn http(&self) -> Result<TlsAcceptor, Refusal> {
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| unusable(&error.to_string()))?;
        // The error of a key must not show any of it.
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| unusable("the key is no PEM file of a key"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| unusable(&error.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn unusable(why: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("the TLS files cannot be used: {why}")).hint(FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_line_of_printable_ascii_of_16_to_4096_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let (longest, longer) = ("x".repeat(4_096), "x".repeat(4_097));
        for (text, valid) in [
            ("a b c d e f g h.", true),
            (longest.as_str(), true),
            (longer.as_str(), false),
            ("fifteen letters", false),
            ("sixteen letters\t", false),
            ("sixteen lett\ners", false),
            ("sechzehn Zeichen, ü", false),
        ] {
            assert_eq!(check_token(text).is_ok(), valid, "{text}");
        }
        let file = dir.path().join(TOKEN_FILE);
        std::fs::write(&file, &longer).unwrap();
        assert_eq!(token(dir.path()).unwrap_err().code, Code::InvalidArguments);
    }

    #[test]
    fn a_token_is_made_once_and_others_cannot_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = token(dir.path()).unwrap();
        assert_eq!(token(dir.path()).unwrap(), first);
        assert_eq!(std::fs::metadata(dir.path().join("token")).unwrap().mode() & 0o777, 0o600);
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(dir.path().join("token"), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(token(dir.path()).unwrap_err().code, Code::AccessDenied);
    }
}
