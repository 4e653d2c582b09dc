//! Mutual TLS: a real handshake over a real port, with certificates that the test issues.

use std::path::PathBuf;
use std::sync::Arc;

use ghost_control::{Bound, ControlOptions, ListenAddress, TlsFiles, bind};
use ghost_proto::v1;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::world_client::WorldClient;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use crate::test_daemon::{boot_world, new_world, while_time_passes};
use ghost_world::testing::TestWorld;

/// A CA that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
struct Pair {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, usage: ExtendedKeyUsagePurpose) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        Pair { certificate: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }

    fn server(&self) -> Pair {
        self.issue(ExtendedKeyUsagePurpose::ServerAuth)
    }

    fn client(&self) -> Pair {
        self.issue(ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn pem(&self) -> String {
        self.0.pem()
    }
}

/// Writes the TLS files of a server and binds a port with them.
async fn bound(test_world: &TestWorld, server: &Pair, client_ca: &str) -> Result<Bound, ghost_domain::Refusal> {
    bound_with(test_world, server, client_ca, None).await
}

/// The same, with HTTP at this address.
async fn bound_with(
    test_world: &TestWorld,
    server: &Pair,
    client_ca: &str,
    http: Option<&str>,
) -> Result<Bound, ghost_domain::Refusal> {
    let file = |name: &str, text: &str| -> PathBuf {
        let path = test_world.files.path(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    bind(ControlOptions {
        listeners: vec![ListenAddress::Tcp("127.0.0.1:0".parse().unwrap())],
        http: http.map(|address| address.parse().unwrap()),
        data_dir: test_world.files.path("data"),
        token: None,
        tls: Some(TlsFiles {
            certificate: file("server.pem", &server.certificate),
            key: file("server.key", &server.key),
            client_ca: file("ca.pem", client_ca),
        }),
        on_shutdown: Arc::new(|_| {}),
    })
    .await
}

/// A channel to `address` that trusts `ca` and presents `identity`.
fn channel(address: &str, ca: &Authority, identity: Option<&Pair>) -> Channel {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca.pem())).domain_name("localhost");
    if let Some(pair) = identity {
        tls = tls.identity(Identity::from_pem(&pair.certificate, &pair.key));
    }
    Endpoint::from_shared(address.to_owned()).unwrap().tls_config(tls).unwrap().connect_lazy()
}

async fn status(channel: Channel) -> Result<v1::WorldStatus, Status> {
    WorldClient::new(channel).status(v1::StatusRequest {}).await.map(tonic::Response::into_inner)
}

/// The text of an error, with its causes.
fn error_text(status: &Status) -> String {
    let causes = std::iter::successors(std::error::Error::source(status), |&cause| cause.source());
    causes.fold(status.to_string(), |text, cause| format!("{text}; {cause}"))
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_ca_are_accepted() {
    let test_world = new_world();
    let world = boot_world(&test_world).await;
    // `theirs` is another CA; `forged` has the name of ours.
    let (ours, theirs, forged) = (Authority::new("ours"), Authority::new("theirs"), Authority::new("ours"));
    let bound = bound(&test_world, &ours.server(), &ours.pem()).await.unwrap();
    let address = bound.endpoints()[0].clone();
    assert!(address.starts_with("https://127.0.0.1:"), "{address}");
    assert_eq!(bound.token(), None, "a certificate replaces the token");
    let (_stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        bound
            .serve(world, async move {
                // The end of the test stops the server.
                let _ = stopped.await;
            })
            .await
            .unwrap();
    });

    let good = ours.client();
    let inside = channel(&address, &ours, Some(&good));
    assert_eq!(status(inside.clone()).await.unwrap().name, "Test");
    // The principal comes from the certificate.
    let task =
        v1::CreateTaskRequest { request_id: "1".into(), title: "t".into(), owner: "ada".into(), ..Default::default() };
    let mut tasks = ghost_proto::v1::tasks_client::TasksClient::new(inside.clone());
    let creator = tasks.create(task).await.unwrap().into_inner().creator;
    assert!(creator.starts_with("operator:certificate-"), "{creator}");
    let ask = v1::AskRequest { request_id: "2".into(), agent_id: "ada".into(), body: "hi".into(), timeout_ms: None };
    assert_eq!(MessagesClient::new(inside).ask(ask).await.unwrap().into_inner().reply.as_deref(), Some("heard"));

    let nobody = status(channel(&address, &ours, None)).await.unwrap_err();
    let stranger = status(channel(&address, &ours, Some(&theirs.client()))).await.unwrap_err();
    let forger = status(channel(&address, &ours, Some(&forged.client()))).await.unwrap_err();
    // A server's certificate is not valid for a client.
    let server = status(channel(&address, &ours, Some(&ours.server()))).await.unwrap_err();
    for (who, refused) in [("nobody", &nobody), ("stranger", &stranger), ("forger", &forger), ("server", &server)] {
        // The handshake itself fails, before any refusal of ours.
        assert!(std::error::Error::source(refused).is_some(), "{who}: {refused:?}");
        assert_ne!(refused.code(), Code::Unauthenticated, "{who}: {refused:?}");
    }
    assert!(error_text(&nobody).to_lowercase().contains("certificate"), "{}", error_text(&nobody));
    // A client that trusts another CA does not talk to this server either, and plain text does not
    // connect.
    let distrust = status(channel(&address, &theirs, Some(&good))).await.unwrap_err();
    assert!(error_text(&distrust).contains("certificate"), "{}", error_text(&distrust));
    let plain = Endpoint::from_shared(address.replace("https", "http")).unwrap().connect_lazy();
    assert!(status(plain).await.is_err());
    // None of this keeps a valid client out.
    assert!(status(channel(&address, &ours, Some(&good))).await.is_ok());
    // A peer that begins no handshake is disconnected.
    let mut silent = TcpStream::connect(address.trim_start_matches("https://")).await.unwrap();
    let received = while_time_passes(&test_world.clock, silent.read(&mut [0])).await;
    assert_eq!(received.unwrap(), 0);
}

#[tokio::test]
async fn http_speaks_tls_with_the_same_keys_and_asks_for_the_token() {
    let test_world = new_world();
    let world = boot_world(&test_world).await;
    let ours = Authority::new("ours");
    // `ghostd` makes the directory before it binds; the token goes there.
    std::fs::create_dir_all(test_world.files.path("data")).unwrap();
    let bound = bound_with(&test_world, &ours.server(), &ours.pem(), Some("127.0.0.1:0")).await.unwrap();
    let token = bound.token().unwrap().to_owned();
    let address = bound.endpoints().iter().find_map(|one| one.strip_prefix("REST https://")).unwrap().to_owned();
    let (_stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        // The end of the test stops the server.
        bound.serve(world, async move { drop(stopped.await) }).await.unwrap();
    });
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ours.pem().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let request = async |verb_and_path: &str, more: &str| {
        let io = TcpStream::connect(&address).await.unwrap();
        let mut io = connector.connect("localhost".try_into().unwrap(), io).await.unwrap();
        let request = format!("{verb_and_path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{more}\r\n");
        io.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A server may close without a goodbye.
        let _ = io.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    let ask = async |more: &str| request("GET /api/agents", more).await;
    assert!(ask("").await.starts_with("HTTP/1.1 401"));
    let answer = ask(&format!("Authorization: Bearer {token}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"ada\""), "{answer}");
    // A browser sends the cookie over TLS only.
    let begun = request("POST /api/session", &format!("Authorization: Bearer {token}\r\nContent-Length: 0\r\n")).await;
    assert!(begun.starts_with("HTTP/1.1 200") && begun.contains("; Secure"), "{begun}");
    // Plain text gets no answer of HTTP, and disturbs nobody.
    let mut plain = TcpStream::connect(&address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
    assert!(ask("").await.starts_with("HTTP/1.1 401"));
}

#[tokio::test]
async fn invalid_tls_files_are_refused_before_anything_serves() {
    let test_world = new_world();
    let ours = Authority::new("ours");
    let (server, other) = (ours.server(), ours.server());
    let mixed = Pair { certificate: server.certificate.clone(), key: other.key };
    let garbage = Pair { certificate: "nothing".into(), key: server.key.clone() };
    for (what, pair, ca) in [
        ("garbage", &garbage, ours.pem()),
        ("another's key", &mixed, ours.pem()),
        ("no authority", &server, "no".into()),
    ] {
        let refusal = bound(&test_world, pair, &ca).await.err().unwrap_or_else(|| panic!("{what} was taken"));
        assert!(refusal.hint.as_deref().is_some_and(|hint| hint.contains("GHOST_TLS_CERT")), "{what}: {refusal}");
    }
}
