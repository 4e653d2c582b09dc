//! The courier: sleeps until something waits to be handed to the outside, hands it over, and records what came of it.
//! Delivery is at least once: each attempt is recorded before it is made, and one that a crash cut off is made again
//! under the same id.
//!
//! Must never: hand the same thing over twice at once, or let one slow receiver hold up the others.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ghost_agent::panics;
use ghost_domain::{Action, ConversationId, Refusal, Timestamp};
use ghost_rules::conversations::{self as rules, Outcome, Parcel};
use ghost_store::Reads;
use ghost_world::World;
use ghost_world::loops::DELIVERIES;
use tokio::task::JoinSet;

use super::adapter::Adapter;
use super::adapter_lookup::adapter_of;
use super::client::Http;

/// Deliveries under way at once.
const AT_ONCE: usize = 16;
/// Deliveries under way at once by the same adapter, so that a slow one leaves hands for the others.
const EACH: usize = 4;
/// Entries that are looked at together; more than can be under way, so that those never hide one that is not.
const LOOK: u32 = 256;
/// While what is due is under way, or the store cannot be read, it is looked at again this often.
const AGAIN: Duration = Duration::from_secs(1);

type Place = (ConversationId, i64);

/// What is under way, and which adapter has it.
type UnderWay = BTreeMap<Place, String>;

/// Delivers until it is aborted. What is under way then goes out again at the next start.
pub(crate) async fn delivery_worker(world: Arc<World>) -> Result<(), String> {
    let http = Http::default();
    let clock = Arc::clone(&world.ctx().ports.clock);
    let mut rings = world.deliveries();
    let mut under_way = UnderWay::new();
    let mut tasks: JoinSet<Place> = JoinSet::new();
    loop {
        rings.mark_unchanged();
        let next = match look(&world, &under_way).await {
            Ok((due, next)) => {
                for (place, adapter) in due {
                    under_way.insert(place, adapter);
                    let (world, http) = (Arc::clone(&world), http.clone());
                    tasks.spawn(async move {
                        if let Err(refusal) = deliver(&world, place, &http).await {
                            tracing::warn!(conversation_id = %place.0, seq = place.1, %refusal, "not delivered; trying again");
                            // The store could not take it: at once it could not either.
                            world.ctx().ports.clock.sleep(AGAIN).await;
                        }
                        place
                    });
                }
                next
            }
            Err(refusal) => {
                tracing::warn!(%refusal, "the courier cannot see what waits");
                Some(world.ctx().now())
            }
        };
        world.loops().round(DELIVERIES);
        // What is due and still waits is under way, or there is no hand free for it: an end or the next look finds it.
        let now = world.ctx().now();
        let until = next.map(|at| if at > now { at } else { now.plus(AGAIN) });
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next() => match ended {
                Ok(place) => {
                    under_way.remove(&place);
                }
                // Panics are caught below, so nobody knows which one this was. It goes out again when the loop begins anew.
                Err(error) => return Err(format!("a delivery was lost: {error}")),
            },
            ring = rings.changed() => {
                if ring.is_err() {
                    return Ok(());
                }
            }
            () = async {
                match until {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            } => {}
        }
    }
}

/// What to begin with now, and when something falls due next.
async fn look(world: &World, under_way: &UnderWay) -> Result<(Vec<(Place, String)>, Option<Timestamp>), Refusal> {
    let (now, under_way) = (world.ctx().now(), under_way.clone());
    world.store().read(move |r| Box::pin(async move { choose(r, now, under_way).await })).await
}

/// Chooses the longest due for the hands that are free. What an adapter with its hands full still has is not even looked
/// at, so that it hides nothing of the others.
async fn choose(
    r: &mut dyn Reads,
    now: Timestamp,
    mut under_way: UnderWay,
) -> Result<(Vec<(Place, String)>, Option<Timestamp>), Refusal> {
    let mut chosen = Vec::new();
    let mut carriers: BTreeMap<ConversationId, String> = BTreeMap::new();
    loop {
        let (due, next) = rules::due(r, now, &full(&under_way), LOOK).await?;
        let (more, before) = (u32::try_from(due.len()).is_ok_and(|found| found >= LOOK), chosen.len());
        for entry in due {
            let place = (entry.conversation_id, entry.seq);
            if under_way.len() >= AT_ONCE {
                break;
            }
            if under_way.contains_key(&place) {
                continue;
            }
            let adapter = match carriers.get(&entry.conversation_id) {
                Some(adapter) => adapter.clone(),
                None => {
                    // Without its conversation it goes nowhere, which the attempt says.
                    let found = r.conversation_get(entry.conversation_id).await?;
                    let adapter = found.map(|conversation| conversation.adapter).unwrap_or_default();
                    carriers.insert(entry.conversation_id, adapter.clone());
                    adapter
                }
            };
            if under_way.values().filter(|busy| **busy == adapter).count() < EACH {
                under_way.insert(place, adapter.clone());
                chosen.push((place, adapter));
            }
        }
        // Each further look has one adapter less to look at, or no hand is free.
        if !more || chosen.len() == before || under_way.len() >= AT_ONCE {
            return Ok((chosen, next));
        }
    }
}

/// The adapters that have as much under way as they may.
fn full(under_way: &UnderWay) -> Vec<String> {
    let mut busy: BTreeMap<&str, usize> = BTreeMap::new();
    for adapter in under_way.values() {
        *busy.entry(adapter).or_default() += 1;
    }
    busy.into_iter().filter(|(_, count)| *count >= EACH).map(|(adapter, _)| adapter.to_owned()).collect()
}

async fn deliver(world: &World, place: Place, http: &Http) -> Result<(), Refusal> {
    let (conversation_id, seq) = place;
    let (ctx, jitter) = (world.ctx().clone(), world.ctx().ports.rng.below(1_000));
    let begun = world
        .store()
        .write(move |w| Box::pin(async move { rules::attempt(w, &ctx, conversation_id, seq, jitter).await }))
        .await?;
    let Some(parcel) = begun else { return Ok(()) };
    let outcome = match adapter_of(world, &parcel.conversation.adapter, http)? {
        Some(adapter) => match parcel.entry.action.as_ref().map(Action::kind) {
            // A reload may have taken it away since.
            Some(kind) if !adapter.actions().contains(&kind) => {
                Outcome::Gone { error: format!("{} cannot {kind} any more", parcel.conversation.adapter) }
            }
            Some(_) | None => hand_over(&*adapter, world, &parcel).await,
        },
        None => Outcome::Gone { error: format!("the world has no channel {} any more", parcel.conversation.adapter) },
    };
    let ctx = world.ctx().clone();
    world
        .store()
        .write(move |w| Box::pin(async move { rules::settle(w, &ctx, conversation_id, seq, outcome).await }))
        .await
}

/// One attempt. A panic is one that failed, and hurts no other delivery.
async fn hand_over(adapter: &dyn Adapter, world: &World, parcel: &Parcel) -> Outcome {
    let delivered = AssertUnwindSafe(adapter.deliver(world, parcel)).catch_unwind().await;
    delivered.unwrap_or_else(|panic| {
        let words = world.ctx().redactor.redact(&panics::text(&*panic));
        tracing::error!(adapter = parcel.conversation.adapter, words, "a delivery panicked");
        Outcome::Retry { error: format!("the delivery panicked: {words}"), after: None }
    })
}

#[cfg(test)]
mod tests {
    use ghost_domain::{Conversation, ConversationEntry, Delivery, Direction, MessageId, Party};
    use uuid::Uuid;

    use super::*;
    use crate::fixture::Scene;

    fn conversation(n: u128, adapter: &str) -> Conversation {
        Conversation {
            conversation_id: ConversationId(Uuid::from_u128(n)),
            adapter: adapter.to_owned(),
            thread: format!("thread {n}"),
            owner: "ada".parse().unwrap(),
            party: Party::Outside("someone".to_owned()),
            last_seq: 1_000,
            created_at: Timestamp(1),
            updated_at: Timestamp(1),
            heard: 0,
            heard_at: None,
            reacted: None,
            passed_on: Vec::new(),
        }
    }

    fn waits(n: u128, seq: i64, due: i64) -> ConversationEntry {
        ConversationEntry {
            conversation_id: ConversationId(Uuid::from_u128(n)),
            seq,
            message_id: MessageId(Uuid::from_u128(n * 10_000 + u128::try_from(seq).unwrap())),
            direction: Direction::Out,
            from: Party::System,
            content: "hello".to_owned(),
            attachments: vec![],
            reply_to: None,
            external_id: None,
            turn_id: None,
            delivery: Delivery::Pending,
            attempts: 0,
            next_at: Some(Timestamp(due)),
            error: None,
            at: Timestamp(1),
            action: None,
            deleted: false,
        }
    }

    /// Which conversations were chosen from, and how often.
    async fn chosen(scene: &Scene, under_way: &mut UnderWay) -> Vec<(u128, usize)> {
        let (chosen, _) = look(&scene.world, under_way).await.unwrap();
        let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
        for (place, adapter) in chosen {
            *counts.entry(place.0.0.as_u128()).or_default() += 1;
            assert_eq!(under_way.insert(place, adapter), None, "none is chosen twice");
        }
        counts.into_iter().collect()
    }

    struct Panics;

    #[async_trait::async_trait]
    impl Adapter for Panics {
        async fn deliver(&self, _: &World, parcel: &Parcel) -> Outcome {
            assert_ne!(parcel.entry.seq, 2, "the adapter falls over");
            Outcome::Delivered { missing: Vec::new() }
        }
    }

    #[tokio::test]
    async fn a_delivery_that_panics_is_an_attempt_that_failed() {
        let scene = Scene::new().await;
        let parcel = |seq| Parcel { conversation: conversation(1, "webhook:x"), entry: waits(1, seq, 1) };
        let handed = futures_util::future::join_all([1, 2, 3].map(|seq| {
            let (scene, parcel) = (&scene, parcel(seq));
            async move { hand_over(&Panics, &scene.world, &parcel).await }
        }));
        let outcomes = handed.await;
        let panicked = matches!(&outcomes[1], Outcome::Retry { error, after: None } if error.contains("falls over"));
        assert!(panicked, "{outcomes:?}");
        for at in [0, 2] {
            assert_eq!(outcomes[at], Outcome::Delivered { missing: Vec::new() }, "its neighbours");
        }
    }

    #[tokio::test]
    async fn deliveries_go_on_after_their_loop_has_failed() {
        let scene = Scene::new().await;
        scene.world.loops().fail_next(DELIVERIES, 1);
        let outside = Arc::clone(&scene.world);
        let kept = scene.world.keep_running(DELIVERIES, move || Box::pin(delivery_worker(Arc::clone(&outside))));
        let written = scene.world.store().write(|w| {
            Box::pin(async move {
                w.conversation_put(&conversation(1, "control")).await?;
                w.conversation_entry_put(&waits(1, 1, 1)).await?;
                Ok::<_, Refusal>(())
            })
        });
        written.await.unwrap();
        let mut was_down = false;
        let mut delivered = false;
        for _ in 0..1_000 {
            was_down |= scene.world.loops().down().iter().any(|down| down.name == DELIVERIES);
            let id = ConversationId(Uuid::from_u128(1));
            let read = scene
                .world
                .store()
                .read(move |r| Box::pin(async move { r.conversation_entries(id, 0, 10).await.map_err(Refusal::from) }));
            delivered = read.await.unwrap()[0].delivery == Delivery::Delivered;
            if delivered && scene.world.loops().down().is_empty() {
                break;
            }
            scene.clock.advance(Duration::from_millis(200));
            tokio::task::yield_now().await;
        }
        assert!(was_down && delivered, "down {was_down}, delivered {delivered}");
        kept.abort();
    }

    #[tokio::test]
    async fn a_backlog_of_one_adapter_neither_takes_all_hands_nor_hides_the_others() {
        let scene = Scene::new().await;
        let many = i64::from(LOOK) * 2;
        let written = scene.world.store().write(move |w| {
            Box::pin(async move {
                for (n, adapter, count) in [
                    (1, "webhook:slow", many),
                    (2, "webhook:slow", many),
                    (3, "webhook:worse", many),
                    (4, "control", 1),
                ] {
                    w.conversation_put(&conversation(n, adapter)).await?;
                    for seq in 1..=count {
                        w.conversation_entry_put(&waits(n, seq, i64::try_from(n).unwrap())).await?;
                    }
                }
                Ok::<_, Refusal>(())
            })
        });
        written.await.unwrap();
        let mut under_way = UnderWay::new();
        assert_eq!(chosen(&scene, &mut under_way).await, [(1, EACH), (3, EACH), (4, 1)]);
        assert_eq!(chosen(&scene, &mut under_way).await, [], "no adapter has a hand free, and the rest is done");
        under_way.retain(|place, _| place.0.0.as_u128() != 3);
        assert_eq!(chosen(&scene, &mut under_way).await, [(3, EACH)]);
        // More adapters than hands: no more than there are hands.
        let written = scene.world.store().write(|w| {
            Box::pin(async move {
                for n in 10..20 {
                    w.conversation_put(&conversation(n, &format!("webhook:{n}"))).await?;
                    for seq in 1..=3 {
                        w.conversation_entry_put(&waits(n, seq, 1)).await?;
                    }
                }
                Ok::<_, Refusal>(())
            })
        });
        written.await.unwrap();
        chosen(&scene, &mut under_way).await;
        assert_eq!(under_way.len(), AT_ONCE);
    }
}
