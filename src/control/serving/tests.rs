//! Peers that misuse connections: silent ones, too many of them, and those that use an unsupported
//! protocol.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Refusal;
use ghost_domain::testing::ManualClock;
use ghost_proto::REFUSAL_TRAILER;
use ghost_proto::v1::events_client::EventsClient;
use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{StatusRequest, SubscribeRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::testing::TestControl;

const TOKEN: &str = "a-long-enough-token";

/// A control plane that serves.
struct Server {
    socket: PathBuf,
    http: SocketAddr,
    listeners: crate::OpenListeners,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), Refusal>>,
}

async fn serve(test: &TestControl) -> Server {
    let socket = test.dir().join("g.sock");
    let bound = crate::bind(crate::ControlOptions {
        listeners: vec![crate::ListenAddress::Unix(socket.clone())],
        http: Some("127.0.0.1:0".parse().unwrap()),
        data_dir: test.dir().to_owned(),
        token: Some(TOKEN.into()),
        tls: None,
        on_shutdown: Arc::new(|_| {}),
    })
    .await
    .unwrap();
    let http = bound.endpoints().iter().find_map(|permit| permit.strip_prefix("REST http://")?.parse().ok()).unwrap();
    let (stop, stopped) = oneshot::channel();
    let listeners = bound.listeners();
    let serving = tokio::spawn(bound.serve(Arc::clone(&test.world), async move {
        // A dropped sender also means the end.
        let _ = stopped.await;
    }));
    Server { socket, http, listeners, stop, serving }
}

impl Server {
    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("unix:{}", self.socket.display())).unwrap().connect().await.unwrap()
    }

    async fn grpc(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.unwrap()
    }

    /// The head of a request for `path`, with the header lines in `more`.
    fn request_head(&self, path: &str, more: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: localhost:{}\r\n{more}\r\n", self.http.port())
    }

    async fn rest(&self, sent: &str) -> TcpStream {
        let mut io = TcpStream::connect(self.http).await.unwrap();
        io.write_all(sent.as_bytes()).await.unwrap();
        io
    }

    /// A stream of server-sent events. Its response head has been read.
    async fn events(&self) -> TcpStream {
        let mut io = self
            .rest(&self.request_head("/api/events?after=now", "Authorization: Bearer a-long-enough-token\r\n"))
            .await;
        let received = read_until(&mut io, "\r\n\r\n").await;
        assert!(received.starts_with("HTTP/1.1 200"), "{received}");
        io
    }
}

async fn read_until(io: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end) {
        let mut bytes = [0; 1_024];
        let count = io.read(&mut bytes).await.unwrap();
        assert!(count > 0, "it ended after {text}");
        text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    text
}

/// Advances the clock until `done` completes.
async fn in_time<T>(clock: &ManualClock, done: impl Future<Output = T>) -> T {
    clock.advance_until(Duration::from_millis(100), done).await
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_and_one_with_a_request_is_not() {
    let test = TestControl::new().await;
    let server = serve(&test).await;
    let request = &server.request_head("/healthz", "");
    let mut events = server.events().await;
    let mut silent = server.grpc().await;
    // The preface of HTTP/2 does not count as a request.
    let mut greeted = server.grpc().await;
    greeted.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let (mut mute, mut half) = (server.rest("").await, server.rest(&request[..20]).await);
    let mut received = Vec::new();
    for io in [&mut silent, &mut greeted] {
        in_time(&test.clock, io.read_to_end(&mut received)).await.unwrap();
    }
    for io in [&mut mute, &mut half] {
        in_time(&test.clock, io.read_to_end(&mut received)).await.unwrap();
    }
    let alive = in_time(&test.clock, read_until(&mut events, ": alive")).await;
    assert!(alive.contains("id: "), "{alive}");
}

#[tokio::test]
async fn silent_peers_do_not_delay_the_shutdown() {
    let test = TestControl::new().await;
    let server = serve(&test).await;
    let (_silent, _mute) = (server.grpc().await, server.rest("").await);
    let _half = server.rest("GET /healthz HT").await;
    // Connections are accepted in order, so the silent ones were accepted before this one.
    let mut request = server.rest(&server.request_head("/healthz", "Connection: close\r\n")).await;
    read_until(&mut request, "ok\n").await;
    let mut world = WorldClient::new(server.channel().await);
    world.status(StatusRequest::default()).await.unwrap();
    drop((world, request));
    // The clock stands still, so no timeout can end the silent connections.
    server.stop.send(()).unwrap();
    server.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn network_and_socket_have_separate_connection_limits() {
    let test = TestControl::with("limits: { connections_max: 2 }\n").await;
    let server = serve(&test).await;
    let (first, _second) = (server.events().await, server.events().await);
    let request = &server.request_head("/healthz", "");
    let mut third = server.rest(request).await;
    let third = tokio::spawn(async move { read_until(&mut third, "ok\n").await });
    // A full network limit does not affect the socket.
    let mut one = WorldClient::new(server.channel().await);
    let mut two = WorldClient::new(server.channel().await);
    for client in [&mut one, &mut two] {
        client.status(StatusRequest::default()).await.unwrap();
    }
    let channel = server.channel().await;
    let over = tokio::spawn(async move { WorldClient::new(channel).status(StatusRequest::default()).await });
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
    assert!(!third.is_finished() && !over.is_finished(), "both limits are reached");
    drop(first);
    in_time(&test.clock, third).await.unwrap();
    assert!(!over.is_finished(), "a slot of the network limit is not one of the socket");
    drop(one);
    in_time(&test.clock, over).await.unwrap().unwrap();
}

#[tokio::test]
async fn listeners_stay_open_while_they_are_held() {
    let test = TestControl::new().await;
    let server = serve(&test).await;
    let mut world = WorldClient::new(server.channel().await);
    world.status(StatusRequest::default()).await.unwrap();
    drop(world);
    server.stop.send(()).unwrap();
    server.serving.await.unwrap().unwrap();
    // No one serves any more, but clients can still connect: the daemon may still have its database
    // open.
    drop(UnixStream::connect(&server.socket).await.unwrap());
    drop(server.listeners);
    assert!(!server.socket.exists());
    assert!(UnixStream::connect(&server.socket).await.is_err());
}

/// A message with one bytes field, which no method expects.
#[derive(Clone, PartialEq, prost::Message)]
struct Odd {
    #[prost(bytes = "vec", tag = "1")]
    field: Vec<u8>,
}

#[tokio::test]
async fn requests_that_reach_no_service_are_refused_with_a_code_and_a_hint() {
    let test = TestControl::new().await;
    let server = serve(&test).await;
    let large = vec![b'x'; 5 * 1024 * 1024];
    for (path, field, grpc, code) in [
        ("/ghost.v1.Agents/Get", vec![0xff], Code::InvalidArgument, "invalid_arguments"),
        ("/ghost.v1.Agents/Get", large, Code::ResourceExhausted, "too_large"),
        ("/ghost.v1.Agents/Nothing", vec![], Code::Unimplemented, "unsupported"),
        ("/ghost.v1.Nobody/Get", vec![], Code::Unimplemented, "unsupported"),
        ("/grpc.health.v1.Health/Check", b"ghost.v1.Nobody".to_vec(), Code::NotFound, "not_found"),
    ] {
        let mut client = tonic::client::Grpc::new(server.channel().await);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<Odd, Odd>::default();
        let answer = client.unary(tonic::Request::new(Odd { field }), path.parse().unwrap(), codec).await;
        let status = answer.unwrap_err();
        let bytes = status.metadata().get_bin(REFUSAL_TRAILER).unwrap_or_else(|| panic!("{path}: {status:?}"));
        let refusal: Refusal = serde_json::from_slice(&bytes.to_bytes().unwrap()).unwrap();
        assert_eq!((status.code(), refusal.code.as_str()), (grpc, code), "{path}: {refusal}");
        assert!(refusal.hint.is_some() && !refusal.message.is_empty(), "{path}: {refusal}");
    }
}

#[tokio::test]
async fn rest_speaks_no_http_2() {
    let test = TestControl::new().await;
    let server = serve(&test).await;
    let mut io = server.rest("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut received = [0; 16];
    // Closing a connection with unread bytes may reset it.
    let count = io.read(&mut received).await.unwrap_or(0);
    assert!(count == 0 || received.starts_with(b"HTTP/1.1 4"), "{:?}", &received[..count]);
}

#[tokio::test]
async fn a_stream_outlives_its_clients_deadline_for_the_response() {
    let test = TestControl::new().await;
    let server = serve(&test).await;
    let after_seq = Some(test.world.store().last_seq());
    let mut request = tonic::Request::new(SubscribeRequest { after_seq, follow: true, ..SubscribeRequest::default() });
    request.metadata_mut().insert("grpc-timeout", "30S".parse().unwrap());
    let mut stream = EventsClient::new(server.channel().await).subscribe(request).await.unwrap().into_inner();
    for _ in 0..60 {
        test.clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
    }
    test.emit_many(1).await;
    loop {
        if stream.message().await.unwrap().unwrap().event.is_some() {
            break;
        }
    }
}
