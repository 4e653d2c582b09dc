//! A batch whose commands panic, refuse, or lose their caller.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::select;
use futures_util::{FutureExt as _, pin_mut};
use ghost_domain::{MailState, TaskId, TurnId};
use tokio::sync::Notify;
use uuid::Uuid;

use super::tools::{
    Stop, counts, deliver, depth, events, fresh, gate, hold, id_of, keep, mail, open, place, reading, send, seqs,
    together,
};
use crate::error::StoreError;
use crate::handle::for_people;
use crate::sqlite::{SqliteOptions, file_check, open_store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_undoes_only_its_own_command() {
    let (_dir, store) = fresh(SqliteOptions::default()).await;
    let commands = (0..30_u64).map(|n| {
        let store = store.clone();
        async move {
            let command = store.write::<(), StoreError, _>(move |w| {
                deliver(w, n, "a", "hello")?;
                if n % 4 == 1 {
                    // Flushes this command's rows to SQL, inside its savepoint.
                    w.inbox_total()?;
                }
                assert!(n % 3 != 0, "poisoned");
                Ok(())
            });
            std::panic::AssertUnwindSafe(command).catch_unwind().await.is_ok_and(|result| result.is_ok())
        }
    });
    let results = together(&store, commands.collect()).await;
    assert_eq!(results, (0..30).map(|n| n % 3 != 0).collect::<Vec<_>>());
    assert_eq!(depth(&store, "a").await, 20);
    assert_eq!(seqs(&store).await, (1..=20).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_stops_waiting_affects_no_other() {
    let (_dir, store) = fresh(SqliteOptions { queue: 2, ..SqliteOptions::default() }).await;
    let (go, held) = hold(&store).await;
    // Two fit in the queue. The others wait for space and are dropped while they wait.
    let leaving: Vec<_> = (0..6).map(|n| send(&store, n, "a").now_or_never()).collect();
    assert!(leaving.iter().all(Option::is_none));
    go.notify_one();
    held.await.unwrap().unwrap();
    send(&store, 10, "a").await.unwrap();
    assert_eq!(depth(&store, "a").await, 3, "the two queued mails, and the last one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_runs_the_queued_commands() {
    let (_dir, path) = place();
    let store = open(&path).await;
    let (go, held) = hold(&store).await;
    let mut queued: Vec<_> = (0..20).map(|n| Box::pin(send(&store, n, "a"))).collect();
    for send in &mut queued {
        assert!(send.now_or_never().is_none());
    }
    let closing = store.close();
    pin_mut!(closing);
    assert!((&mut closing).now_or_never().is_none());
    go.notify_one();
    held.await.unwrap().unwrap();
    closing.await;
    for send in queued {
        send.await.unwrap();
    }
    assert!(matches!(send(&store, 99, "a").await, Err(StoreError::Closed)));
    assert_eq!(depth(&open(&path).await, "a").await, 20);
}

/// 64 senders at once: each acknowledged send is stored once, in one order, and commits are shared.
// covers: STORE-03
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_senders_share_commits() {
    let (_dir, store) = fresh(SqliteOptions::default()).await;
    let mut feed = store.feed();
    let refusals = Arc::new(AtomicU64::new(0));
    let senders = (0..64_u64).map(|task| {
        let (store, refusals) = (store.clone(), refusals.clone());
        tokio::spawn(async move {
            for n in 0..20_u64 {
                let id = 1_000 * task + n;
                let result = store
                    .write::<(), Stop, _>(move |w| {
                        deliver(w, id, "a", "hello")?;
                        if id % 7 == 3 { Err(Stop::Refused) } else { Ok(()) }
                    })
                    .await;
                match result {
                    Ok(()) => assert!(id % 7 != 3),
                    Err(Stop::Refused) => drop(refusals.fetch_add(1, Ordering::Relaxed)),
                    Err(Stop::Store(error)) => panic!("{error}"),
                }
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    let kept = 64 * 20 - refusals.load(Ordering::Relaxed);
    assert_eq!(seqs(&store).await, (1..=i64::try_from(kept).unwrap()).collect::<Vec<_>>());
    assert_eq!(u64::from(depth(&store, "a").await), kept);
    let (mut batches, mut published) = (0, Vec::new());
    while let Ok(batch) = feed.try_recv() {
        batches += 1;
        published.extend(batch.iter().cloned());
    }
    assert_eq!(published, events(&store).await);
    assert!(batches * 2 < published.len(), "{batches} commits for {} sends", published.len());
}

/// A read that begins while a batch is open sees none of it, however long the batch takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_sees_only_what_is_committed() {
    let (_dir, store) = fresh(SqliteOptions::default()).await;
    send(&store, 1, "a").await.unwrap();
    let inside = Arc::new(Notify::new());
    let (go, leave) = gate();
    let (entered, writing) = (inside.clone(), store.clone());
    let command = tokio::spawn(async move {
        keep!(&writing, |w| {
            deliver(w, 2, "a", "hello")?;
            let seen = w.inbox_total()?;
            entered.notify_one();
            leave.recv().unwrap();
            seen
        })
    });
    inside.notified().await;
    assert_eq!((counts(&store).await, store.last_seq()), ((1, 1), 1));
    go.notify_one();
    assert_eq!(command.await.unwrap(), 2);
    assert_eq!((counts(&store).await, store.last_seq()), ((2, 2), 2));
}

/// A query cannot write: the connection itself refuses it.
#[tokio::test]
async fn a_connection_for_queries_cannot_write() {
    let (_dir, path) = place();
    open(&path).await.close().await;
    let conn =
        crate::sqlite::open::reader(&path, file_check::identity(&path).unwrap(), &SqliteOptions::default()).unwrap();
    let error = conn.execute("DELETE FROM events", []).unwrap_err();
    let error = crate::sqlite::fault::from_sqlite(&path, &error);
    assert!(matches!(&error, StoreError::ReadOnly(_)), "{error}");
}

/// A read whose caller has left ends, and the pool keeps its size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_reads_do_not_shrink_the_pool() {
    let (_dir, store) = fresh(SqliteOptions { reader_connections: 2, ..SqliteOptions::default() }).await;
    send(&store, 1, "a").await.unwrap();
    for _ in 0..10 {
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let stuck = store.read::<(), StoreError, _>(move |r| {
            r.inbox_total()?;
            // Ends when the sender is dropped.
            let _ = released.recv();
            Ok(())
        });
        // This read uses the same pool, so the other has begun when it ends.
        let brief = async { assert_eq!(depth(&store, "a").await, 1) };
        pin_mut!(stuck, brief);
        select(stuck, brief).await;
        drop(release);
    }
    assert_eq!(depth(&store, "a").await, 1);
}

/// Reads that wait for a reader get it after one whose caller has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_read_continues_after_others_are_cancelled() {
    let (_dir, store) = fresh(SqliteOptions { reader_connections: 1, ..SqliteOptions::default() }).await;
    send(&store, 1, "a").await.unwrap();
    for _ in 0..20 {
        let (holds, held) = tokio::sync::oneshot::channel();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let holder = store.clone();
        let stuck = tokio::spawn(async move {
            reading!(&holder, |r| {
                r.inbox_total()?;
                holds.send(()).unwrap();
                let _ = released.recv();
            });
        });
        held.await.unwrap();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { depth(&store, "a").await })
            })
            .collect();
        tokio::task::yield_now().await;
        stuck.abort();
        drop(release);
        for read in waiting {
            assert_eq!(read.await.unwrap(), 1);
        }
    }
}

/// Queries of people that hang leave readers to turns, and turns that hang leave one to people.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_and_turns_cannot_take_each_others_readers() {
    for people_hang in [true, false] {
        let (_dir, store) = fresh(SqliteOptions { reader_connections: 4, ..SqliteOptions::default() }).await;
        send(&store, 1, "a").await.unwrap();
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let released = Arc::new(Mutex::new(released));
        let mut stuck = Vec::new();
        for _ in 0..9 {
            let (store, released) = (store.clone(), Arc::clone(&released));
            let hang = async move {
                reading!(&store, |r| {
                    r.inbox_total()?;
                    // Ends when the sender is dropped.
                    let _ = released.lock().unwrap().recv();
                });
            };
            stuck.push(tokio::spawn(async move { if people_hang { for_people(hang).await } else { hang.await } }));
        }
        if people_hang {
            for _ in 0..3 {
                assert_eq!(depth(&store, "a").await, 1);
            }
        } else {
            // A query of people takes the first reader that is free.
            let asked = store.clone();
            let asked = tokio::spawn(async move { for_people(depth(&asked, "a")).await });
            tokio::task::yield_now().await;
            release.send(()).unwrap();
            assert_eq!(asked.await.unwrap(), 1);
        }
        drop(release);
        for query in stuck {
            query.await.unwrap();
        }
        assert_eq!(for_people(depth(&store, "a")).await, 1);
    }
}

/// A large number of rows in one command takes several statements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_rows_in_one_command() {
    let (_dir, path) = place();
    let store = open(&path).await;
    let ids = |numbers: Range<u64>| numbers.map(|n| mail(n, "a", "").message_id).collect::<Vec<_>>();
    keep!(&store, |w| {
        for n in 0..5_003 {
            deliver(w, n, "a", "hello")?;
        }
        w.message_mark(&ids(0..3_000), MailState::Taken, Some(TurnId(Uuid::from_u128(9))), 1)?;
    });
    assert_eq!(counts(&store).await, (2_003, 5_003));
    // Ids without a message are ignored, also among ids that are no longer cached.
    store.close().await;
    let options = SqliteOptions { busy_timeout: Duration::ZERO, ..SqliteOptions::default() };
    let store = open_store(&path, options).await.unwrap();
    keep!(&store, |w| {
        w.message_mark(&ids(2_900..6_000), MailState::Consumed, None, 0)?;
        assert!(w.task_get(TaskId(Uuid::nil()))?.is_none());
        assert_eq!(w.inbox_depth(&id_of("a"))?, 0);
    });
}

/// A message with a stored id is refused, whether the first one is in the same command, in the
/// batch, or in SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_with_a_stored_id_is_refused() {
    let (_dir, path) = place();
    let store = open(&path).await;
    for n in [5, 3, 9] {
        send(&store, n, "a").await.unwrap();
        let again = send(&store, n, "a").await;
        assert!(matches!(again, Err(StoreError::Row { table: "messages", .. })), "{again:?}");
    }
    store.close().await;
    let store = open(&path).await;
    let results = together(&store, (0..12).map(|n| send(&store, n % 10, "a")).collect()).await;
    let refused: Vec<usize> = (0..12).filter(|at| results[*at].is_err()).collect();
    assert_eq!(refused, [3, 5, 9, 10, 11]);
    assert_eq!(counts(&store).await, (10, 10));
}
