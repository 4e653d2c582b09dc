//! The event stream to 50 subscribers: a world behind the control plane. The floor is a bare tonic stream from a
//! tokio broadcast with the same messages. Each publishes a round on request, and the time runs until the last
//! message reaches the last subscriber. Then the same with one more subscriber that never reads.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ghost_control::{ControlOptions, ListenAddress};
use ghost_domain::Refusal;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_proto::v1::events_client::EventsClient;
use ghost_proto::v1::events_server::{Events, EventsServer};
use ghost_proto::v1::{Event, SubscribeRequest, SubscribeResponse};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::broadcast;
use tokio_stream::wrappers::{BroadcastStream, UnixListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use crate::child::Child;
use crate::fixture;
use crate::measure::{Outcome, median, now, pause, runtime};
use crate::table::{Line, Sense};

const SUBSCRIBERS: usize = 50;
/// Number of connections. A single one would measure the client.
const CONNECTIONS: usize = 10;
/// Number of events in one round.
const ROUND: usize = 4_000;
/// Number of events in one commit. A busy world commits many together.
const TOGETHER: usize = 250;
const ROUNDS: usize = 9;
/// Maximum number of tries to connect to a starting server, 10 ms apart.
const LOOKS: usize = 1_000;
/// The kind of the measured events. A world also has other events.
const KIND: EventKind = EventKind::MessageDelivered;

/// Measures the rows of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let dir = tempfile::tempdir()?;
    let (ours, bare) = (Site::at(dir.path(), "ours"), Site::at(dir.path(), "bare"));
    let world = dir.path().join("world");
    fixture::write_world(&world, 1, "http://127.0.0.1:1")?;
    roomy(&world)?;
    let _ours = Child::part(
        "event-world",
        &[&world.display().to_string(), &dir.path().join("data").display().to_string(), &ours.socket(), &ours.bell()],
    )?;
    let _bare = Child::part("event-broadcast", &[&bare.socket(), &bare.bell()])?;
    runtime()?.block_on(async {
        let (ours_channels, bare_channels) = (ours.connect().await?, bare.connect().await?);
        let mut ours_readers = Readers::open(&ours_channels).await?;
        let mut bare_readers = Readers::open(&bare_channels).await?;
        let (mut alone, mut floor, mut beside) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (rate, bare) = (ours_readers.round(&ours).await?, bare_readers.round(&bare).await?);
            // This subscriber never reads. The first round fills all buffers on its way; the second
            // round is measured.
            let silent = subscribe(ours.connect().await?.remove(0), Some(ours_readers.position)).await?;
            ours_readers.round(&ours).await?;
            let behind = ours_readers.round(&ours).await?;
            drop(silent);
            // The first round warms up everything.
            if round > 0 {
                alone.push(rate);
                floor.push(bare);
                beside.push(behind);
            }
        }
        let (alone, floor, beside) = (median(alone), median(floor), median(beside));
        Ok(vec![
            Line {
                what: "events to 50 gRPC subscribers, bare broadcast",
                floor: format!("{floor:.0}/s"),
                ours: format!("{alone:.0}/s"),
                ratio: alone / floor,
                bar: 0.5,
                aim: 0.8,
                sense: Sense::AtLeast,
            },
            Line {
                what: "the same beside one that never reads, without it",
                floor: format!("{alone:.0}/s"),
                ours: format!("{beside:.0}/s"),
                ratio: beside / alone,
                bar: 0.9,
                aim: 0.97,
                sense: Sense::AtLeast,
            },
        ])
    })
}

/// Allows subscribers of a world to fall behind by a whole round, so that none is disconnected.
fn roomy(world: &Path) -> Outcome<()> {
    let file = world.join("world-config.yaml");
    let text = std::fs::read_to_string(&file)?;
    let text = text.replacen("limits: { ", "limits: { subscriber_buffer: 1048576, ", 1);
    if !text.contains("subscriber_buffer") {
        return Err("the world of the bench has no limits, or they are not where they were".into());
    }
    std::fs::write(file, text)?;
    Ok(())
}

/// The sockets of a publisher: one for subscribers, one for the requests to publish.
struct Site {
    socket: PathBuf,
    bell: PathBuf,
}

impl Site {
    fn at(dir: &Path, name: &str) -> Self {
        Self { socket: dir.join(format!("{name}.sock")), bell: dir.join(format!("{name}.bell")) }
    }

    fn socket(&self) -> String {
        self.socket.display().to_string()
    }

    fn bell(&self) -> String {
        self.bell.display().to_string()
    }

    /// Connects to a publisher that may still be starting.
    async fn connect(&self) -> Outcome<Vec<Channel>> {
        let endpoint = Endpoint::from_shared(format!("unix://{}", self.socket.display()))?;
        let mut channels = Vec::with_capacity(CONNECTIONS);
        for _ in 0..LOOKS {
            match endpoint.connect().await {
                Ok(channel) => channels.push(channel),
                Err(_) => pause(Duration::from_millis(10)).await,
            }
            if channels.len() == CONNECTIONS {
                return Ok(channels);
            }
        }
        Err(format!("nothing serves {}", self.socket.display()).into())
    }

    /// Requests a round, without waiting for it.
    fn ring(&self) -> Outcome<()> {
        std::os::unix::net::UnixStream::connect(&self.bell)?.write_all(b"!")?;
        Ok(())
    }
}

async fn subscribe(channel: Channel, after: Option<i64>) -> Outcome<Streaming<SubscribeResponse>> {
    let request = SubscribeRequest {
        kinds: vec![KIND.as_str().into()],
        after_seq: after,
        follow: true,
        ..SubscribeRequest::default()
    };
    Ok(EventsClient::new(channel).subscribe(request).await?.into_inner())
}

/// The reading subscribers and their positions.
struct Readers {
    streams: Vec<Streaming<SubscribeResponse>>,
    position: i64,
}

impl Readers {
    async fn open(channels: &[Channel]) -> Outcome<Self> {
        let mut streams = Vec::with_capacity(SUBSCRIBERS);
        for reader in 0..SUBSCRIBERS {
            // There is no event of this kind yet, so the oldest is the next one.
            streams.push(subscribe(channels[reader % channels.len()].clone(), None).await?);
        }
        Ok(Self { streams, position: 0 })
    }

    /// Runs one round. Returns events per second, over all subscribers.
    async fn round(&mut self, site: &Site) -> Outcome<f64> {
        let readers: Vec<_> = self.streams.drain(..).map(|stream| tokio::spawn(read(stream))).collect();
        let began = now();
        site.ring()?;
        for reader in readers {
            let (stream, position) = reader.await??;
            self.streams.push(stream);
            self.position = self.position.max(position);
        }
        Ok((SUBSCRIBERS * ROUND) as f64 / began.elapsed().as_secs_f64())
    }
}

/// Reads one round. Also returns the position after it.
async fn read(mut stream: Streaming<SubscribeResponse>) -> Outcome<(Streaming<SubscribeResponse>, i64)> {
    let (mut seen, mut position) = (0, 0);
    while seen < ROUND {
        match stream.message().await? {
            Some(message) => {
                seen += usize::from(message.event.is_some());
                position = message.position_seq;
            }
            None => return Err(format!("a stream ended after {seen} of {ROUND} events").into()),
        }
    }
    Ok((stream, position))
}

/// A payload of the size of a delivery event.
fn payload(number: usize) -> Value {
    json!({
        "message_id": id(number), "from": "agent:worker-0", "kind": "message",
        "hop": 3, "subject": "The figures of the third quarter",
    })
}

/// An id of the usual length.
fn id(number: usize) -> String {
    format!("{number:08x}-0000-7000-8000-000000000000")
}

/// Waits for a request to publish. Returns false when there will be no more.
fn rung(bell: &std::os::unix::net::UnixListener) -> bool {
    bell.accept().is_ok_and(|(mut stream, _)| stream.read_exact(&mut [0]).is_ok())
}

/// The helper process of the world: publishes rounds of events through its store and serves them as a daemon does.
pub fn serve_world(world: &str, data: &str, socket: &str, bell: &str) -> Outcome<()> {
    let bell = std::os::unix::net::UnixListener::bind(bell)?;
    std::fs::create_dir_all(data)?;
    runtime()?.block_on(async {
        let world = fixture::boot(Path::new(world), Path::new(data), ghost_daemon::system_ports(), Vec::new()).await?;
        let bound = ghost_control::bind(ControlOptions {
            listeners: vec![ListenAddress::Unix(socket.into())],
            http: None,
            data_dir: data.into(),
            token: None,
            tls: None,
            on_shutdown: Arc::new(|_| {}),
        })
        .await?;
        let serving = tokio::spawn(bound.serve(Arc::clone(&world), std::future::pending()));
        let (rings, mut rung_for) = tokio::sync::mpsc::channel(1);
        std::thread::spawn(move || while rung(&bell) && rings.blocking_send(()).is_ok() {});
        while rung_for.recv().await.is_some() {
            for commit in 0..ROUND / TOGETHER {
                let writing = world.write(move |w| {
                    let agent = "worker-0".parse()?;
                    for number in 0..TOGETHER {
                        let event = NewEvent::new(KIND, payload(commit * TOGETHER + number)).agent(&agent);
                        w.emit(event)?;
                    }
                    Ok::<_, Refusal>(())
                });
                writing.await?;
            }
        }
        serving.abort();
        Ok(())
    })
}

/// The floor: every subscriber gets the messages of a broadcast.
struct Bare(broadcast::Sender<SubscribeResponse>);

#[tonic::async_trait]
impl Events for Bare {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Result<SubscribeResponse, Status>> + Send>>;

    async fn subscribe(&self, _: Request<SubscribeRequest>) -> Result<Response<Self::SubscribeStream>, Status> {
        let messages = BroadcastStream::new(self.0.subscribe());
        Ok(Response::new(Box::pin(messages.map(|message| message.map_err(|lag| Status::aborted(lag.to_string()))))))
    }
}

/// The helper process of the floor.
pub fn serve_broadcast(socket: &str, bell: &str) -> Outcome<()> {
    let bell = std::os::unix::net::UnixListener::bind(bell)?;
    runtime()?.block_on(async {
        // Its capacity is a whole round, so no receiver lags.
        let (sender, _) = broadcast::channel(2 * ROUND);
        let listener = UnixListener::bind(socket)?;
        let publisher = sender.clone();
        std::thread::spawn(move || {
            let mut seq = 0;
            while rung(&bell) {
                for number in 0..ROUND {
                    seq += 1;
                    let event = Event {
                        seq,
                        event_id: id(number),
                        ts_ms: 1_767_225_600_000,
                        kind: KIND.as_str().into(),
                        agent_id: Some("worker-0".into()),
                        channel: None,
                        correlation_id: None,
                        payload_json: payload(number).to_string(),
                    };
                    // An error means that there is no subscriber.
                    drop(publisher.send(SubscribeResponse { event: Some(event), ephemeral: false, position_seq: seq }));
                }
            }
        });
        tonic::transport::Server::builder()
            .add_service(EventsServer::new(Bare(sender)))
            .serve_with_incoming(UnixListenerStream::new(listener))
            .await?;
        Ok(())
    })
}
