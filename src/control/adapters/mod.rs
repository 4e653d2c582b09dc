//! Delivery to receivers outside the world. An adapter makes one attempt to deliver a message or an action of an agent. Rules
//! in `ghost-operations` decide when to try, how often, and how to treat the outcome.
//!
//! The delivery worker sleeps until a conversation entry is due for delivery, delivers it, and records the outcome. Delivery is
//! at least once: each attempt is recorded before it is made, and one that a crash interrupted is repeated under the same id.
//! Two attempts for the same entry never run at once, and a slow receiver delays no delivery to others.
//!
//! Adapters are in the control layer because it is the layer that faces the outside: incoming messages arrive here too.

mod webhook;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ghost_domain::conversation::{CONTROL, WEBHOOK};
use ghost_domain::text::panic_text;
use ghost_domain::{Action, ConversationId, Refusal, Timestamp};
use ghost_operations::conversations as rules;
use ghost_operations::conversations::{Outcome, OutgoingMessage};
use ghost_store::Tx;
use ghost_world::World;
use ghost_world::loops::DELIVERIES;
use tokio::task::JoinSet;

use self::webhook::{Adapter, Control, Http, Webhook};
pub(crate) use webhook::{DELIVERY, SIGNATURE, TIMESTAMP, secret};
pub use webhook::{sign, verify};

/// Largest number of concurrent deliveries.
const AT_ONCE: usize = 16;
/// Largest number of concurrent deliveries of one adapter, so that a slow one leaves capacity for
/// others.
const AT_ONCE_PER_ADAPTER: usize = 4;
/// Entries read from the store at once. It is larger than `AT_ONCE`, so running deliveries never
/// fill the whole read.
const READ_LIMIT: u32 = 256;
/// Pause before the next read while due entries are being delivered, or after a store error.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

type EntryKey = (ConversationId, i64);

/// The entries whose delivery is running, each with its adapter's name.
type UnderWay = BTreeMap<EntryKey, String>;

/// Delivers until it is aborted. Deliveries that are running then start again at the next start of
/// the daemon.
pub(crate) async fn delivery_worker(world: Arc<World>) -> Result<(), String> {
    let http = Http::default();
    let clock = Arc::clone(&world.ctx().ports.clock);
    let mut wake_ups = world.deliveries();
    let mut under_way = UnderWay::new();
    let mut tasks: JoinSet<EntryKey> = JoinSet::new();
    loop {
        wake_ups.mark_unchanged();
        let next = match read_due(&world, &under_way).await {
            Ok((due, next)) => {
                for (entry_key, adapter) in due {
                    under_way.insert(entry_key, adapter);
                    let (world, http) = (Arc::clone(&world), http.clone());
                    tasks.spawn(async move {
                        if let Err(refusal) = deliver(&world, entry_key, &http).await {
                            tracing::warn!(conversation_id = %entry_key.0, seq = entry_key.1, %refusal, "not delivered; trying again");
                            // The store could not record the outcome, so an immediate retry would
                            // fail too.
                            world.ctx().ports.clock.sleep(RETRY_PAUSE).await;
                        }
                        entry_key
                    });
                }
                next
            }
            Err(refusal) => {
                tracing::warn!(%refusal, "the delivery worker cannot read the due deliveries");
                Some(world.ctx().now())
            }
        };
        world.loops().round(DELIVERIES);
        // Due entries that were not started are being delivered already, or wait for capacity. They
        // are considered again when a delivery ends or at the next read.
        let now = world.ctx().now();
        let until = next.map(|at| if at > now { at } else { now.plus(RETRY_PAUSE) });
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next() => match ended {
                Ok(entry_key) => {
                    under_way.remove(&entry_key);
                }
                // Panics of adapters are caught in `attempt_delivery`, so the failed entry is not known
                // here. It is retried when the loop starts again.
                Err(error) => return Err(format!("a delivery was lost: {error}")),
            },
            wake_up = wake_ups.changed() => {
                if wake_up.is_err() {
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

/// The entries to start now, each with its adapter, and the time at which the next entry becomes due.
type Due = (Vec<(EntryKey, String)>, Option<Timestamp>);

async fn read_due(world: &World, under_way: &UnderWay) -> Result<Due, Refusal> {
    let (now, under_way) = (world.ctx().now(), under_way.clone());
    world.store().read(move |r| choose(r, now, under_way)).await
}

/// Chooses the entries that have been due longest, while there is capacity. Entries of an adapter
/// without capacity are not read, so they do not hide entries of other adapters.
fn choose(r: &mut Tx, now: Timestamp, mut under_way: UnderWay) -> Result<Due, Refusal> {
    let mut chosen = Vec::new();
    let mut adapters: BTreeMap<ConversationId, String> = BTreeMap::new();
    loop {
        let (due, next) = rules::due(r, now, &adapters_without_capacity(&under_way), READ_LIMIT)?;
        let (more, before) = (u32::try_from(due.len()).is_ok_and(|found| found >= READ_LIMIT), chosen.len());
        for entry in due {
            let entry_key = (entry.conversation_id, entry.seq);
            if under_way.len() >= AT_ONCE {
                break;
            }
            if under_way.contains_key(&entry_key) {
                continue;
            }
            let adapter = match adapters.get(&entry.conversation_id) {
                Some(adapter) => adapter.clone(),
                None => {
                    // An entry without its conversation cannot be delivered. The attempt records that.
                    let found = r.conversation_get(entry.conversation_id)?;
                    let adapter = found.map(|conversation| conversation.adapter).unwrap_or_default();
                    adapters.insert(entry.conversation_id, adapter.clone());
                    adapter
                }
            };
            if under_way.values().filter(|busy| **busy == adapter).count() < AT_ONCE_PER_ADAPTER {
                under_way.insert(entry_key, adapter.clone());
                chosen.push((entry_key, adapter));
            }
        }
        // Each further read excludes one more adapter, or there is no capacity left.
        if !more || chosen.len() == before || under_way.len() >= AT_ONCE {
            return Ok((chosen, next));
        }
    }
}

/// The adapters that have no capacity left.
fn adapters_without_capacity(under_way: &UnderWay) -> Vec<String> {
    let mut busy: BTreeMap<&str, usize> = BTreeMap::new();
    for adapter in under_way.values() {
        *busy.entry(adapter).or_default() += 1;
    }
    busy.into_iter().filter(|(_, count)| *count >= AT_ONCE_PER_ADAPTER).map(|(adapter, _)| adapter.to_owned()).collect()
}

async fn deliver(world: &World, entry_key: EntryKey, http: &Http) -> Result<(), Refusal> {
    let (conversation_id, seq) = entry_key;
    let jitter = world.ctx().ports.rng.below(1_000);
    let begun = world.write(move |w| rules::attempt(w, conversation_id, seq, jitter)).await?;
    let Some(outgoing) = begun else { return Ok(()) };
    let outcome = match adapter_of(world, &outgoing.conversation.adapter, http)? {
        Some(adapter) => match outgoing.entry.action.as_ref().map(Action::kind) {
            // A reload may have removed the action since it was recorded.
            Some(kind) if !adapter.actions().contains(&kind) => {
                Outcome::Gone { error: format!("{} no longer supports {kind}", outgoing.conversation.adapter) }
            }
            Some(_) | None => attempt_delivery(&*adapter, world, &outgoing).await,
        },
        None => {
            Outcome::Gone { error: format!("the world no longer has the channel {}", outgoing.conversation.adapter) }
        }
    };
    world.write(move |w| rules::settle(w, conversation_id, seq, outcome)).await
}

/// Makes one attempt. A panic is a failed attempt and affects no other delivery.
async fn attempt_delivery(adapter: &dyn Adapter, world: &World, outgoing: &OutgoingMessage) -> Outcome {
    let delivered = AssertUnwindSafe(adapter.deliver(world, outgoing)).catch_unwind().await;
    delivered.unwrap_or_else(|panic| {
        let text = world.ctx().redactor.redact(&panic_text(&*panic));
        tracing::error!(adapter = outgoing.conversation.adapter, text, "a delivery panicked");
        Outcome::Retry { error: format!("the delivery panicked: {text}"), after: None }
    })
}

/// The adapter with this name. `None` if it is a webhook that the world's configuration no longer
/// contains.
fn adapter_of(world: &World, name: &str, http: &Http) -> Result<Option<Box<dyn Adapter>>, Refusal> {
    if name == CONTROL {
        return Ok(Some(Box::new(Control)));
    }
    let plan = world.plan();
    let Some(plan) = name.strip_prefix(WEBHOOK).and_then(|name| plan.webhooks.get(name)) else { return Ok(None) };
    Ok(Some(Box::new(Webhook::new(plan.clone(), http.client()?))))
}

#[cfg(test)]
mod tests {
    use ghost_domain::{Conversation, ConversationEntry, Delivery, Direction, MessageId, Party};
    use uuid::Uuid;

    use super::*;
    use crate::testing::TestControl;

    fn conversation(n: u128, adapter: &str) -> Conversation {
        let (id, place) = (ConversationId(Uuid::from_u128(n)), (adapter.to_owned(), format!("thread {n}")));
        let party = Party::Outside("someone".to_owned());
        Conversation { last_seq: 1_000, ..Conversation::new(id, place, "ada".parse().unwrap(), party, Timestamp(1)) }
    }

    fn pending_entry(n: u128, seq: i64, due: i64) -> ConversationEntry {
        let message_id = MessageId(Uuid::from_u128(n * 10_000 + u128::try_from(seq).unwrap()));
        let said = (Party::System, "hello".to_owned());
        let entry = conversation(n, "control").next_entry(message_id, Direction::Out, said, Timestamp(1));
        ConversationEntry { seq, delivery: Delivery::Pending, next_at: Some(Timestamp(due)), ..entry }
    }

    /// The chosen conversations, and how many entries of each.
    async fn chosen(test: &TestControl, under_way: &mut UnderWay) -> Vec<(u128, usize)> {
        let (chosen, _) = read_due(&test.world, under_way).await.unwrap();
        let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
        for (entry_key, adapter) in chosen {
            *counts.entry(entry_key.0.0.as_u128()).or_default() += 1;
            assert_eq!(under_way.insert(entry_key, adapter), None, "no entry is chosen twice");
        }
        counts.into_iter().collect()
    }

    struct PanickingAdapter;

    #[async_trait::async_trait]
    impl Adapter for PanickingAdapter {
        async fn deliver(&self, _: &World, outgoing: &OutgoingMessage) -> Outcome {
            assert_ne!(outgoing.entry.seq, 2, "the adapter panics");
            Outcome::Delivered { missing: Vec::new() }
        }
    }

    #[tokio::test]
    async fn a_delivery_that_panics_counts_as_a_failed_attempt() {
        let test = TestControl::new().await;
        let outgoing =
            |seq| OutgoingMessage { conversation: conversation(1, "webhook:x"), entry: pending_entry(1, seq, 1) };
        let handed = futures_util::future::join_all([1, 2, 3].map(|seq| {
            let (test, outgoing) = (&test, outgoing(seq));
            async move { attempt_delivery(&PanickingAdapter, &test.world, &outgoing).await }
        }));
        let outcomes = handed.await;
        let panicked =
            matches!(&outcomes[1], Outcome::Retry { error, after: None } if error.contains("the adapter panics"));
        assert!(panicked, "{outcomes:?}");
        for at in [0, 2] {
            assert_eq!(outcomes[at], Outcome::Delivered { missing: Vec::new() }, "its neighbours");
        }
    }

    #[tokio::test]
    async fn deliveries_continue_after_the_loop_has_failed() {
        let test = TestControl::new().await;
        test.world.loops().fail_next(DELIVERIES, 1);
        let outside = Arc::clone(&test.world);
        let kept = test.world.keep_running(DELIVERIES, move || Box::pin(delivery_worker(Arc::clone(&outside))));
        let written = test.world.store().write(|w| {
            w.conversation_put(&conversation(1, "control"))?;
            w.conversation_entry_put(&pending_entry(1, 1, 1))?;
            Ok::<_, Refusal>(())
        });
        written.await.unwrap();
        let mut was_down = false;
        let mut delivered = false;
        for _ in 0..1_000 {
            was_down |= test.world.loops().down().iter().any(|down| down.name == DELIVERIES);
            let id = ConversationId(Uuid::from_u128(1));
            let read = test.world.store().read(move |r| r.conversation_entries(id, 0, 10).map_err(Refusal::from));
            delivered = read.await.unwrap()[0].delivery == Delivery::Delivered;
            if delivered && test.world.loops().down().is_empty() {
                break;
            }
            test.clock.advance(Duration::from_millis(200));
            tokio::task::yield_now().await;
        }
        assert!(was_down && delivered, "down {was_down}, delivered {delivered}");
        kept.abort();
    }

    #[tokio::test]
    async fn a_backlog_of_one_adapter_neither_takes_all_capacity_nor_hides_the_others() {
        let test = TestControl::new().await;
        let many = i64::from(READ_LIMIT) * 2;
        let written = test.world.store().write(move |w| {
            for (n, adapter, count) in
                [(1, "webhook:slow", many), (2, "webhook:slow", many), (3, "webhook:worse", many), (4, "control", 1)]
            {
                w.conversation_put(&conversation(n, adapter))?;
                for seq in 1..=count {
                    w.conversation_entry_put(&pending_entry(n, seq, i64::try_from(n).unwrap()))?;
                }
            }
            Ok::<_, Refusal>(())
        });
        written.await.unwrap();
        let mut under_way = UnderWay::new();
        assert_eq!(chosen(&test, &mut under_way).await, [(1, AT_ONCE_PER_ADAPTER), (3, AT_ONCE_PER_ADAPTER), (4, 1)]);
        assert_eq!(chosen(&test, &mut under_way).await, [], "no adapter has capacity, and the rest is delivered");
        under_way.retain(|entry_key, _| entry_key.0.0.as_u128() != 3);
        assert_eq!(chosen(&test, &mut under_way).await, [(3, AT_ONCE_PER_ADAPTER)]);
        // With more adapters than capacity, the total limit holds.
        let written = test.world.store().write(|w| {
            for n in 10..20 {
                w.conversation_put(&conversation(n, &format!("webhook:{n}")))?;
                for seq in 1..=3 {
                    w.conversation_entry_put(&pending_entry(n, seq, 1))?;
                }
            }
            Ok::<_, Refusal>(())
        });
        written.await.unwrap();
        chosen(&test, &mut under_way).await;
        assert_eq!(under_way.len(), AT_ONCE);
    }
}
