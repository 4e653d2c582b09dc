//! Connections of commands to the proxy (`network: proxy`): the runner accepts them inside, and their bytes come over its
//! stream. Each becomes a stream of its own, which the world's [`Outlet`] serves. None holds up the others of its runner, or
//! holds more bytes than its credit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use ghost_domain::AgentId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::frame::Order;

/// The port at which commands find the proxy, on 127.0.0.1.
pub(crate) const PORT: u16 = 3128;
/// The same as an address.
pub const ADDRESS: &str = "http://127.0.0.1:3128";
/// Bytes that a connection may send ahead of the proxy.
const CREDIT: u32 = 64 * 1024;
/// Bytes of one frame to a connection.
const CHUNK: usize = 32 * 1024;

/// Who connects to the proxy's port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// The commands of an agent.
    Agent(AgentId),
    /// The commands of agents that share a container.
    Shared,
    /// The browser of an agent.
    Browser(AgentId),
}

/// What is at the other end of the proxy's port.
pub trait Outlet: Send + Sync + 'static {
    /// Serves one connection until it ends.
    fn serve(&self, client: &Client, stream: DuplexStream) -> BoxFuture<'static, ()>;
}

/// An outlet that leads nowhere: each connection ends at once.
#[derive(Clone, Copy, Debug)]
pub struct Closed;

impl Outlet for Closed {
    fn serve(&self, _client: &Client, _stream: DuplexStream) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// What serves the connections of one runner.
#[derive(Clone)]
pub(crate) struct Exit {
    outlet: Arc<dyn Outlet>,
    client: Client,
}

impl Exit {
    pub(crate) fn new(outlet: &Arc<dyn Outlet>, client: Client) -> Self {
        Self { outlet: Arc::clone(outlet), client }
    }

    /// Serves a connection that the runner has accepted as stream `id`, until either side ends it.
    pub(crate) fn serve(&self, orders: mpsc::WeakSender<Vec<u8>>, id: u32, window: u32) -> Arc<Connection> {
        let (theirs, ours) = tokio::io::duplex(CHUNK);
        let connection = Arc::new(Connection {
            arrived: Mutex::default(),
            news: Notify::new(),
            window: Semaphore::new(usize::try_from(window).unwrap_or(CHUNK)),
            whole: usize::try_from(window).unwrap_or(CHUNK),
            taken: Notify::new(),
        });
        let served = self.outlet.serve(&self.client, theirs);
        let carried = Arc::clone(&connection);
        tokio::spawn(async move {
            let served = tokio::spawn(served);
            // An error means that the runner has ended, and every connection with it.
            let _ = carried.carry(&orders, id, ours, served).await;
            let _ = send(&orders, Order::Close, id).await;
        });
        connection
    }
}

/// A connection whose bytes come and go in frames.
#[derive(Debug)]
pub(crate) struct Connection {
    arrived: Mutex<Arrived>,
    news: Notify,
    /// Bytes that the runner takes, and as many as it takes when it holds none.
    window: Semaphore,
    whole: usize,
    taken: Notify,
}

/// What has come from the command and is not yet with the proxy.
#[derive(Debug, Default)]
struct Arrived {
    bytes: Vec<u8>,
    /// The command sends no more.
    finished: bool,
    /// The connection is over.
    closed: bool,
}

/// One side is gone.
struct Gone;

/// Sends a frame. A connection does not keep its runner: without its holder the runner ends.
async fn send(orders: &mpsc::WeakSender<Vec<u8>>, order: Order<'_>, id: u32) -> Result<(), Gone> {
    orders.upgrade().ok_or(Gone)?.send(order.encode(id)).await.map_err(|_| Gone)
}

impl Connection {
    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        // Changes under the lock are single calls.
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes bytes of the command. More than the credit is the end of the connection.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut arrived = self.arrived();
        if arrived.bytes.len() + bytes.len() > CREDIT as usize {
            arrived.closed = true;
        } else {
            arrived.bytes.extend_from_slice(bytes);
        }
        drop(arrived);
        self.news.notify_one();
    }

    /// The runner takes more.
    pub(crate) fn grant(&self, bytes: u32) {
        let room = Semaphore::MAX_PERMITS - self.window.available_permits();
        self.window.add_permits(usize::try_from(bytes).unwrap_or(room).min(room));
        self.taken.notify_one();
    }

    /// The command sends no more.
    pub(crate) fn finish(&self) {
        self.arrived().finished = true;
        self.news.notify_one();
    }

    /// The connection is over.
    pub(crate) fn close(&self) {
        self.arrived().closed = true;
        self.window.close();
        self.taken.notify_one();
        self.news.notify_one();
    }

    /// Carries bytes both ways until both sides have ended, or one is gone.
    async fn carry(
        &self,
        orders: &mpsc::WeakSender<Vec<u8>>,
        id: u32,
        stream: DuplexStream,
        served: JoinHandle<()>,
    ) -> Result<(), Gone> {
        send(orders, Order::Credit(0, CREDIT), id).await?;
        let (mut from_proxy, mut to_proxy) = tokio::io::split(stream);
        let inward = async {
            loop {
                let (bytes, finished, closed) = {
                    let mut arrived = self.arrived();
                    (std::mem::take(&mut arrived.bytes), arrived.finished, arrived.closed)
                };
                if bytes.is_empty() {
                    if closed {
                        return Err(Gone);
                    }
                    if finished {
                        // The proxy may have gone.
                        let _ = to_proxy.shutdown().await;
                        self.until_closed().await;
                        return Err(Gone);
                    }
                    self.news.notified().await;
                    continue;
                }
                to_proxy.write_all(&bytes).await.map_err(|_| Gone)?;
                send(orders, Order::Credit(0, u32::try_from(bytes.len()).unwrap_or(CREDIT)), id).await?;
            }
        };
        let outward = async {
            let mut chunk = vec![0; CHUNK];
            loop {
                let count = from_proxy.read(&mut chunk).await.map_err(|_| Gone)?;
                if count == 0 {
                    // All is on its way to the command before the end is.
                    self.until_taken().await;
                    send(orders, Order::Eof, id).await?;
                    return Ok::<(), Gone>(());
                }
                let mut rest = &chunk[..count];
                while !rest.is_empty() {
                    let first = self.window.acquire().await.map_err(|_| Gone)?;
                    first.forget();
                    let more = self.window.available_permits().min(rest.len() - 1);
                    // Nobody else takes permits.
                    let more = match u32::try_from(more).ok().and_then(|more| self.window.try_acquire_many(more).ok()) {
                        Some(permits) => {
                            permits.forget();
                            more
                        }
                        None => 0,
                    };
                    let (now, later) = rest.split_at(more + 1);
                    send(orders, Order::Data(now), id).await?;
                    rest = later;
                }
            }
        };
        let (inward, outward) = (std::pin::pin!(inward), std::pin::pin!(outward));
        match futures_util::future::select(inward, outward).await {
            futures_util::future::Either::Left((ended, _)) => ended,
            // The command may still send, as long as the proxy is there.
            futures_util::future::Either::Right((Ok(()), inward)) => {
                futures_util::future::select(inward, served).await;
                Ok(())
            }
            futures_util::future::Either::Right((Err(gone), _)) => Err(gone),
        }
    }

    async fn until_taken(&self) {
        while !self.window.is_closed() && self.window.available_permits() < self.whole {
            self.taken.notified().await;
        }
    }

    async fn until_closed(&self) {
        while !self.arrived().closed {
            self.news.notified().await;
        }
    }
}
