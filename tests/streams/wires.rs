//! The three transports of event streams, each in the form of a foreign client, with a common interface.

use std::path::PathBuf;

use ghost_proto::v1::events_client::EventsClient;
use ghost_proto::v1::{SubscribeRequest, SubscribeResponse};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio_stream::StreamExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// A transport of event streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    Grpc,
    Sse,
    WebSocket,
}

pub const WAYS: [Way; 3] = [Way::Grpc, Way::Sse, Way::WebSocket];

/// The addresses of a daemon.
#[derive(Clone, Debug)]
pub struct Site {
    pub socket: PathBuf,
    /// Host and port of HTTP.
    pub http: String,
    pub token: String,
}

/// A subscription request.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub kinds: Vec<&'static str>,
    pub agent: Option<&'static str>,
    pub channel: Option<&'static str>,
    pub after: Option<i64>,
    /// Whether the receive buffers are small, so that the daemon soon has to wait.
    pub narrow: bool,
}

/// An item that a subscriber receives.
#[derive(Debug)]
pub enum Received {
    Event(Value),
    /// Disconnected for slowness. All events up to this one were sent.
    Lagged(i64),
    /// Refused by the daemon: the code of the transport, and the reason.
    Refused(String, Value),
    /// The connection was lost, or ended with the daemon.
    Lost,
}

impl Site {
    pub fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("unix:{}", self.socket.display())).unwrap().connect_lazy()
    }

    async fn tcp(&self, narrow: bool) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if narrow {
            socket.set_recv_buffer_size(4_096)?;
        }
        socket.connect(self.http.parse().unwrap()).await
    }

    /// Sends one GET with only these headers. Returns status and body.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        self.ask("GET", path, headers).await
    }

    /// The head of a streaming answer.
    pub async fn head(&self, path: &str, headers: &[(&str, &str)]) -> String {
        let mut stream = BufReader::new(self.tcp(false).await.unwrap());
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        stream.write_all(format!("GET {path} HTTP/1.1\r\n{headers}\r\n").as_bytes()).await.unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await.unwrap() > 0 {}
        head
    }

    /// Sends one request with only these headers. Returns status and body.
    pub async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let mut stream = self.tcp(false).await.unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        stream.write_all(format!("{method} {path} HTTP/1.0\r\n{headers}\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer}"));
        (status, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned())
    }

    /// Sends one authorized GET and parses the body as JSON.
    pub async fn json(&self, path: &str) -> (u16, Value) {
        let bearer = format!("Bearer {}", self.token);
        let (status, body) = self.get(path, &[("Host", &self.http), ("Authorization", &bearer)]).await;
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }
}

impl Ask {
    fn query(&self) -> String {
        let mut query: Vec<String> = self.kinds.iter().map(|kind| format!("kind={kind}")).collect();
        query.extend(self.agent.map(|agent| format!("agent={agent}")));
        query.extend(self.channel.map(|channel| format!("channel={channel}")));
        query.extend(self.after.map(|after| format!("after={after}")));
        query.join("&")
    }
}

/// An open stream.
pub enum Reader {
    Grpc(Box<Streaming<SubscribeResponse>>),
    Sse(BufReader<TcpStream>),
    WebSocket(Box<WebSocketStream<TcpStream>>),
    /// The stream could not be opened.
    Ended(Option<Received>),
}

/// The refusal in a status's trailer, in the form of HTTP.
fn refused(status: &Status) -> Received {
    let Some(trailer) = status.metadata().get_bin(ghost_proto::REFUSAL_TRAILER) else { return Received::Lost };
    let mut refusal: Value = serde_json::from_slice(&trailer.to_bytes().unwrap()).unwrap();
    refusal["message"] = refusal["error"].take();
    Received::Refused(format!("{:?}", status.code()), refusal)
}

impl Reader {
    pub async fn open(site: &Site, way: Way, ask: &Ask) -> Self {
        let opened = match way {
            Way::Grpc => Ok(Self::grpc(site, ask).await),
            Way::Sse => Self::sse(site, ask).await,
            Way::WebSocket => Self::web_socket(site, ask).await,
        };
        opened.unwrap_or(Self::Ended(Some(Received::Lost)))
    }

    async fn grpc(site: &Site, ask: &Ask) -> Self {
        let request = SubscribeRequest {
            kinds: ask.kinds.iter().map(|kind| (*kind).to_owned()).collect(),
            agent_id: ask.agent.map(str::to_owned),
            channel: ask.channel.map(str::to_owned),
            after_seq: ask.after,
            follow: true,
            ephemeral: false,
        };
        match EventsClient::new(site.channel()).subscribe(request).await {
            Ok(stream) => Self::Grpc(Box::new(stream.into_inner())),
            Err(status) => Self::Ended(Some(refused(&status))),
        }
    }

    async fn sse(site: &Site, ask: &Ask) -> std::io::Result<Self> {
        let mut stream = BufReader::new(site.tcp(ask.narrow).await?);
        let (host, token, query) = (&site.http, &site.token, ask.query());
        // With HTTP/1.0 the body is not chunked; it ends with the connection.
        let request =
            format!("GET /api/events?{query} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut first = String::new();
        stream.read_line(&mut first).await?;
        let mut line = String::from("?");
        while !line.trim().is_empty() {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                break;
            }
        }
        if first.contains(" 200 ") {
            return Ok(Self::Sse(stream));
        }
        let mut body = String::new();
        stream.read_to_string(&mut body).await?;
        let Ok(body) = serde_json::from_str::<Value>(&body) else { return Ok(Self::Ended(Some(Received::Lost))) };
        let status = first.split(' ').nth(1).unwrap_or_default().to_owned();
        Ok(Self::Ended(Some(Received::Refused(status, body["error"].clone()))))
    }

    async fn web_socket(site: &Site, ask: &Ask) -> std::io::Result<Self> {
        let address = format!("ws://{}/api/events/ws?{}", site.http, ask.query());
        let mut request = address.into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {}", site.token).parse().unwrap());
        let stream = site.tcp(ask.narrow).await?;
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(Self::WebSocket(Box::new(socket))),
            Err(_) => Ok(Self::Ended(Some(Received::Lost))),
        }
    }

    /// The next event, or the end of the stream.
    pub async fn next(&mut self) -> Received {
        match self {
            Self::Grpc(stream) => loop {
                match stream.message().await {
                    Ok(Some(message)) => match message.event {
                        Some(event) => return Received::Event(ghost_proto::json::event(&event, message.ephemeral)),
                        None => continue,
                    },
                    Ok(None) => return Received::Lost,
                    Err(status) => {
                        let last = status.metadata().get(ghost_proto::LAST_SEQ_TRAILER);
                        let last = last.map(|last| last.to_str().unwrap().parse().unwrap());
                        return match (status.code(), last) {
                            (tonic::Code::Aborted, Some(last)) => Received::Lagged(last),
                            (tonic::Code::Unavailable, _) => Received::Lost,
                            _ => refused(&status),
                        };
                    }
                }
            },
            Self::Sse(stream) => sse_event(stream).await,
            Self::WebSocket(socket) => loop {
                match socket.next().await {
                    Some(Ok(Message::Text(text))) => {
                        let object: Value = serde_json::from_str(&text).unwrap();
                        let Some(error) = object.get("error") else { return Received::Event(object) };
                        let Some(Ok(Message::Close(Some(close)))) = socket.next().await else { return Received::Lost };
                        assert!(close.reason.starts_with(error["code"].as_str().unwrap()), "{close:?}");
                        return Received::Refused(u16::from(close.code).to_string(), error.clone());
                    }
                    Some(Ok(Message::Close(Some(close)))) => return closed(&close),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    _ => return Received::Lost,
                }
            },
            Self::Ended(heard) => heard.take().unwrap_or(Received::Lost),
        }
    }
}

fn closed(close: &CloseFrame) -> Received {
    match close.reason.strip_prefix("lagged ") {
        Some(last) => {
            assert_eq!(u16::from(close.code), 1013);
            Received::Lagged(last.parse().unwrap())
        }
        None => Received::Lost,
    }
}

/// The next block with data in a stream of server-sent events.
async fn sse_event(stream: &mut BufReader<TcpStream>) -> Received {
    let (mut id, mut name, mut data) = (String::new(), String::new(), String::new());
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line).await {
            Ok(0) | Err(_) => return Received::Lost,
            Ok(_) => {}
        }
        match line.trim_end_matches(['\r', '\n']).split_once(':') {
            None if data.is_empty() => {}
            None => {
                let object: Value = serde_json::from_str(&data).unwrap();
                if name == "lagged" {
                    assert_eq!(object["last_seq"].to_string(), id);
                    return Received::Lagged(id.parse().unwrap());
                }
                if name == "stopping" {
                    return Received::Lost;
                }
                assert_eq!((object["seq"].to_string(), object["kind"].as_str()), (id, Some(name.as_str())));
                return Received::Event(object);
            }
            Some(("id", value)) => value.trim_start().clone_into(&mut id),
            Some(("event", value)) => value.trim_start().clone_into(&mut name),
            Some(("data", value)) => data.push_str(value.trim_start()),
            Some(_) => {}
        }
    }
}
