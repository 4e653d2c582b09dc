//! Asks and dead letters.

use super::tools::*;

pub(super) async fn asks_round_trip(store: Bench) {
    let party = Party::Operator("uid-1000".to_owned());
    let asker = Asker { party, turn_id: None, call_id: None, provider_call_id: None };
    let outside = Ask { asker, ..ask(1, "a", "b", AskStatus::Open) };
    let late = Ask {
        reply: Some(AWKWARD.to_owned()),
        truncated: true,
        error: Some("too late".to_owned()),
        ..ask(2, "a", "b", AskStatus::TimedOut)
    };
    let wanted = [outside.clone(), late.clone()].map(Some);
    put!(&store, { ask_put: outside, ask(2, "a", "b", AskStatus::Open), late; });
    shows!(&store, |r| {
        [r.ask_get(ask_id(1))?, r.ask_get(ask_id(2))?] => wanted;
        r.ask_get(ask_id(3))? => None;
    });
}

pub(super) async fn open_asks_are_found(store: Bench) {
    let ids = |asks: &[Ask]| map_rows(asks, |ask| ask.ask_id);
    keep!(&store, |w| {
        for n in [3, 1, 2] {
            w.ask_put(&ask(n, "a", "b", AskStatus::Open))?;
        }
        w.ask_put(&ask(4, "b", "c", AskStatus::Open))?;
        for (n, status) in [(5, AskStatus::Answered), (6, AskStatus::Failed), (7, AskStatus::TimedOut)] {
            w.ask_put(&ask(n, "a", "b", status))?;
        }
        assert_eq!((ids(&w.asks_open()?), w.ask_count_open()?), ([1, 2, 3, 4].map(ask_id).to_vec(), 4));
    });
    put!(&store, { ask_put: ask(2, "a", "b", AskStatus::Answered); });
    shows!(&store, |r| {
        ids(&r.asks_open()?) => [1, 3, 4].map(ask_id);
        r.ask_count_open()? => 3;
        ids(&r.asks_open_to(&id_of("b"))?) => [1, 3].map(ask_id);
        r.asks_open_to(&id_of("d"))? => [];
        ids(&r.asks_open_of_turn(turn_id(4))?) => [ask_id(4)];
        r.asks_open_of_turn(turn_id(2))? => [];
    });
}

pub(super) async fn dead_letters_are_newest_first(store: Bench) {
    let many = || DeadLetter {
        messages: vec![message_id(3), message_id(1), message_id(2)],
        ..letter(2, "a", DeadLetterStatus::Retried)
    };
    let held = |n, agent| letter(n, agent, DeadLetterStatus::Held);
    put!(&store, { dead_letter_put: held(3, "b"), held(1, "a"), held(2, "a"), many(); });
    let ids = |letters: &[DeadLetter]| map_rows(letters, |letter| letter.dead_letter_id);
    shows!(&store, |r| {
        r.dead_letter_get(letter_id(2))? => Some(many());
        r.dead_letter_get(letter_id(4))? => None;
        ids(&r.dead_letter_list(None, None, None, 1_000)?) => [3, 2, 1].map(letter_id);
        ids(&r.dead_letter_list(Some(&id_of("a")), None, None, 1_000)?) => [2, 1].map(letter_id);
        ids(&r.dead_letter_list(Some(&id_of("a")), Some(DeadLetterStatus::Held), None, 1_000)?) => [letter_id(1)];
        r.dead_letter_list(None, Some(DeadLetterStatus::Dropped), None, 1_000)? => [];
        r.dead_letter_count_held(None)? => 2;
        r.dead_letter_count_held(Some(&id_of("a")))? => 1;
        r.dead_letter_count_held(Some(&id_of("c")))? => 0;
    });
}
