//! Many callers at once: commands have one order, readers see whole commits only, and a cancelled
//! caller affects no other.

use std::sync::atomic::{AtomicBool, Ordering};

use super::tools::*;

const TASKS: u64 = 16;
const COMMANDS: u64 = 20;

/// Each command appends two events and one message. Some commands refuse, some panic.
pub(super) async fn concurrent_commands_keep_one_order(store: Bench) {
    let mut feed = store.feed();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..COMMANDS {
                    let id = 1_000 * (task + 1) + n;
                    let command = write(&store, move |w| {
                        let event = || NewEvent::new(EventKind::MessageDelivered, json!({ "n": n })).correlation(id);
                        w.event_append(event_id(2 * id), at(1), event())?;
                        w.message_append(&mail(id, "a"))?;
                        if n % 3 == 0 {
                            w.inbox_pending(&id_of("a"), 5)?;
                        }
                        w.event_append(event_id(2 * id + 1), at(1), event())?;
                        match n % 10 {
                            3 | 7 => Err(Stop::Refused),
                            9 => raise_panic(),
                            _ => Ok(()),
                        }
                    });
                    match n % 10 {
                        3 | 7 => assert!(matches!(command.await, Err(Stop::Refused))),
                        9 => drop(catch_panic(command).await),
                        _ => command.await.unwrap(),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let (events, pending) = reading!(&store, |r| {
        (r.event_list(0, &EventFilter::default(), 10_000)?.0, r.inbox_pending(&id_of("a"), 10_000)?)
    });
    let kept = usize::try_from(TASKS * COMMANDS * 7 / 10).unwrap();
    assert_eq!((events.len(), pending.len()), (2 * kept, kept));
    assert!(events.iter().zip(1..).all(|(event, seq)| event.seq == seq), "the sequence has no gap");
    let pairs: Vec<_> = events.chunks(2).collect();
    assert!(pairs.iter().all(|pair| pair[0].correlation_id == pair[1].correlation_id
        && pair[0].event_id.0.as_u128() + 1 == pair[1].event_id.0.as_u128()));
    let of_feed = map_rows(&pairs, |pair| message_id(u64::try_from(pair[0].event_id.0.as_u128() / 2).unwrap()));
    assert_eq!(of_feed, map_rows(&pending, |mail| mail.message_id), "feed and inbox agree on the order of commands");
    let mut of_task: BTreeMap<u128, u128> = BTreeMap::new();
    for mail in &pending {
        let id = mail.message_id.0.as_u128();
        assert!(of_task.insert(id / 1_000, id).is_none_or(|before| before < id), "each caller's commands keep order");
        assert!(!matches!(id % 10, 3 | 7 | 9), "nothing of an undone command is there");
    }
    assert_eq!(published(&mut feed), events, "the published events equal the stored ones, in order");
    assert_eq!(store.last_seq(), events.last().unwrap().seq);
}

/// A command that calls the store gets an error at once; otherwise it would wait for itself.
pub(super) async fn a_nested_write_is_refused_at_once(store: Bench) {
    let inner = store.clone();
    keep!(&store, |w| {
        w.message_append(&mail(1, "a"))?;
        let nested: Result<(), StoreError> = inner.write(|_| Ok(())).now_or_never().unwrap();
        assert!(matches!(nested, Err(StoreError::Nested)), "{nested:?}");
        // The outer command can continue.
        w.message_append(&mail(2, "a"))?;
    });
    keep!(&store, |w| { w.message_append(&mail(3, "a"))? });
    assert_eq!(reading!(&store, |r| { r.inbox_pending(&id_of("a"), 9)?.len() }), 3);
}

/// Two accounts whose sum stays the same. Commands move tokens between them; some refuse half-way.
pub(super) async fn reads_see_whole_commits_only(store: Bench) {
    let account =
        |agent: &str, tokens: u64| Budget { spent_tokens: tokens, ..budget(Scope::Agent(id_of(agent)), Some(1), None) };
    keep!(&store, |w| {
        w.budget_put(&account("a", 500))?;
        w.budget_put(&account("b", 500))?;
    });
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (store, done) = (store.clone(), done.clone());
        tokio::spawn(async move {
            let mut last = false;
            while !last {
                // One more read after the end, so that there is at least one.
                last = done.load(Ordering::Acquire);
                let (a, b, listed) = reading!(&store, |r| {
                    let a = r.budget_get(&Scope::Agent(id_of("a")))?.unwrap().spent_tokens;
                    let listed = r.budget_list(&crate::tables::BudgetFilter::default())?;
                    let b = r.budget_get(&Scope::Agent(id_of("b")))?.unwrap().spent_tokens;
                    (a, b, map_rows(&listed, |budget| budget.spent_tokens))
                });
                assert_eq!((a + b, listed), (1_000, vec![a, b]), "a query sees one commit, whole");
                tokio::task::yield_now().await;
            }
        })
    };
    for n in 1..=200 {
        let moved = write(&store, move |w| {
            w.budget_put(&account("a", 500 - n))?;
            if n % 5 == 0 {
                assert_eq!(w.budget_list(&crate::tables::BudgetFilter::default())?.len(), 2);
            }
            if n % 4 == 0 {
                return Err(Stop::Refused);
            }
            w.budget_put(&account("b", 500 + n))?;
            Ok(())
        })
        .await;
        assert_eq!(moved.is_err(), n % 4 == 0);
    }
    done.store(true, Ordering::Release);
    reader.await.unwrap();
}

pub(super) async fn a_cancelled_caller_affects_no_other(store: Bench) {
    for n in 0..50 {
        // Polled once. After that the command may be queued, running or done.
        let gone = write(&store, move |w| {
            w.message_append(&mail(1_000 + n, "b"))?;
            w.message_append(&mail(2_000 + n, "c"))?;
            Ok(())
        })
        .now_or_never();
        assert!(gone.is_none_or(|outcome| outcome.is_ok()));
        keep!(&store, |w| { w.message_append(&mail(n, "a"))? });
    }
    let (a, b, c) = reading!(&store, |r| {
        (r.inbox_pending(&id_of("a"), 99)?, r.inbox_pending(&id_of("b"), 99)?, r.inbox_pending(&id_of("c"), 99)?)
    });
    assert_eq!(map_rows(&a, |mail| mail.message_id), (0..50).map(message_id).collect::<Vec<_>>());
    let halves =
        (map_rows(&b, |mail| mail.message_id.0.as_u128() + 1_000), map_rows(&c, |mail| mail.message_id.0.as_u128()));
    assert_eq!(halves.0, halves.1, "a command is stored completely or not at all");
}
