//! On a full disk writes are refused, no acknowledged change is lost, and the writer continues.

use ghost_domain::{Party, RequestKey, StoredAnswer, Timestamp};

use super::tools::{deliver, depth, events, fresh, id_of, keep, place, send, send_text, seqs, together};
use crate::sqlite::{SqliteOptions, open_store};
use crate::tables::Family;
use crate::{StoreError, Tx};

/// Writes twenty stored answers of some pages each. They can be pruned without a free page.
fn fill(w: &mut Tx) -> Result<(), StoreError> {
    for n in 0..20 {
        let key = RequestKey {
            principal: Party::System,
            request_id: format!("r{n}").parse().unwrap(),
            method: "fill".to_owned(),
            digest: String::new(),
        };
        w.request_put(&StoredAnswer { key, answer: "z".repeat(10_000), at: Timestamp(1) })?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_and_loses_nothing() {
    let (_dir, path) = place();
    let full = SqliteOptions { page_limit: Some(210), ..SqliteOptions::default() };
    let store = open_store(&path, full.clone()).await.unwrap();
    keep!(&store, |w| { fill(w)? });
    let (mut kept, mut n) = (Vec::new(), 0);
    let refused = loop {
        n += 1;
        match send_text(&store, n, "a", "x".repeat(3_000)).await {
            Ok(()) => kept.push(n),
            Err(error) => break error,
        }
        assert!(n < 1_000, "the limit is never reached");
    };
    assert!(matches!(refused, StoreError::Full), "{refused}");
    // A large write after small ones fails its whole batch, and no other: the commands behind it run in the next one.
    let small =
        (0..8).map(|i| send_text(&store, 2_000 + i, "b", if i == 4 { "y".repeat(900_000) } else { String::new() }));
    let results = together(&store, small.collect()).await;
    assert!(results[..5].iter().all(|result| matches!(result, Err(StoreError::Full))), "{results:?}");
    let stored = results[5..].iter().filter(|result| result.is_ok()).count();
    assert_eq!(usize::try_from(depth(&store, "b").await).unwrap(), stored);
    assert_eq!(usize::try_from(depth(&store, "a").await).unwrap(), kept.len());
    assert_eq!(events(&store).await.len(), kept.len() + stored);

    // After space is freed, the same writer continues.
    assert_eq!(keep!(&store, |w| { w.prune(Family::Requests, Timestamp(100), 10_000)? }), 20);
    send(&store, 5_000, "b").await.unwrap();
    let kept_a = u32::try_from(kept.len()).unwrap();
    let stored_b = u32::try_from(stored).unwrap() + 1;
    assert_eq!((depth(&store, "a").await, depth(&store, "b").await), (kept_a, stored_b));
    let last = i64::try_from(kept.len() + stored).unwrap() + 1;
    assert_eq!(seqs(&store).await, (1..=last).collect::<Vec<_>>(), "failed batches use no sequence");
    store.close().await;
    let store = open_store(&path, full).await.unwrap();
    assert_eq!((depth(&store, "a").await, depth(&store, "b").await), (kept_a, stored_b));
}

/// The disk is full within a command that reads its own writes. The caches must be cleared too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_within_a_command_clears_the_caches() {
    let (_dir, store) = fresh(SqliteOptions { page_limit: Some(150), ..SqliteOptions::default() }).await;
    send(&store, 1, "a").await.unwrap();
    for swallow in [false, true] {
        let result = store
            .write::<u32, StoreError, _>(move |w| {
                assert_eq!(w.inbox_depth(&id_of("a"))?, 1);
                deliver(w, 2, "a", &"z".repeat(2_000_000))?;
                assert_eq!(w.inbox_depth(&id_of("a"))?, 2);
                match w.inbox_pending(&id_of("a"), 10) {
                    // A command that ignores the failure is not acknowledged either.
                    Err(_) if swallow => Ok(0),
                    Err(error) => Err(error),
                    Ok(_) => panic!("there was room"),
                }
            })
            .await;
        assert!(matches!(result, Err(StoreError::Full)), "{result:?}");
        assert_eq!(depth(&store, "a").await, 1);
    }
    send(&store, 2, "a").await.unwrap();
    let inside = keep!(&store, |w| { w.inbox_depth(&id_of("a"))? });
    assert_eq!((inside, depth(&store, "a").await, store.last_seq()), (2, 2, 2));
}
