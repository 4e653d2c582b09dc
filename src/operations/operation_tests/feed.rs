use ghost_domain::event::EventFilter;

use super::operation_world::*;

async fn open(world: &World, after: Option<i64>, filter: EventFilter, follow: bool) -> Result<Subscription> {
    Subscription::open(&world.store, after, filter, follow).await
}

/// A reader of all that is stored after this event.
async fn stored(world: &World, after: i64) -> Subscription {
    open(world, Some(after), EventFilter::default(), false).await.unwrap()
}

async fn rest(feed: &mut Subscription) -> Vec<i64> {
    let mut seqs = Vec::new();
    while let Some(event) = feed.next().await.unwrap() {
        seqs.push(event.seq);
    }
    seqs
}

fn delivered() -> EventFilter {
    EventFilter { kinds: vec!["message.".into()], agent_id: Some(id("ada")), channel: None }
}

// covers: CP-06
world_test!(a_reader_resumes_and_gets_only_matching_events, async |world| {
    for n in 0..600 {
        world.limits(|limits| limits.inbox_max = 10_000);
        world.send(if n % 2 == 0 { "ada" } else { "bob" }, "hello").await;
    }
    let last = world.store.last_seq();
    let all = rest(&mut stored(&world, 0).await).await;
    assert_eq!(all, (1..=last).collect::<Vec<_>>(), "over several pages, without gap");
    let mut some = open(&world, Some(0), delivered(), false).await.unwrap();
    let seqs = rest(&mut some).await;
    assert_eq!(seqs.len(), 300);
    let mut later = open(&world, Some(seqs[99]), delivered(), false).await.unwrap();
    assert_eq!(rest(&mut later).await, seqs[100..]);
    let mut none = open(&world, None, EventFilter::default(), false).await.unwrap();
    assert!(rest(&mut none).await.is_empty());
    assert_eq!(none.seen(), last);
});

world_test!(no_event_is_lost_between_storage_and_the_live_feed, async |world| {
    world.send("ada", "stored").await;
    let before = world.store.last_seq();
    let mut feed = open(&world, Some(0), EventFilter::default(), true).await.unwrap();
    // Committed after the reader subscribed and before it reads: present in both sources, returned
    // once.
    world.send("ada", "between").await;
    let mut seqs = Vec::new();
    for _ in 0..before {
        seqs.push(feed.next().await.unwrap().unwrap().seq);
    }
    world.send("ada", "live").await;
    while let Some(event) = feed.try_next() {
        seqs.push(event.seq);
    }
    while *seqs.last().unwrap() < world.store.last_seq() {
        seqs.push(feed.next().await.unwrap().unwrap().seq);
    }
    assert_eq!(seqs, (1..=before + 2).collect::<Vec<_>>());
    assert!(feed.try_next().is_none());
    let newest = world.events().await.pop().unwrap();
    let ephemeral = Event { event_id: EventId(Uuid::nil()), kind: EventKind::ModelDelta, ..newest };
    world.store.publish_ephemeral(ephemeral.clone());
    assert_eq!((feed.next().await.unwrap().as_deref(), feed.seen()), (Some(&ephemeral), world.store.last_seq()));
});

// covers: CP-08
#[tokio::test]
async fn a_slow_reader_is_refused_and_finds_the_rest_in_storage() {
    for look_first in [false, true] {
        let world = World::new().await;
        world.limits(|limits| limits.inbox_max = 100_000);
        let mut feed = open(&world, None, EventFilter::default(), true).await.unwrap();
        let began = feed.seen();
        for _ in 0..4_200 {
            world.send("ada", "x").await;
        }
        if look_first {
            assert!(feed.try_next().is_none());
            assert!(feed.try_next().is_none(), "it does not go on behind the gap");
        }
        assert_eq!(detail(feed.next().await, Code::RateLimited, "last_seq"), began);
        // Resumed at the given sequence, or simply read on: no gap in either case.
        for seq in began + 1..=world.store.last_seq() {
            assert_eq!(feed.next().await.unwrap().unwrap().seq, seq);
        }
    }
}

world_test!(cursors_outside_the_feed_are_refused, async |world| {
    let last = world.store.last_seq();
    let at = async |cursor| open(&world, Some(cursor), EventFilter::default(), true).await.map(drop);
    assert_eq!((code(at(last + 1).await), code(at(-1).await)), (Code::CursorAhead, Code::InvalidArguments));
    world.sweep_after(Limits::days(8)).await;
    assert_eq!(detail(at(1).await, Code::CursorExpired, "last_seq"), last);
    world.send("ada", "new").await;
    assert_eq!(rest(&mut stored(&world, 0).await).await, [last + 1]);
    stored(&world, last).await;
});

world_test!(a_reader_overtaken_by_retention_gets_an_error, async |world| {
    world.limits(|limits| limits.inbox_max = 10_000);
    for _ in 0..600 {
        world.send("ada", "hello").await;
    }
    let last = world.store.last_seq();
    let mut begun = stored(&world, 0).await;
    assert_eq!(begun.next().await.unwrap().unwrap().seq, 1);
    let (mut resumed, mut oldest) = (stored(&world, 1).await, stored(&world, 0).await);
    world.pass(Limits::days(8));
    // A sweep deletes no more than its share.
    while world.sweep().await > 0 {}
    world.send("ada", "new").await;
    let mut seen = 1;
    let refusal = loop {
        match begun.next().await {
            Ok(event) => {
                seen += 1;
                assert_eq!(event.unwrap().seq, seen, "what it has read already, it is given");
            }
            Err(refusal) => break refusal,
        }
    };
    assert!(seen < last && begun.seen() == seen, "{seen}");
    assert_eq!(detail::<()>(Err(refusal), Code::CursorExpired, "first_seq"), last + 1);
    assert_eq!(code(begun.next().await.map(drop)), Code::CursorExpired, "and so it is when it asks again");
    assert_eq!(code(resumed.next().await.map(drop)), Code::CursorExpired);
    // A reader that starts at the oldest kept event has no gap.
    assert_eq!(rest(&mut oldest).await, [last + 1]);
});
