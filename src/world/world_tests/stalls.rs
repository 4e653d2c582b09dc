//! A store that does not answer blocks its callers, but no activation. And many agents that fall asleep at once
//! need only a few queries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ghost_agent::AgentMsg;
use ghost_domain::ports::{Signal, Wake};
use ghost_domain::{Activity, AgentStatus, Timestamp};
use ghost_store::memory::MemoryDisk;
use ghost_store::{Ack, Backend, Committed, Nack, ReadWork, Store, StoreError, View, Work};
use tokio::sync::watch;

use super::helpers::{TWO, TestWorld, id, say, send, settle, soon};
use crate::World;

/// Which operations of a store hang, and the number of its queries.
#[derive(Default)]
struct Stall {
    commits: watch::Sender<bool>,
    queries: watch::Sender<bool>,
    asked: AtomicUsize,
}

impl Stall {
    async fn pass(what: &watch::Sender<bool>) {
        // The sender lives as long as the store, so the wait cannot fail.
        let _ = what.subscribe().wait_for(|stalls| !*stalls).await;
    }
}

struct Stalling {
    inner: Store,
    stall: Arc<Stall>,
}

/// Publishes the commits of the inner store.
struct Forward(Committed);

impl Wake for Forward {
    fn signal(&self, signals: &[Signal]) {
        self.0.publish(Vec::new(), signals);
    }
}

/// Why a command of the inner store was rolled back.
enum Undone {
    Refused(Nack),
    Store(StoreError),
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

#[async_trait]
impl Backend for Stalling {
    async fn submit(&self, work: Work) -> Result<(), StoreError> {
        Stall::pass(&self.stall.commits).await;
        let done: Result<Ack, Undone> = self.inner.write(move |w| work(w).map_err(Undone::Refused)).await;
        match done {
            Ok(ack) => ack(Ok(())),
            Err(Undone::Refused(nack)) => nack(),
            Err(Undone::Store(error)) => return Err(error),
        }
        Ok(())
    }

    async fn query(&self, _: View, work: ReadWork) -> Result<(), StoreError> {
        self.stall.asked.fetch_add(1, Ordering::SeqCst);
        Stall::pass(&self.stall.queries).await;
        let query = self.inner.read(|r| {
            work(r);
            Ok(())
        });
        query.await
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    async fn broken(&self) -> StoreError {
        self.inner.broken().await
    }
}

async fn stalling() -> (Store, Arc<Stall>) {
    let (inner, stall) = (MemoryDisk::new().open(), Arc::new(Stall::default()));
    let held = Arc::clone(&stall);
    let store = Store::open(|committed| async move {
        inner.on_signal(Arc::new(Forward(committed)));
        Ok(Stalling { inner, stall: held })
    });
    (store.await.unwrap(), stall)
}

fn awake(world: &World, agent: &str) -> bool {
    world.tree.directory.actor(&id(agent)).is_some()
}

fn activity(world: &World, agent: &str) -> Activity {
    world.directory().card(&id(agent)).unwrap().activity
}

#[tokio::test]
async fn a_hanging_commit_blocks_no_activation() {
    let (test_world, (store, stall)) = (TestWorld::new(TWO), stalling().await);
    let (world, model) = test_world
        .boot_over(store, |request| {
            assert_ne!(request.agent_id.as_str(), "ada", "the model falls over");
            say("here")
        })
        .await;
    model.hold("ada");
    send(&world, "ada", "fall").await;
    soon("the call", || model.asked_by("ada") == 1).await;
    stall.commits.send_replace(true);
    model.release("ada");
    let status = || world.directory().card(&id("ada")).unwrap().status;
    soon("the crash", || status() == AgentStatus::Restarting).await;
    settle().await;
    world.tree.signal_router.wake(&id("ben"));
    soon("ben wakes", || awake(&world, "ben")).await;
    assert!(!awake(&world, "ada"), "it crashed, and nothing has been decided");
    // A wake-up does not start the crashed agent either.
    world.tree.signal_router.wake(&id("ada"));
    settle().await;
    assert!(!awake(&world, "ada"));
    stall.commits.send_replace(false);
    for _ in 0..20 {
        test_world.clock.advance(std::time::Duration::from_secs(1));
        settle().await;
    }
    assert!(model.asked_by("ada") > 1, "it was restarted when the store was back");
}

#[tokio::test]
async fn a_hanging_query_blocks_no_activation() {
    let (test_world, (store, stall)) = (TestWorld::new(TWO), stalling().await);
    let (world, _) = test_world.boot_over(store, |_| say("here")).await;
    world.tree.signal_router.wake(&id("ada"));
    soon("ada rests", || awake(&world, "ada") && activity(&world, "ada") == Activity::Idle).await;
    settle().await;
    stall.queries.send_replace(true);
    drop(world.tree.directory.actor(&id("ada")).unwrap().cast(AgentMsg::TrySleep));
    soon("ada sleeps", || !awake(&world, "ada")).await;
    settle().await;
    world.tree.signal_router.wake(&id("ben"));
    soon("ben wakes", || awake(&world, "ben")).await;
    // The agent whose end is still being read wakes as well.
    world.tree.signal_router.wake(&id("ada"));
    soon("ada wakes", || awake(&world, "ada")).await;
    stall.queries.send_replace(false);
}

#[tokio::test]
async fn many_agents_that_fall_asleep_at_once_need_few_queries() {
    const MANY: usize = 200;
    let agents: String = (0..MANY).map(|n| format!("  - {{ id: a{n}, archetype: worker }}\n")).collect();
    let file = format!(
        "world: {{ id: test, name: Test }}\nagents:\n{agents}llm:\n  default_provider: test\n  default_model: test\n  \
         providers: {{ test: {{ kind: openai, base_url: 'http://127.0.0.1:1' }} }}\n"
    );
    let (test_world, (store, stall)) = (TestWorld::new(&file), stalling().await);
    let (world, _) = test_world.boot_over(store, |_| say("here")).await;
    for n in 0..MANY {
        world.tree.signal_router.wake(&id(&format!("a{n}")));
    }
    let directory = &world.tree.directory;
    soon("they rest", || directory.idle_actors(Timestamp(i64::MAX)).len() == MANY).await;
    settle().await;
    let before = stall.asked.load(Ordering::SeqCst);
    for actor in directory.idle_actors(Timestamp(i64::MAX)) {
        drop(actor.cast(AgentMsg::TrySleep));
    }
    soon("they sleep", || directory.actors().is_empty()).await;
    settle().await;
    let asked = stall.asked.load(Ordering::SeqCst) - before;
    assert!((1..=10).contains(&asked), "{asked} queries for {MANY} agents");
}
