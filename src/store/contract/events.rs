//! The event feed: one order, no gaps, published after the commit.

use super::tools::*;

/// Appends event `n`, at second `n`.
fn append(w: &mut Tx, n: u64) -> Result<(), StoreError> {
    w.event_append(event_id(n), at(n), NewEvent::new(EventKind::MessageDelivered, json!({ "n": n })))
}

/// Appends one event for each number, in one command.
async fn state(store: &Store, numbers: &[u64]) {
    let numbers = numbers.to_vec();
    keep!(store, |w| {
        for n in numbers {
            append(w, n)?;
        }
    });
}

async fn all(store: &Store) -> Vec<Event> {
    reading!(store, |r| { r.event_list(0, &EventFilter::default(), 10_000)? }).0
}

async fn bounds(store: &Store) -> (i64, i64) {
    reading!(store, |r| { r.event_bounds()? })
}

fn seq_and_number(events: &[Event]) -> Vec<(i64, u64)> {
    map_rows(events, |event| (event.seq, u64::try_from(event.event_id.0.as_u128()).unwrap()))
}

// covers: CP-07
pub(super) async fn events_are_gapless_and_in_order(store: Bench) {
    assert_eq!((bounds(&store).await, store.last_seq(), all(&store).await), ((1, 0), 0, vec![]));
    let full =
        NewEvent { channel: Some("desk".to_owned()), ..NewEvent::new(EventKind::TurnStarted, json!({"t": AWKWARD})) }
            .agent(&id_of("a"))
            .correlation(message_id(3));
    let wanted = Event {
        seq: 3,
        event_id: event_id(7),
        ts: at(2),
        kind: EventKind::TurnStarted,
        agent_id: Some(id_of("a")),
        channel: Some("desk".to_owned()),
        correlation_id: Some(message_id(3).to_string()),
        payload: json!({"t": AWKWARD}).into(),
    };
    state(&store, &[9, 8]).await;
    keep!(&store, |w| { w.event_append(event_id(7), at(2), full)? });
    state(&store, &[6]).await;
    let events = all(&store).await;
    assert_eq!(seq_and_number(&events), [(1, 9), (2, 8), (3, 7), (4, 6)]);
    assert_eq!((&events[2], bounds(&store).await, store.last_seq()), (&wanted, (1, 4), 4));
}

/// A correlation id, and a payload that contains it, are read back unchanged, however a backend
/// stores them.
pub(super) async fn correlation_ids_are_read_back(store: Bench) {
    let id = message_id(3).to_string();
    let all_of = [Some(id.clone()), Some(id.to_uppercase()), Some("no id".to_owned()), Some(String::new()), None];
    let mut wanted = Vec::new();
    for (correlation_id, n) in all_of.into_iter().zip(1..) {
        let payload = json!({ "turn_id": id, "again": [id, format!("{id}.")], "control": "\u{1}\u{2}", "large": id.to_uppercase() });
        let new = NewEvent { correlation_id, ..NewEvent::new(EventKind::TurnStarted, payload) };
        wanted.push((new.correlation_id.clone(), new.payload.clone()));
        keep!(&store, |w| { w.event_append(event_id(n), at(2), new)? });
    }
    let found = map_rows(&all(&store).await, |event| (event.correlation_id.clone(), (*event.payload).clone()));
    assert_eq!(found, wanted);
}

// covers: STORE-03
pub(super) async fn events_are_published_after_commit(store: Bench) {
    let mut feed = store.feed();
    let mut inside = store.feed();
    let outcome: Outcome<usize> = write(&store, move |w| {
        append(w, 1)?;
        Ok(published(&mut inside).len())
    })
    .await;
    assert_eq!(outcome.unwrap(), 0, "nothing is published before its command has ended");
    assert_eq!(seq_and_number(&published(&mut feed)), [(1, 1)], "the events of an acknowledged command are published");
    refuse!(&store, |w| {
        append(w, 2)?;
    });
    drop(
        catch_panic(write::<(), _>(&store, |w| {
            append(w, 3)?;
            raise_panic()
        }))
        .await,
    );
    assert_eq!(published(&mut feed), []);
    state(&store, &[4, 5]).await;
    state(&store, &[6]).await;
    let received = published(&mut feed);
    assert_eq!(seq_and_number(&received), [(2, 4), (3, 5), (4, 6)]);
    assert_eq!(all(&store).await[1..], received, "the feed shows what is stored");
    assert_eq!(store.last_seq(), 4);
}

pub(super) async fn ephemeral_kinds_are_refused(store: Bench) {
    for kind in EventKind::ALL.iter().copied().filter(|kind| kind.is_ephemeral()) {
        keep!(&store, |w| {
            let stated = w.event_append(event_id(1), at(1), NewEvent::new(kind, json!({})));
            assert!(stated.is_err(), "{kind} was taken");
            w.meta_put("went", "on")?;
        });
    }
    assert_eq!(all(&store).await, []);
    state(&store, &[2]).await;
    assert_eq!(seq_and_number(&all(&store).await), [(1, 2)]);
    assert_eq!(reading!(&store, |r| { r.meta_get("went")? }).as_deref(), Some("on"));
}

/// Reads page by page. Returns the sequences, and how far the last page has looked.
async fn read_to_the_end(store: &Store, filter: &EventFilter, limit: u32) -> (Vec<i64>, i64) {
    let (mut after, mut seen) = (0, Vec::new());
    while after < store.last_seq() {
        let wanted = filter.clone();
        let (page, looked_at) = reading!(store, |r| { r.event_list(after, &wanted, limit)? });
        assert!(looked_at > after, "{filter:?} stands still at {after}");
        assert!(page.len() <= usize::try_from(limit).unwrap());
        assert!(page.iter().all(|event| event.seq > after && event.seq <= looked_at));
        seen.extend(map_rows(&page, |event| event.seq));
        after = looked_at;
    }
    (seen, after)
}

pub(super) async fn events_are_paged(store: Bench) {
    state(&store, &(1..=25).collect::<Vec<_>>()).await;
    let read = read_to_the_end(&store, &EventFilter::default(), 10).await;
    assert_eq!(read, ((1..=25).collect::<Vec<_>>(), 25));
    shows!(&store, |r| { r.event_list(25, &EventFilter::default(), 10)? => (vec![], 25); });
}

pub(super) async fn a_filter_with_few_matches_reads_to_the_end(store: Bench) {
    keep!(&store, |w| {
        for n in 1..=2_500 {
            let kind = if n == 1_700 { EventKind::TurnFinished } else { EventKind::MessageDelivered };
            let mut event = NewEvent::new(kind, json!({}));
            if n % 1_000 == 0 {
                event = event.agent(&id_of("a"));
            }
            if n == 5 {
                event.channel = Some("desk".to_owned());
            }
            w.event_append(event_id(n), at(n), event)?;
        }
    });
    let any = EventFilter::default;
    let kinds = |kinds: &[&str]| EventFilter { kinds: map_rows(kinds, |kind| (*kind).to_owned()), ..any() };
    for (filter, wanted) in [
        (kinds(&["turn."]), &[1_700][..]),
        (kinds(&["turn.finished", "team."]), &[1_700]),
        (kinds(&["turn"]), &[]),
        (EventFilter { agent_id: Some(id_of("a")), ..any() }, &[1_000, 2_000]),
        (EventFilter { channel: Some("desk".to_owned()), ..any() }, &[5]),
        (EventFilter { agent_id: Some(id_of("b")), ..any() }, &[]),
    ] {
        assert_eq!(read_to_the_end(&store, &filter, 1).await, (wanted.to_vec(), 2_500), "{filter:?}");
    }
}

pub(super) async fn bounds_follow_pruning(store: Bench) {
    state(&store, &(1..=10).collect::<Vec<_>>()).await;
    prunes!(&store, Family::Events, |r| { r.event_bounds()? }, { (6, 3) => 3, (4, 10); (6, 100) => 2, (6, 10); });
    let (rest, _) = reading!(&store, |r| { r.event_list(2, &EventFilter::default(), 2)? });
    assert_eq!(seq_and_number(&rest), [(6, 6), (7, 7)]);
    prunes!(&store, Family::Events, |r| { r.event_bounds()? }, { (100, 100) => 5, (11, 10); });
    // An empty result contains the position to continue from.
    shows!(&store, |r| { r.event_list(0, &EventFilter::default(), 5)? => (vec![], 10); });
    state(&store, &[11]).await;
    assert_eq!((bounds(&store).await, seq_and_number(&all(&store).await)), ((11, 11), vec![(11, 11)]));
}

pub(super) async fn the_sequence_continues_after_reopening(mut store: Bench) {
    state(&store, &[1, 2, 3]).await;
    keep!(&store, |w| { w.prune(Family::Events, at(100), 100)? });
    store.reopen().await;
    assert_eq!((store.last_seq(), bounds(&store).await), (3, (4, 3)));
    state(&store, &[4]).await;
    assert_eq!((seq_and_number(&all(&store).await), store.last_seq()), (vec![(4, 4)], 4));
}
