//! A fake daemon: it records requests and gives prepared answers.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_proto::v1::agents_server::AgentsServer;
use ghost_proto::v1::approvals_server::ApprovalsServer;
use ghost_proto::v1::budgets_server::BudgetsServer;
use ghost_proto::v1::chat_server::ChatServer;
use ghost_proto::v1::events_server::{Events, EventsServer};
use ghost_proto::v1::knowledge_server::KnowledgeServer;
use ghost_proto::v1::ledger_server::LedgerServer;
use ghost_proto::v1::messages_server::MessagesServer;
use ghost_proto::v1::schedules_server::SchedulesServer;
use ghost_proto::v1::state_server::StateServer;
use ghost_proto::v1::tasks_server::TasksServer;
use ghost_proto::v1::tools_server::ToolsServer;
use ghost_proto::v1::turns_server::TurnsServer;
use ghost_proto::v1::world_server::WorldServer;
use ghost_proto::v1::{AskResponse, CallToolResponse, Event, SubscribeRequest, SubscribeResponse};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

/// One event stream: events up to `upto`, then its end.
#[derive(Clone)]
pub struct Feed {
    pub upto: i64,
    /// Whether the stream first repeats the last event that the reader already has.
    pub repeats: bool,
    pub end: End,
}

/// The end of a stream or of a call.
#[derive(Clone)]
pub enum End {
    Done,
    Status(Status),
    /// Never ends; notifies `Fake::held`.
    Hold,
}

/// Prepared answers and recorded requests.
#[derive(Default)]
pub struct Script {
    asked: Vec<(&'static str, String)>,
    tokens: Vec<Option<String>>,
    first: VecDeque<End>,
    feeds: VecDeque<Feed>,
    pub rows: u32,
    /// Names of the listed schedules.
    pub schedules: Vec<String>,
    pub call: CallToolResponse,
    pub reply: AskResponse,
}

/// A fake daemon; clones share its script.
#[derive(Clone, Default)]
pub struct Fake {
    script: Arc<Mutex<Script>>,
    /// Notified when a call or a stream reaches [`End::Hold`].
    pub held: Arc<Notify>,
}

impl Fake {
    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next calls end like this; later calls are answered.
    pub fn first(self, ends: impl IntoIterator<Item = End>) -> Self {
        self.script().first.extend(ends);
        self
    }

    /// The next event streams.
    pub fn feeds(self, feeds: impl IntoIterator<Item = Feed>) -> Self {
        self.script().feeds.extend(feeds);
        self
    }

    /// How many rows every list has.
    pub fn rows(self, rows: u32) -> Self {
        self.script().rows = rows;
        self
    }

    /// Lists have as many rows as there are names, and schedules have these names.
    pub fn schedules(self, names: &[&str]) -> Self {
        let rows = u32::try_from(names.len()).unwrap();
        self.script().schedules = names.iter().map(|name| (*name).to_owned()).collect();
        self.rows(rows)
    }

    /// The answer to tool calls.
    pub fn call(self, call: CallToolResponse) -> Self {
        self.script().call = call;
        self
    }

    /// The answer to asks.
    pub fn reply(self, reply: AskResponse) -> Self {
        self.script().reply = reply;
        self
    }

    /// Method and request of each recorded call.
    pub fn asked(&self) -> Vec<(&'static str, String)> {
        self.script().asked.clone()
    }

    /// The `authorization` header of each recorded call.
    pub fn tokens(&self) -> Vec<Option<String>> {
        self.script().tokens.clone()
    }

    /// Serves on a socket at `path`.
    pub fn serve(&self, path: &Path) -> Daemon {
        let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let fake = self.clone();
        let runtime = Runtime::new().unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            fake.router().serve_with_incoming(UnixListenerStream::new(listener)).await.unwrap();
        });
        Daemon { runtime: Some(runtime), endpoint: format!("unix:{}", path.display()), socket: Some(path.to_owned()) }
    }

    /// Serves on a TCP port of this machine.
    pub fn serve_tcp(&self) -> Daemon {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let fake = self.clone();
        let runtime = Runtime::new().unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            fake.router().serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        Daemon { runtime: Some(runtime), endpoint, socket: None }
    }

    fn router(&self) -> tonic::transport::server::Router {
        Server::builder()
            .add_service(WorldServer::new(self.clone()))
            .add_service(AgentsServer::new(self.clone()))
            .add_service(TurnsServer::new(self.clone()))
            .add_service(ToolsServer::new(self.clone()))
            .add_service(MessagesServer::new(self.clone()))
            .add_service(TasksServer::new(self.clone()))
            .add_service(ApprovalsServer::new(self.clone()))
            .add_service(BudgetsServer::new(self.clone()))
            .add_service(KnowledgeServer::new(self.clone()))
            .add_service(SchedulesServer::new(self.clone()))
            .add_service(StateServer::new(self.clone()))
            .add_service(LedgerServer::new(self.clone()))
            .add_service(ChatServer::new(self.clone()))
            .add_service(EventsServer::new(self.clone()))
    }

    pub async fn begin<R: std::fmt::Debug>(&self, method: &'static str, request: &Request<R>) -> Result<(), Status> {
        let token = |metadata: &MetadataMap| Some(metadata.get("authorization")?.to_str().ok()?.to_owned());
        let end = {
            let mut script = self.script();
            script.asked.push((method, format!("{:?}", request.get_ref())));
            script.tokens.push(token(request.metadata()));
            script.first.pop_front()
        };
        match end {
            None | Some(End::Done) => Ok(()),
            Some(End::Status(status)) => Err(status),
            Some(End::Hold) => {
                self.held.notify_one();
                std::future::pending().await
            }
        }
    }

    /// The rows of a page, and the next cursor. Without a limit the daemon chooses the size of a page.
    pub fn page(&self, limit: u32, cursor: &str) -> (std::ops::Range<u32>, String) {
        let rows = self.script().rows;
        let start: u32 = cursor.parse().unwrap_or(0);
        let end = start.saturating_add(if limit == 0 { 200 } else { limit }).min(rows);
        (start..end, if end < rows { end.to_string() } else { String::new() })
    }
}

/// A serving fake. Dropping or killing it breaks its connections.
pub struct Daemon {
    runtime: Option<Runtime>,
    pub endpoint: String,
    socket: Option<PathBuf>,
}

impl Daemon {
    /// Stops at once, as with `kill -9`, and removes the socket for the next daemon.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if let Some(socket) = self.socket.take() {
            std::fs::remove_file(socket).unwrap();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// A refusal as the daemon sends it.
pub fn refused(code: Code, refusal: &ghost_domain::Refusal) -> Status {
    let mut status = Status::new(code, refusal.message.clone());
    let trailer = BinaryMetadataValue::from_bytes(&serde_json::to_vec(refusal).unwrap());
    status.metadata_mut().insert_bin(ghost_proto::REFUSAL_TRAILER, trailer);
    status
}

/// Events after `after`, up to `upto`.
fn feed(feed: &Feed, after: i64) -> impl Iterator<Item = SubscribeResponse> + use<> {
    let first = if feed.repeats { after.max(1) } else { after + 1 };
    (first..=feed.upto).map(|seq| SubscribeResponse {
        event: Some(Event {
            seq,
            event_id: format!("event-{seq}"),
            ts_ms: seq,
            kind: "turn.started".into(),
            agent_id: Some("chora".into()),
            payload_json: format!(r#"{{"n":{seq}}}"#),
            ..Event::default()
        }),
        ephemeral: false,
        position_seq: seq,
    })
}

#[tonic::async_trait]
impl Events for Fake {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Result<SubscribeResponse, Status>> + Send>>;

    async fn subscribe(&self, request: Request<SubscribeRequest>) -> Result<Response<Self::SubscribeStream>, Status> {
        self.begin("Events.subscribe", &request).await?;
        let next = self.script().feeds.pop_front().unwrap_or(Feed { upto: 0, repeats: false, end: End::Done });
        let items = feed(&next, request.into_inner().after_seq.unwrap_or(0)).map(Ok);
        let head = tokio_stream::iter(items.collect::<Vec<_>>());
        let held = self.held.clone();
        Ok(Response::new(match next.end {
            End::Done => Box::pin(head),
            End::Status(status) => Box::pin(head.chain(tokio_stream::once(Err(status)))),
            End::Hold => {
                let hold = tokio_stream::once(()).then(move |()| {
                    held.notify_one();
                    std::future::pending()
                });
                Box::pin(head.chain(hold))
            }
        }))
    }
}
