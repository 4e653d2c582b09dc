//! Transactions: all or nothing, own writes are visible, and other commands are not affected.

use super::tools::*;

/// Queues commands 1 to 9 at once. Every third one refuses after its writes.
pub(super) async fn a_refusal_undoes_its_writes_alone(store: Bench) {
    let command = async |store: Store, n: u64| {
        write(&store, move |w| {
            w.message_append(&mail(n, "a"))?;
            w.task_put(&task(n % 3, "a", TaskStatus::Pending))?;
            w.message_append(&mail(100 + n, "a"))?;
            w.message_mark(&[message_id(n)], MailState::Taken, Some(turn_id(n)), 1)?;
            w.task_put(&task(10 + n, "a", TaskStatus::Done))?;
            w.message_append(&mail(200 + n, "a"))?;
            if n.is_multiple_of(3) { Err(Stop::Refused) } else { Ok(()) }
        })
        .await
    };
    let outcomes = join_all((1..=9).map(|n| command(store.clone(), n))).await;
    for (outcome, n) in outcomes.iter().zip(1_u64..) {
        assert_eq!(outcome.is_err(), n.is_multiple_of(3), "{n}: {outcome:?}");
    }
    let kept: Vec<u64> = (1..=9).filter(|n: &u64| !n.is_multiple_of(3)).collect();
    let mail: Vec<_> = [100, 200].iter().flat_map(|base| kept.iter().map(move |n| message_id(base + n))).collect();
    let tasks: Vec<_> = [1, 2].into_iter().chain(kept.iter().map(|n| 10 + n)).map(task_id).collect();
    let mut found = reading!(&store, |r| {
        let mail = map_rows(&r.inbox_pending(&id_of("a"), 99)?, |mail| mail.message_id);
        assert_eq!(usize::try_from(r.inbox_depth(&id_of("a"))?).unwrap(), mail.len());
        (mail, map_rows(&r.task_list(&TaskFilter::default())?, |task| task.task_id))
    });
    found.0.sort();
    found.1.sort();
    assert_eq!(found, (mail, tasks));
    assert_eq!(found!(&store, 1..=9, |r, n| r.messages_of_turn(turn_id(n))?.pop()), kept);
}

pub(super) async fn a_panic_is_undone_and_continues_in_the_caller(store: Bench) {
    let command = write::<(), _>(&store, |w| {
        w.agent_put(&agent("a"))?;
        assert_eq!(w.agent_list(true)?.len(), 1);
        w.agent_put(&agent("b"))?;
        raise_panic()
    });
    let payload = catch_panic(command).await;
    assert_eq!(payload.downcast_ref::<String>().map(String::as_str), Some("blown up"));
    shows!(&store, |r| { r.agent_list(true)? => []; });
    put!(&store, { agent_put: agent("c"); });
    shows!(&store, |r| { r.agent_list(true)? => [agent("c")]; });
}

pub(super) async fn failed_queries_do_not_use_up_the_readers(store: Bench) {
    keep!(&store, |w| { w.agent_put(&agent("a"))? });
    // More often than the number of readers in a pool.
    for _ in 0..20 {
        let refused: Outcome<()> = read(&store, |r| {
            r.agent_list(true)?;
            Err(Stop::Refused)
        })
        .await;
        assert!(matches!(refused, Err(Stop::Refused)));
        let mine = store.clone();
        let panicked = tokio::spawn(async move { read::<(), _>(&mine, |_| raise_panic()).await });
        assert!(!matches!(panicked.await, Ok(Ok(()))));
    }
    assert_eq!(reading!(&store, |r| { r.agent_list(true)? }), [agent("a")]);
    keep!(&store, |w| { w.agent_put(&agent("b"))? });
}

pub(super) async fn answers_are_returned(store: Bench) {
    assert_eq!(keep!(&store, |_w| { "nothing written".to_owned() }), "nothing written");
    let answers = join_all((0..100_u64).map(|n| {
        let store = store.clone();
        async move {
            keep!(&store, |w| {
                w.message_append(&mail(n, "a"))?;
                n
            })
        }
    }))
    .await;
    assert_eq!(answers, (0..100).collect::<Vec<_>>());
    assert_eq!(reading!(&store, |r| { r.inbox_depth(&id_of("a"))? }), 100);
}

pub(super) async fn a_closed_store_returns_closed(mut store: Bench) {
    keep!(&store, |w| { w.agent_put(&agent("a"))? });
    store.close().await;
    store.close().await;
    let refused: Outcome<()> = write(&store, |w| Ok(w.agent_put(&agent("b"))?)).await;
    assert!(matches!(refused, Err(Stop::Store(StoreError::Closed))), "{refused:?}");
    let refused = read(&store, |r| Ok(r.agent_list(true)?)).await;
    assert!(matches!(refused, Err(Stop::Store(StoreError::Closed))), "{refused:?}");
    store.reopen().await;
    assert_eq!(reading!(&store, |r| { r.agent_list(true)? }), [agent("a")]);
}

pub(super) async fn acknowledged_commands_survive_reopening(mut store: Bench) {
    for n in 1..=5 {
        keep!(&store, |w| {
            assert_eq!(u64::from(w.inbox_depth(&id_of("a"))?), n - 1);
            w.message_append(&mail(n, "a"))?;
        });
        refuse!(&store, |w| { w.message_append(&mail(100 + n, "a"))? });
        let ids = map_rows(&reading!(&store, |r| { r.inbox_pending(&id_of("a"), 99)? }), |mail| mail.message_id);
        assert_eq!(ids, (1..=n).map(message_id).collect::<Vec<_>>());
        store.reopen().await;
    }
}
