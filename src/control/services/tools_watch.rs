//! The tools of an agent as a stream: first all that there are, then what joins and leaves.
//!
//! A reader must never miss a change without being told: two changes at once may come as one, but the names that a reader
//! has after an item are those of the registry at some later moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::EventFilter;
use ghost_domain::{AgentId, Code, Limits, Refusal};
use ghost_operations::feed::Subscription;
use ghost_proto::v1;
use ghost_store::for_people;
use ghost_world::World;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use crate::control::Control;
use crate::queries::registry;
use crate::refusal::status;
use crate::serving::connections::Peer;
use crate::streams::{DrainTimeout, PermitStream, StreamPermit};

/// Capacity of one reader's queue.
const QUEUE: usize = 16;
/// Events after which an agent may have other tools.
const KINDS: [&str; 6] =
    ["world.reloaded", "skill.acquired", "skill.dropped", "agent.updated", "agent.created", "agent.deleted"];

pub(super) type Item = Result<v1::ToolsChange, Status>;

/// Opens a stream of the agent's tools for `peer`.
pub(super) async fn open(
    control: &Control,
    agent_id: AgentId,
    peer: Option<Peer>,
) -> Result<PermitStream<Item>, Refusal> {
    let world = Arc::clone(&control.world);
    let permit = control.reader_permit()?;
    let stall_timeout = Limits::seconds(world.ctx().limits().reader_stall_seconds);
    let drain_timeout = DrainTimeout::of(&world);
    // Before the first read, so that no change between the two is missed.
    let (live, feed) = (world.engine().tools.watch(), listen(&world).await?);
    // The first read also finds out whether there is such an agent.
    let seen = names(&world, &agent_id).await?;
    let (sender, items) = mpsc::channel(QUEUE);
    let closed = control.closed.clone();
    let watcher = Watcher { world, agent_id, live, feed, sender, stall_timeout, closed, seen };
    let feeder = tokio::spawn(for_people(watcher.run(Arc::clone(&permit))));
    Ok(PermitStream::new(items, feeder, permit, drain_timeout, peer))
}

async fn listen(world: &World) -> Result<Subscription, Refusal> {
    let kinds = KINDS.map(str::to_owned).to_vec();
    Subscription::open(world.store(), None, EventFilter { kinds, ..EventFilter::default() }, true).await
}

/// The agent's tools: hashes of their definitions, by name.
async fn names(world: &World, agent_id: &AgentId) -> Result<BTreeMap<String, String>, Refusal> {
    let seen = registry(world, agent_id).await?.seen();
    Ok(seen.sent.into_iter().chain(seen.deferred).collect())
}

struct Watcher {
    world: Arc<World>,
    agent_id: AgentId,
    live: watch::Receiver<u64>,
    feed: Subscription,
    sender: mpsc::Sender<Item>,
    /// A reader whose queue stays full for this long is disconnected.
    stall_timeout: Duration,
    closed: watch::Receiver<bool>,
    /// The tools as the reader knows them.
    seen: BTreeMap<String, String>,
}

impl Watcher {
    async fn run(mut self, permit: Arc<StreamPermit>) {
        let refusal = match self.watch().await {
            Ok(()) => return,
            Err(refusal) => refusal,
        };
        if refusal.code == Code::RateLimited {
            permit.count_cut_off();
        }
        // A reader that does not read loses the reason; its stream ends all the same.
        drop(self.sender.try_send(Err(status(&refusal))));
    }

    /// Returns when the reader has gone.
    async fn watch(&mut self) -> Result<(), Refusal> {
        let first = v1::ToolsChange { joined: self.seen.keys().cloned().collect(), left: Vec::new() };
        self.send(first).await?;
        loop {
            tokio::select! {
                biased;
                () = self.sender.closed() => return Ok(()),
                () = async { drop(self.closed.wait_for(|closed| *closed).await) } => {
                    return Err(Refusal::new(Code::Unavailable, "the daemon is stopping").hint("watch again when it is back"));
                }
                changed = self.live.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                }
                next = self.feed.next() => match next {
                    Ok(Some(event)) if event.agent_id.as_ref().is_none_or(|id| *id == self.agent_id) => {}
                    Ok(Some(_)) => continue,
                    Ok(None) => return Ok(()),
                    // It fell behind. The registry is read below, so nothing is lost.
                    Err(refusal) if refusal.code == Code::RateLimited => self.feed = listen(&self.world).await?,
                    Err(refusal) => return Err(refusal),
                }
            }
            let now = names(&self.world, &self.agent_id).await?;
            let differs = |from: &BTreeMap<String, String>, to: &BTreeMap<String, String>| {
                from.iter().filter(|(name, hash)| to.get(*name) != Some(*hash)).map(|(name, _)| name.clone()).collect()
            };
            let change = v1::ToolsChange { joined: differs(&now, &self.seen), left: differs(&self.seen, &now) };
            self.seen = now;
            if !change.joined.is_empty() || !change.left.is_empty() {
                self.send(change).await?;
            }
        }
    }

    async fn send(&self, change: v1::ToolsChange) -> Result<(), Refusal> {
        let clock = Arc::clone(&self.world.ctx().ports.clock);
        tokio::select! {
            biased;
            // An error means that the reader has gone, which the loop finds next.
            _ = self.sender.send(Ok(change)) => Ok(()),
            () = clock.sleep(self.stall_timeout) => {
                let what = format!("this reader read nothing for {:?}", self.stall_timeout);
                Err(Refusal::new(Code::RateLimited, what).hint("watch again; the stream begins with all tools"))
            }
        }
    }
}
