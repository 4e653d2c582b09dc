//! A batch whose commands panic, refuse, or lose their caller.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use futures_util::{FutureExt as _, pin_mut};
use tokio::sync::Notify;

use super::tools::{counts, deliver, depth, events, fresh, hold, keep, open, place, reading, send, send_each, seqs};
use crate::error::StoreError;
use crate::handle::for_people;
use crate::sqlite::{SqliteOptions, file_check};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_stops_waiting_affects_no_other() {
    let (_dir, store) = fresh(SqliteOptions { queue: 2, ..SqliteOptions::default() }).await;
    let (go, held) = hold(&store).await;
    // Two fit in the queue. The others wait for space and are dropped while they wait.
    let leaving: Vec<_> = (0..6).map(|n| send(&store, n, "a").now_or_never()).collect();
    assert!(leaving.iter().all(Option::is_none));
    go.send(()).unwrap();
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
    go.send(()).unwrap();
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
    let senders = (0..64_u64).map(|task| {
        let store = store.clone();
        tokio::spawn(async move { send_each(&store, 20 * task..20 * (task + 1)).await })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    assert_eq!(depth(&store, "a").await, 1_280);
    let (mut batches, mut published) = (0, Vec::new());
    while let Ok(batch) = feed.try_recv() {
        batches += 1;
        published.extend(batch.iter().cloned());
    }
    assert_eq!(published, events(&store).await);
    assert_eq!(seqs(&store).await, (1..=1_280).collect::<Vec<_>>());
    assert!(batches * 2 < published.len(), "{batches} commits for {} sends", published.len());
}

/// A read that begins while a batch is open sees none of it, however long the batch takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_sees_only_what_is_committed() {
    let (_dir, store) = fresh(SqliteOptions::default()).await;
    send(&store, 1, "a").await.unwrap();
    let inside = Arc::new(Notify::new());
    let (go, leave) = sync_channel(1);
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
    go.send(()).unwrap();
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
    let error = crate::sqlite::driver::from_sqlite(&path, &error);
    assert!(matches!(&error, StoreError::ReadOnly(_)), "{error}");
}

/// Reads that wait for a reader get it after one whose caller has left: that read ends, and the pool keeps its size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_read_continues_after_others_are_cancelled() {
    let (_dir, store) = fresh(SqliteOptions { reader_connections: 1, ..SqliteOptions::default() }).await;
    send(&store, 1, "a").await.unwrap();
    for _ in 0..20 {
        let (holds, held) = tokio::sync::oneshot::channel();
        let (release, released) = sync_channel::<()>(1);
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
        let (release, released) = sync_channel::<()>(1);
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
