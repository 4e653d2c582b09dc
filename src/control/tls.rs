//! TLS of the network listeners: mutual for gRPC, where a certificate replaces the token; the server's alone for HTTP, whose
//! callers have the token.
//!
//! A key must never get into a message or the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_domain::{Code, Refusal};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use crate::serving::grpc;

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
